// SPDX-License-Identifier: MIT
// To be preloaded into a program: counts its calls of open, mkdir, write, fsync, close and rename
// that belong to the save of a checkpoint, and lets one of them fail, or kills the process within
// it. Not linked into anything.
//   HALFSTEP_FAULT      fail:CALL:N or kill:CALL:N; CALL is one of the names above, or any
//   HALFSTEP_FAULT_LOG  a file that gets the name of the call that was hit, if one was
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

bool ours[4096];  // which descriptors are of files of a save

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// A temporary file or directory of a checkpoint, or the directory that holds checkpoints when it
/// is synced, which is when its name ends with a slash.
bool in_save(const char* path) {
  if (std::strstr(path, "iteration_") != nullptr && std::strstr(path, ".tmp") != nullptr)
    return true;
  const char* const end = std::strstr(path, "checkpoints/");
  return end != nullptr && std::strcmp(end, "checkpoints/") == 0;
}
bool in_save(int fd) { return fd >= 0 && fd < 4096 && ours[fd]; }

enum class Verdict { pass, fail, die };

/// Counts a call of a save.
Verdict count(const char* name) {
  static int counted = 0;
  const char* const fault = std::getenv("HALFSTEP_FAULT");
  if (fault == nullptr || std::strlen(fault) < 6) return Verdict::pass;
  const char* const colon = std::strchr(fault + 5, ':');
  if (colon == nullptr) return Verdict::pass;
  const auto length = static_cast<std::size_t>(colon - (fault + 5));
  const bool any = length == 3 && std::strncmp(fault + 5, "any", 3) == 0;
  if (!any && (std::strlen(name) != length || std::strncmp(fault + 5, name, length) != 0))
    return Verdict::pass;
  if (++counted != std::atoi(colon + 1)) return Verdict::pass;
  if (const char* const log = std::getenv("HALFSTEP_FAULT_LOG")) {
    const int fd =
        real<int(const char*, int, ...)>("open")(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    static_cast<void>(
        !real<ssize_t(int, const void*, size_t)>("write")(fd, name, std::strlen(name)));
    static_cast<void>(!real<ssize_t(int, const void*, size_t)>("write")(fd, "\n", 1));
    real<int(int)>("close")(fd);
  }
  return std::strncmp(fault, "kill", 4) == 0 ? Verdict::die : Verdict::fail;
}

/// True if the call is to fail; does not return if the process is to die before it.
bool hit(const char* name, int error) {
  const Verdict verdict = count(name);
  if (verdict == Verdict::die) kill(getpid(), SIGKILL);
  if (verdict == Verdict::fail) errno = error;
  return verdict == Verdict::fail;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const bool counts = in_save(path);
  if (counts && hit("open", EMFILE)) return -1;
  const int fd = real<int(const char*, int, ...)>("open")(path, flags, mode);
  if (fd >= 0 && fd < 4096) ours[fd] = counts;
  return fd;
}

int mkdir(const char* path, mode_t mode) {
  if (in_save(path) && hit("mkdir", EACCES)) return -1;
  return real<int(const char*, mode_t)>("mkdir")(path, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  const auto call = real<ssize_t(int, const void*, size_t)>("write");
  if (!in_save(fd)) return call(fd, bytes, size);
  const Verdict verdict = count("write");
  // A death or a full disk in the middle of a write leaves a part of it.
  if (verdict != Verdict::pass) static_cast<void>(!call(fd, bytes, size / 2));
  if (verdict == Verdict::die) kill(getpid(), SIGKILL);
  if (verdict == Verdict::pass) return call(fd, bytes, size);
  errno = ENOSPC;
  return -1;
}

int fsync(int fd) {
  if (in_save(fd) && hit("fsync", EIO)) return -1;
  return real<int(int)>("fsync")(fd);
}

int close(int fd) {
  const bool fails = in_save(fd) && hit("close", EIO);
  if (fd >= 0 && fd < 4096) ours[fd] = false;
  const int result = real<int(int)>("close")(fd);  // a close that fails has closed all the same
  if (!fails) return result;
  errno = EIO;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  if ((in_save(from) || in_save(to)) && hit("rename", EACCES)) return -1;
  return real<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (in_save(from) && hit("rename", EACCES)) return -1;
  return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from,
                                                                              to_folder, to, flags);
}

}  // extern "C"
