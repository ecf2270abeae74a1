// SPDX-License-Identifier: MIT
// Whole files read, and whole files written so that nothing half-written ever bears their name.
// Stands in core because data, io and train all need it. Not for: appending to logs, formats.
#pragma once

#include <fcntl.h>
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

/// The bytes of a regular file or pipe. Paths of std::filesystem convert.
///
/// @throws FileError with the path and the system's cause if it cannot be opened or read, or is a
/// directory. An empty file is an empty string: whether that is wrong is the caller's to say.
[[nodiscard]] inline std::string read_whole_file(const std::string& path) {
  const detail::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    fail<FileError>("read_whole_file: cannot open '", path, "': ", detail::cause(errno));
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    fail<FileError>("read_whole_file: cannot look at '", path, "': ", detail::cause(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    fail<FileError>("read_whole_file: '", path, "' is a directory. Name a file in it.");
  }
  // One byte more than its size, so that the read that finds the end needs no larger buffer.
  std::string bytes(static_cast<std::size_t>(std::max<off_t>(status.st_size, 4095)) + 1, '\0');
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

  void write(std::string_view bytes) {
    require_open();
    while (!bytes.empty()) {
      const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) give_up("write", errno);
      bytes.remove_prefix(static_cast<std::size_t>(put));
      written_ += put;
    }
  }
  void write(const void* bytes, std::size_t size) {
    write(std::string_view(static_cast<const char*>(bytes), size));
  }

  /// Syncs the bytes, gives them the name, and syncs the folder. If only that last sync fails the
  /// new file has its name already and is whole, but may be the old one again after a power cut.
  void commit() {
    require_open();
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
  [[noreturn]] void give_up(std::string_view what, int error) {
    if (open_) ::unlink(temporary_.c_str());
    open_ = false;
    fail<FileError>("AtomicFile: cannot ", what, " '", temporary_, "' after ", written_,
                    " bytes: ", detail::cause(error), " '", path_, "' is as it was.");
  }
  void sync_folder() const {
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    detail::Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int error = descriptor.get() < 0 ? errno : 0;
    // Some file systems cannot sync a folder and say EINVAL; they order the rename themselves.
    if (error == 0 && ::fsync(descriptor.get()) != 0 && errno != EINVAL) error = errno;
    if (error != 0) {
      fail<FileError>("AtomicFile: '", path_, "' is written, but its folder could not be synced: ",
                      detail::cause(error));
    }
  }

  std::string path_;
  std::string temporary_;
  detail::Descriptor file_;
  std::int64_t written_ = 0;
  bool open_ = false;
};

/// Writes `bytes` as the whole of `path`, by AtomicFile.
inline void write_file_atomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
