// SPDX-License-Identifier: MIT
#include <halfstep/core/available_memory.hpp>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>

namespace {
using namespace halfstep::core;

/// A directory as /sys/fs/cgroup has them, written for one test.
class CgroupMemory : public testing::Test {
 protected:
  CgroupMemory() {
    std::string pattern = testing::TempDir() + "halfstep_cgroup_XXXXXX";
    root = mkdtemp(pattern.data());
  }
  ~CgroupMemory() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << '\n';
  }
  std::string root;
};

TEST_F(CgroupMemory, OfVersion2IsTheLeastThatALimitOnTheWayUpLeaves) {
  write("/a/memory.max", "1000000");
  write("/a/memory.current", "400000");
  write("/a/b/memory.max", "max");
  write("/a/b/memory.current", "300000");
  EXPECT_EQ(cgroup_memory(root, "0::/a/b\n"), 600000);
  write("/a/b/memory.max", "350000");
  EXPECT_EQ(cgroup_memory(root, "0::/a/b\n"), 50000);
  EXPECT_EQ(cgroup_memory(root, "0::/a\n"), 600000);
  EXPECT_EQ(cgroup_memory(root, "0::/\n"), std::nullopt);
}
TEST_F(CgroupMemory, OfVersion1IsOfTheMemoryControllerAlone) {
  write("/memory/a/memory.limit_in_bytes", "5000");
  write("/memory/a/memory.usage_in_bytes", "1000");
  write("/cpu/a/memory.limit_in_bytes", "7");
  write("/cpu/a/memory.usage_in_bytes", "1");
  EXPECT_EQ(cgroup_memory(root, "9:memory:/a\n4:cpu:/a\n"), 4000);
  EXPECT_EQ(cgroup_memory(root, "4:cpu:/a\n"), std::nullopt);
  // What no limit looks like there.
  write("/memory/a/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_GT(cgroup_memory(root, "9:memory:/a\n"), std::int64_t{1} << 60);
}
TEST_F(CgroupMemory, InAContainerItsOwnGroupIsTheRootOfTheMount) {
  write("/memory.max", "3000");
  write("/memory.current", "1000");
  EXPECT_EQ(cgroup_memory(root, "0::/kubepods/pod12/abc\n"), 2000);
}
TEST_F(CgroupMemory, CountsFilePagesThatNobodyReadsAsFree) {
  write("/a/memory.max", "3000");
  write("/a/memory.current", "2500");
  write("/a/memory.stat", "anon 100\ninactive_file 2000\nactive_file 7");
  EXPECT_EQ(cgroup_memory(root, "0::/a\n"), 2500);
  write("/memory/b/memory.limit_in_bytes", "3000");
  write("/memory/b/memory.usage_in_bytes", "2500");
  write("/memory/b/memory.stat", "inactive_file 1\ntotal_inactive_file 300");
  EXPECT_EQ(cgroup_memory(root, "9:memory:/b\n"), 800);
}
TEST_F(CgroupMemory, BeyondItsLimitIsNothingLeftAndNonsenseIsNoLimit) {
  write("/a/memory.max", "3000");
  write("/a/memory.current", "4000");
  EXPECT_EQ(cgroup_memory(root, "0::/a\n"), 0);
  write("/a/memory.max", "x");
  EXPECT_EQ(cgroup_memory(root, "0::/a\n"), std::nullopt);
}

TEST(AvailableMemory, IsTheSmallerOfSystemAndGroupsAndUnknownWithoutTheSystemsWord) {
  const std::string text = "MemTotal: 9000 kB\nMemFree:  10 kB\nMemAvailable:    2000 kB\n";
  EXPECT_EQ(available_memory(text, std::nullopt), 2048000);
  EXPECT_EQ(available_memory(text, 5000), 5000);
  EXPECT_EQ(available_memory(text, 3000000), 2048000);
  EXPECT_EQ(available_memory("", std::nullopt), std::nullopt);
  EXPECT_EQ(available_memory("MemAvailable: x", 5000), std::nullopt);
}
TEST(AvailableMemory, IsKnownHere) { EXPECT_GT(available_memory(), 0); }
TEST(AvailableMemory, FifteenSixteenthsOfItMayBeTakenAndNotAByteMore) {
  EXPECT_NO_THROW(require_memory(1500, "a test", 1600));
  EXPECT_NO_THROW(require_memory(0, "a test", 0));
  EXPECT_THROW(require_memory(1, "a test", 1), halfstep::MemoryError);
  EXPECT_THROW(require_memory(1, "a test", std::nullopt), halfstep::MemoryError);
  try {
    require_memory(1501, "a test", 1600);
    ADD_FAILURE() << "taken";
  } catch (const halfstep::MemoryError& error) {
    EXPECT_STREQ(error.what(),
                 "require_memory: a test needs 1501 bytes, but of the 1600 that this system and "
                 "its control groups have left, 1500 may be taken. Is a size per rank meant for "
                 "all of them?");
  }
}
}  // namespace
