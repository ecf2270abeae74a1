// SPDX-License-Identifier: MIT
// One rank's process as its launcher sees it: started from this program's own file with files
// handed over, watched, and gone when the launcher is. No shell, no signal handlers, no names.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/threads.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// A file that is closed with its owner.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { reset(); }
  void reset() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

/// A child process. Killed with SIGKILL if it still runs when this ends.
struct Process {
  pid_t pid = -1;
  File watch;    ///< readable when it has ended
  File reports;  ///< what it says of its failure
  bool running = false;

  Process() = default;
  Process(Process&&) noexcept = default;
  Process& operator=(Process&&) = delete;
  ~Process() {
    if (!running || pid < 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
};

[[nodiscard]] inline std::vector<std::string> own_arguments() {
  const auto text = core::detail::read_small_file("/proc/self/cmdline");
  std::vector<std::string> out;
  for (std::size_t at = 0; text && at < text->size();) {
    out.emplace_back(text->c_str() + at);
    at += out.back().size() + 1;
  }
  if (out.empty() || text->size() >= 16384) {
    core::fail<FileError>(
        "dist::launch: /proc/self/cmdline cannot be read whole, so ranks cannot be started. ",
        "Is /proc mounted, and the command line below 16 KiB?");
  }
  return out;
}

/// Starts this program's own file again with `arguments`, `variable`=`value` in its environment and
/// `files` open in it. The child ends when the thread that called this does.
[[nodiscard]] inline pid_t start_self(const std::vector<std::string>& arguments,
                                      std::string_view variable, const std::string& value,
                                      const std::vector<int>& files, const sigset_t& signals) {
  // All of it before the fork: a child of a process with threads may only make system calls.
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::string setting = core::text(variable, '=', std::string_view(value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.substr(0, variable.size()) == variable && text.substr(variable.size(), 1) == "=")
      continue;
    envp.push_back(*entry);
  }
  envp.push_back(setting.data());
  envp.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the launcher has died in between
  for (const int file : files)
    fcntl(file, F_SETFD, 0);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(127);
}

/// "was killed by signal 9 (Killed)", "ended with code 3".
[[nodiscard]] inline std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return core::text("ended with code ", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  return core::text("was killed by signal ", number, " (", std::string_view(strsignal(number)), ")",
                    number == SIGKILL ? "; by hand, or is the machine out of memory?" : "");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
