// SPDX-License-Identifier: MIT
// Whole files read, and whole files written so that nothing half-written ever bears their name; the
// same for a directory. Stands in core because data, io and train all need it.
// Not for: appending to logs, formats.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

namespace detail {

/// What the system says about an errno, and for the usual ones what to do about it.
[[nodiscard]] inline std::string cause(int error) {
  std::string said = std::system_category().message(error);  // strerror is not thread-safe
  switch (error) {
    case ENOENT: return said + ". Is the path right?";
    case ENOSPC:
    case EDQUOT: return said + ". Free some space, or write elsewhere.";
    case EACCES:
    case EPERM:
    case EROFS: return said + ". May this user write or read there?";
    default: return said + ".";
  }
}

/// An open file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  /// Closes now; the errno of it, or 0. A close can be the first to report a full network disk.
  [[nodiscard]] int close() { return ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno; }

 private:
  int fd_;
};

}  // namespace detail

/// A regular file, open to be read. Nothing else is: a pipe may have no writer, and gives its bytes
/// once; a device may have no end.
class InputFile {
 public:
  /// @throws FileError in the name of `reader`, at once, with the path and the system's cause, or
  /// with what it is.
  InputFile(std::string_view reader, const std::string& path)
      // A regular file never blocks, and of what is none even opening must not.
      : file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    if (file_.get() < 0 || ::fstat(file_.get(), &status_) != 0) {
      fail<FileError>(reader, ": cannot open '", path, "': ", detail::cause(errno));
    }
    if (S_ISDIR(status_.st_mode)) {
      fail<FileError>(reader, ": '", path, "' is a directory. Name a file in it.");
    }
    if (!S_ISREG(status_.st_mode)) {
      fail<FileError>(reader, ": '", path, "' is a ",
                      S_ISFIFO(status_.st_mode) ? "pipe" : "device",
                      ", not a regular file. Write what it gives to a file, and name that.");
    }
  }
  [[nodiscard]] int get() const { return file_.get(); }
  [[nodiscard]] const struct stat& status() const { return status_; }

 private:
  detail::Descriptor file_;
  struct stat status_{};
};

/// The bytes of a regular file. Paths of std::filesystem convert.
///
/// @throws FileError with the path and the system's cause if it cannot be opened or read, or is a
/// directory, pipe or device. An empty file is an empty string: whether that is wrong is the
/// caller's to say.
[[nodiscard]] inline std::string read_whole_file(const std::string& path) {
  const InputFile file("read_whole_file", path);
  // One byte more than its size, so that the read that finds the end needs no larger buffer.
  const off_t size = std::max<off_t>(file.status().st_size, 4095);
  std::string bytes(static_cast<std::size_t>(size) + 1, '\0');
  std::size_t have = 0;
  for (;;) {
    if (have == bytes.size()) bytes.resize(2 * bytes.size());
    const ssize_t got = ::read(file.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail<FileError>("read_whole_file: cannot read '", path, "' after ", have,
                      " bytes: ", detail::cause(errno));
    }
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

/// Makes the names within a directory survive a power cut.
/// @throws FileError with the path and the system's cause.
inline void sync_directory(const std::string& path) {
  const detail::Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int error = descriptor.get() < 0 ? errno : 0;
  // Some file systems cannot sync a directory and say EINVAL; they order renames themselves.
  if (error == 0 && ::fsync(descriptor.get()) != 0 && errno != EINVAL) error = errno;
  if (error != 0) {
    fail<FileError>("sync_directory: cannot sync '", path, "': ", detail::cause(error));
  }
}

/// A file that appears under its name whole, at commit(), or not at all.
///
/// The bytes go to `path` + ".tmp" beside it, are synced, and the name is moved over the old file,
/// which stays as it was until then. A writer that is killed leaves at most that .tmp, which the
/// next one overwrites: so one process at a time may write a given path.
///
/// @throws FileError with path and cause from every member; the .tmp is removed then, and by the
/// destructor if commit() was not reached.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path)
      : path_(std::move(path)), temporary_(path_ + ".tmp"), file_(open()) {
    if (file_.get() < 0) give_up("create", errno);
    open_ = true;
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (open_) ::unlink(temporary_.c_str());
  }

  /// Small pieces are gathered, so an error may come with a later one or with commit().
  void write(std::string_view bytes) {
    require_open();
    constexpr std::size_t enough = 1 << 16;
    if (gathered_.size() + bytes.size() >= enough) flush();
    if (bytes.size() >= enough) {
      put(bytes);
    } else {
      gathered_ += bytes;
    }
  }
  void write(const void* bytes, std::size_t size) {
    write(std::string_view(static_cast<const char*>(bytes), size));
  }

  /// Syncs the bytes, gives them the name, and syncs the folder. If only that last sync fails the
  /// new file has its name already and is whole, but may be the old one again after a power cut.
  void commit() {
    require_open();
    flush();
    if (::fsync(file_.get()) != 0) give_up("sync", errno);
    if (const int error = file_.close(); error != 0) give_up("close", error);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) give_up("rename", errno);
    open_ = false;
    sync_folder();
  }

 private:
  [[nodiscard]] int open() const {
    struct stat status{};
    if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      // A rename would replace a device by a file.
      fail<FileError>("AtomicFile: '", path_,
                      "' is there and is not a regular file. Name a file to write.");
    }
    return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  void require_open() const {
    if (!open_) fail<StateError>("AtomicFile: '", path_, "' is written or given up already");
  }
  void flush() {
    put(gathered_);
    gathered_.clear();
  }
  void put(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) give_up("write", errno);
      bytes.remove_prefix(static_cast<std::size_t>(count));
      written_ += count;
    }
  }
  [[noreturn]] void give_up(std::string_view what, int error) {
    if (open_) ::unlink(temporary_.c_str());
    open_ = false;
    fail<FileError>("AtomicFile: cannot ", what, " '", temporary_, "' after ", written_,
                    " bytes: ", detail::cause(error), " '", path_, "' is as it was.");
  }
  void sync_folder() const {
    const std::size_t slash = path_.rfind('/');
    try {
      sync_directory(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
    } catch (const FileError& error) {
      fail<FileError>("AtomicFile: '", path_, "' is written, but its folder is not safe yet: ",
                      error.what());
    }
  }

  std::string path_;
  std::string temporary_;
  detail::Descriptor file_;
  std::string gathered_;
  std::int64_t written_ = 0;
  bool open_ = false;
};

/// Writes `bytes` as the whole of `path`, by AtomicFile.
inline void write_file_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

/// Gives the directory `from` the name `to` beside it, in one step, and syncs the folder that holds
/// them. A directory that had the name has `from` afterwards: who needs no old one removes that.
/// True if there was one.
///
/// At every moment `to` is the old directory or the new one, whole; where the file system cannot
/// exchange two names there is a moment with neither.
/// @throws FileError with the paths and the system's cause.
inline bool move_directory(const std::string& from, const std::string& to) {
  const auto rename = [&](const std::string& a, const std::string& b) {
    if (::rename(a.c_str(), b.c_str()) != 0) {
      fail<FileError>("move_directory: cannot give '", a, "' the name '", b,
                      "': ", detail::cause(errno));
    }
  };
  struct stat status{};
  const bool replaces = ::lstat(to.c_str(), &status) == 0;
  if (!replaces) {
    rename(from, to);
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) {
      fail<FileError>("move_directory: cannot exchange '", from, "' and '", to,
                      "': ", detail::cause(errno));
    }
    const std::string old = from + ".old";
    rename(to, old);
    rename(from, to);
    rename(old, from);
  }
  const std::size_t slash = to.rfind('/');
  sync_directory(slash == std::string::npos ? "." : to.substr(0, slash + 1));
  return replaces;
}

/// Keeps other processes that ask for the same out of a directory, as long as it lives. Held on the
/// directory itself, so that no file is left behind, and a kill releases it.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  /// False if another holds it. Where directories cannot be opened or locked (some network file
  /// systems) nobody is kept out.
  [[nodiscard]] bool take(const std::string& directory) {
    descriptor_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
