// SPDX-License-Identifier: MIT
// The launcher's watch over the processes of its ranks: waits for them, hands signals on, and ends
// the others once one has failed. Not for starting them (launch.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/dist/transport/detail/process.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// What the first letter of a rank's report says of its end.
inline constexpr char own_failure = 'o', failure_of_a_peer = 'p', code_returned = 'c';

/// Waits for the ranks' processes, and ends the others once one has failed.
class Watch {
 public:
  Watch(std::vector<Process> ranks, const Segment* segment, File signals)
      : ranks_(std::move(ranks)), segment_(segment), signals_(std::move(signals)) {}

  /// The exit code of the run: the largest that a rank returned, unless one failed; tells what
  /// failed first on standard error.
  [[nodiscard]] int wait() {
    while (running_any()) {
      std::array<pollfd, max_ranks + 1> polled;
      nfds_t count = 0;
      polled[count++] = {signals_.number(), POLLIN, 0};
      for (const Process& rank : ranks_) {
        if (rank.running) polled[count++] = {rank.watch.number(), POLLIN, 0};
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      const bool ending = failed_ || returned_ != 0;
      const int patience = ending ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1;
      if (poll(polled.data(), count, patience) == 0) {
        for (const Process& rank : ranks_) {
          if (rank.running) kill(rank.pid, SIGKILL);
        }
        deadline_ = Clock::now() + std::chrono::hours(1);
        ended_by_us_ = true;
      }
      if (polled[0].revents != 0) forward();
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        look(i);
    }
    // Who only stopped because a rank had returned a code is no cause.
    if (!failed_ || (secondary_ && returned_ != 0)) return returned_;
    static_cast<void>(std::fprintf(stderr, "halfstep: %s\n", cause_.c_str()));
    return code_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// How long ranks may take to end by themselves after one has failed.
  static constexpr std::chrono::milliseconds grace{1000};

  [[nodiscard]] bool running_any() const {
    for (const Process& rank : ranks_) {
      if (rank.running) return true;
    }
    return false;
  }

  void look(std::size_t number) {
    Process& rank = ranks_[number];
    int status = 0;
    if (!rank.running) return;
    const pid_t ended = waitpid(rank.pid, &status, WNOHANG);
    const bool untold = ended < 0 && errno == ECHILD;  // SIGCHLD is ignored, or somebody else waits
    if (ended != rank.pid && !untold) return;
    rank.running = false;
    const int index = static_cast<int>(number);
    if (status == 0 && !untold) {
      if (segment_ != nullptr) segment_->end(index);
      return;
    }
    std::array<char, 4096> report;
    const ssize_t n = read(rank.reports.number(), report.data(), report.size());
    const std::string_view text(report.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
    if (!text.empty() && text[0] == code_returned) {
      if (!failed_ && returned_ == 0) deadline_ = Clock::now() + grace;
      returned_ = std::max(returned_, WEXITSTATUS(status));
      if (segment_ != nullptr) segment_->end(index);
      return;
    }
    // Who stopped because of another rank is not the cause, unless no other turns up.
    const bool of_a_peer = ended_by_us_ || (!text.empty() && text[0] == failure_of_a_peer);
    const std::string how =
        !text.empty() ? core::text("failed: ", text.substr(1))
        : untold      ? "ended, and its launcher was not told how. Does it ignore SIGCHLD?"
                      : how_it_ended(status);
    if (!failed_ || (secondary_ && !of_a_peer)) {
      cause_ = core::text("rank ", index, " of ", ranks_.size(), " (process ", rank.pid, ") ", how);
      code_ = untold              ? failed_rank_code
              : WIFEXITED(status) ? WEXITSTATUS(status)
                                  : 128 + WTERMSIG(status);
      secondary_ = of_a_peer;
    }
    if (!failed_ && returned_ == 0) deadline_ = Clock::now() + grace;
    failed_ = true;
    if (segment_ != nullptr) segment_->fail(index, how);
  }

  /// A signal that was sent to the launcher alone: the ranks get it. One of the terminal they have.
  void forward() {
    signalfd_siginfo info;
    if (read(signals_.number(), &info, sizeof info) != sizeof info || info.ssi_code == SI_KERNEL)
      return;
    for (const Process& rank : ranks_) {
      if (rank.running) kill(rank.pid, static_cast<int>(info.ssi_signo));
    }
  }

  std::vector<Process> ranks_;
  const Segment* segment_;
  File signals_;
  bool failed_ = false, secondary_ = false, ended_by_us_ = false;
  Clock::time_point deadline_{};
  std::string cause_;
  int code_ = 0, returned_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
