// SPDX-License-Identifier: MIT
#include <halfstep/core/file.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

namespace fs = std::filesystem;
using namespace halfstep;

/// A folder of its own, gone at the end.
class File : public testing::Test {
 protected:
  File() {
    std::string pattern = (fs::temp_directory_path() / "halfstep-file-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~File() override { fs::remove_all(folder); }
  [[nodiscard]] std::string path(const char* name) const { return (folder / name).string(); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

template <class E, class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(File, WhatWasWrittenIsReadAtEveryLengthAroundABuffer) {
  for (const std::size_t n : {0U, 1U, 4094U, 4095U, 4096U, 4097U, 100'000U}) {
    std::string bytes(n, '\0');
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 31 % 256);
    core::write_file_atomically(path("a"), bytes);
    ASSERT_EQ(core::read_whole_file(path("a")), bytes) << n;
    ASSERT_EQ(files(), 1U) << "a temporary file remains";
  }
}

TEST_F(File, AFileWithoutASizeIsReadToItsEnd) {
  EXPECT_FALSE(core::read_whole_file("/proc/self/maps").empty());  // st_size is 0 there
}

TEST_F(File, AMissingFileIsNamedWithItsCause) {
  const auto text = message<FileError>([&] { (void)core::read_whole_file(path("no")); });
  EXPECT_NE(text.find(path("no")), std::string::npos) << text;
  EXPECT_NE(text.find("No such file or directory. Is the path right?"), std::string::npos) << text;
}

TEST_F(File, ADirectoryIsNoFile) {
  const auto text = message<FileError>([&] { (void)core::read_whole_file(folder); });
  EXPECT_NE(text.find("is a directory"), std::string::npos) << text;
  EXPECT_NE(message<FileError>([&] { core::write_file_atomically(folder, "x"); })
                .find("not a regular file"),
            std::string::npos);
}

TEST_F(File, APipeThatNobodyWritesToAndADeviceThatNeverEndsAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ::alarm(20);  // a reader that waits for either ends here
  EXPECT_NE(message<FileError>([&] { (void)core::read_whole_file(path("pipe")); })
                .find("pipe' is a pipe, not a regular file. Write what it gives to a file"),
            std::string::npos);
  EXPECT_NE(message<FileError>([&] { (void)core::read_whole_file("/dev/zero"); })
                .find("'/dev/zero' is a device, not a regular file."),
            std::string::npos);
  EXPECT_NE(message<FileError>([&] { const core::InputFile file("Reader", path("pipe")); })
                .find("Reader: '" + path("pipe")),
            std::string::npos);
  ::alarm(0);
}

TEST_F(File, ADeviceIsNotReplacedByAFile) {
  EXPECT_THROW(core::write_file_atomically("/dev/null", "x"), FileError);
  struct stat status{};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST_F(File, AFullDiskLeavesTheOldFileAndNoTemporaryOne) {
  core::write_file_atomically(path("a"), "old");
  fs::create_symlink("/dev/full", path("a.tmp"));  // so that the first write says ENOSPC
  const auto text = message<FileError>([&] { core::write_file_atomically(path("a"), "new"); });
  EXPECT_NE(text.find("cannot write '" + path("a.tmp")), std::string::npos) << text;
  EXPECT_NE(text.find("No space left on device. Free some space"), std::string::npos) << text;
  EXPECT_NE(text.find("'" + path("a") + "' is as it was"), std::string::npos) << text;
  EXPECT_EQ(core::read_whole_file(path("a")), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(File, AWriteThatFailsHalfwayLeavesTheOldFile) {
  core::write_file_atomically(path("a"), "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto text = message<FileError>(
      [&] { core::write_file_atomically(path("a"), std::string(50'000, 'x')); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(text.find("after 10000 bytes"), std::string::npos) << text;
  EXPECT_EQ(core::read_whole_file(path("a")), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(File, WithoutACommitNothingAppears) {
  {
    core::AtomicFile file(path("a"));
    file.write("half");
    EXPECT_FALSE(fs::exists(path("a")));
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(File, ATemporaryFileLeftByAKilledWriterIsOverwritten) {
  core::write_file_atomically(path("a.tmp"), std::string(1000, 'x'));
  core::write_file_atomically(path("a"), "new");
  EXPECT_EQ(core::read_whole_file(path("a")), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(File, AMissingFolderIsNamed) {
  const auto text = message<FileError>([&] { core::write_file_atomically(path("no/a"), "x"); });
  EXPECT_NE(text.find("cannot create '" + path("no/a.tmp")), std::string::npos) << text;
}

TEST_F(File, NothingCanBeWrittenAfterACommit) {
  core::AtomicFile file(path("a"));
  file.commit();
  EXPECT_NE(message<StateError>([&] { file.write("x"); }).find("written or given up already"),
            std::string::npos);
  EXPECT_THROW(file.commit(), StateError);
}

TEST_F(File, ADirectoryTakesANameThatIsFreeOrAnothers) {
  const auto make = [&](const char* name, const char* content) {
    fs::create_directory(path(name));
    core::write_file_atomically(path(name) + "/a", content);
  };
  make("new", "1");
  EXPECT_FALSE(core::move_directory(path("new"), path("it")));
  EXPECT_EQ(core::read_whole_file(path("it") + "/a"), "1");
  EXPECT_FALSE(fs::exists(path("new")));
  make("new", "2");
  EXPECT_TRUE(core::move_directory(path("new"), path("it")));
  EXPECT_EQ(core::read_whole_file(path("it") + "/a"), "2");
  EXPECT_EQ(core::read_whole_file(path("new") + "/a"), "1") << "the old one has the other name";
  EXPECT_NE(message<FileError>([&] { core::move_directory(path("no"), path("it")); }).find("cannot exchange '" + path("no")),
            std::string::npos);
  EXPECT_NE(message<FileError>([&] { core::move_directory(path("no"), path("other")); }).find("cannot give '" + path("no")),
            std::string::npos);
  EXPECT_NE(message<FileError>([&] { core::sync_directory(path("no")); }).find("cannot sync '" + path("no")),
            std::string::npos);
}

TEST_F(File, ALockIsHeldByOneUntilItEnds) {
  core::DirectoryLock second;
  {
    core::DirectoryLock first;
    EXPECT_TRUE(first.take(folder));
    EXPECT_FALSE(core::DirectoryLock().take(folder));
  }
  EXPECT_TRUE(second.take(folder));
  EXPECT_EQ(files(), 0U);
}

TEST_F(File, SmallPiecesAreGatheredAndNoneIsLost) {
  std::string wanted;
  core::AtomicFile file(path("a"));
  for (std::size_t n : {1U, 65'535U, 1U, 65'536U, 7U, 200'000U, 0U, 30'000U, 30'000U, 30'000U}) {
    std::string piece(n, '\0');
    for (std::size_t i = 0; i < n; ++i) piece[i] = static_cast<char>((i + wanted.size()) * 31 % 256);
    file.write(piece);
    wanted += piece;
  }
  file.commit();
  EXPECT_EQ(core::read_whole_file(path("a")), wanted);
}

TEST_F(File, APathWithoutAFolderIsTheCurrentOne) {
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  core::write_file_atomically("a", "x");
  fs::current_path(before);
  EXPECT_EQ(core::read_whole_file(path("a")), "x");
}

}  // namespace
