// SPDX-License-Identifier: MIT
// The transport over one stream socket for each pair of ranks: nothing is shared, every byte is
// copied by the kernel. What tests of memory per rank use; shared memory is faster.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/dist/transport/detail/exchange.hpp>
#include <halfstep/dist/transport/detail/process.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

class Sockets final : public Transport {
 public:
  /// files[peer] is connected to that rank's files[rank]; its own entry is no file.
  Sockets(int rank, std::vector<detail::File> files, std::chrono::milliseconds timeout)
      : rank_(rank), files_(std::move(files)), timeout_(timeout) {}

  /// Connected sockets for `ranks` ranks: entry [r] is what rank r is made with.
  /// @throws MemoryError if the system refuses so many.
  [[nodiscard]] static std::vector<std::vector<detail::File>> connect(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    std::vector<std::vector<detail::File>> files(n);
    for (auto& row : files)
      row.resize(n);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = a + 1; b < n; ++b) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
          core::fail<MemoryError>("dist::Sockets: the system refused the sockets of ", ranks,
                                  " ranks (", std::strerror(errno),
                                  "). Raise the limit on open files, or use shared memory.");
        }
        files[a][b] = detail::File(pair[0]);
        files[b][a] = detail::File(pair[1]);
      }
    }
    return files;
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(files_.size()); }
  [[nodiscard]] std::chrono::milliseconds timeout() const override { return timeout_; }
  [[nodiscard]] std::string_view name() const override { return "pipe"; }

  void start(const Label& label, std::span<const Outgoing> out,
             std::span<const Incoming> in) override {
    finish();
    current_ = label;
    exchange_.start(count(), rank_, size(), label, out, in);
    advance();
  }
  void advance() override { exchange_.advance(*this); }
  void finish() override { exchange_.finish(*this); }

  // The link under detail::Exchange.

  std::size_t send_some(int peer, std::span<const std::byte> bytes) {
    if (bytes.empty()) return 0;
    const ssize_t n = send(file(peer), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return moved(n, peer);
  }
  std::size_t receive_some(int peer, std::span<std::byte> bytes) {
    if (bytes.empty()) return 0;
    const ssize_t n = recv(file(peer), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0) fail_gone(peer);
    return moved(n, peer);
  }
  void wait(std::uint64_t senders, std::uint64_t receivers) {
    std::array<pollfd, max_ranks> polled;
    nfds_t count = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const bool out = (senders >> peer & 1U) != 0, in = (receivers >> peer & 1U) != 0;
      if (!out && !in) continue;
      polled[count++] = {file(peer), static_cast<short>((out ? POLLOUT : 0) | (in ? POLLIN : 0)),
                         0};
    }
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    for (;;) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      const int ready = poll(polled.data(), count,
                             static_cast<int>(std::clamp<std::int64_t>(
                                 left.count(), 0, std::numeric_limits<int>::max())));
      if (ready > 0) return;
      if (ready == 0) fail_late(senders | receivers);
      if (errno != EINTR)
        core::fail<PeerError>("dist: rank ", rank_, ": poll failed (", std::strerror(errno), ")");
    }
  }

 private:
  [[nodiscard]] int file(int peer) const { return files_[static_cast<std::size_t>(peer)].number(); }
  std::size_t moved(ssize_t n, int peer) const {
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    fail_gone(peer);
  }
  [[noreturn]] void fail_gone(int peer) const {
    core::fail<PeerError>("dist: rank ", rank_, " cannot go on in ", to_string(current_), ": rank ",
                          peer, " of ", size(), " has ended. The launcher says why.");
  }
  [[noreturn]] void fail_late(std::uint64_t peers) const {
    std::string who;
    for (int peer = 0; peer < size(); ++peer) {
      if ((peers >> peer & 1U) != 0) who += core::text(who.empty() ? "rank " : ", rank ", peer);
    }
    core::fail<TimeoutError>("dist: rank ", rank_, " of ", size(), " waited ", timeout_.count(),
                             " ms in ", to_string(current_), " for ", who,
                             ". Does that process still run, and the same calls as this one?");
  }

  int rank_;
  std::vector<detail::File> files_;
  std::chrono::milliseconds timeout_;
  Label current_;
  detail::Exchange exchange_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
