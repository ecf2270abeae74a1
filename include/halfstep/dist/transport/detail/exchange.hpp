// SPDX-License-Identifier: MIT
// The loop behind every transport's exchange: moves whatever can move, and waits only when nothing
// can. Written against streams of bytes, one a peer and direction; knows no transport.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// What stands before the bytes of a message.
struct Frame {
  Label label;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Frame) == 64);

/// One message on its way: first its frame, then its bytes.
template <class Byte>
struct Transfer {
  Frame frame;
  std::span<Byte> bytes;
  std::size_t moved = 0;  // of frame and bytes together
  [[nodiscard]] bool done() const { return moved == sizeof(Frame) + bytes.size(); }
};

inline void check_peers(const char* direction, int peer, std::uint64_t& seen, int rank, int size) {
  const bool valid = peer >= 0 && peer < size && peer != rank;
  if (!valid || (seen >> peer & 1U) != 0) {
    core::fail<OptionError>("Transport::exchange: rank ", rank, " of ", size, " has a message ",
                            direction, " rank ", peer,
                            valid ? " twice; one a peer and call." : ", wanted another rank.");
  }
  seen |= std::uint64_t{1} << peer;
}

/// The messages of one exchange on their way. `link` offers
///   size_t send_some(peer, span)     takes as many bytes as fit now
///   size_t receive_some(peer, span)  gives as many bytes as have come
///   wait(senders, receivers)         until one of these sets of peers can move, or it throws
/// Whatever the link or a message that does not fit throws ends the exchange.
class Exchange {
 public:
  /// Counts the messages in `traffic`, as if all had moved, and moves none.
  void start(Traffic& traffic, int rank, int size, const Label& label,
             std::span<const Outgoing> out, std::span<const Incoming> in) {
    std::uint64_t senders = 0, receivers = 0;
    for (const Outgoing& message : out) {
      check_peers("to", message.to, senders, rank, size);
      sends_[static_cast<std::size_t>(message.to)] = {{label, message.bytes.size()}, message.bytes};
      ++traffic.messages_sent;
      traffic.bytes_sent += message.bytes.size();
    }
    for (const Incoming& message : in) {
      check_peers("from", message.from, receivers, rank, size);
      receives_[static_cast<std::size_t>(message.from)] = {{}, message.bytes};
      traffic.bytes_received += message.bytes.size();
    }
    rank_ = rank;
    label_ = label;
    senders_ = senders;
    receivers_ = receivers;
  }
  /// Moves what can move now.
  template <class Link>
  void advance(Link& link) {
    guarded([&] { static_cast<void>(move(link)); });
  }
  /// Moves all that is left, none if nothing was started.
  template <class Link>
  void finish(Link& link) {
    guarded([&] {
      while ((senders_ | receivers_) != 0) {
        if (!move(link)) link.wait(senders_, receivers_);
      }
    });
  }

 private:
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (...) {
      senders_ = receivers_ = 0;
      throw;
    }
  }
  template <class Link>
  [[nodiscard]] bool move(Link& link) {
    bool moved = false;
    for (std::uint64_t rest = senders_; rest != 0; rest &= rest - 1) {
      moved = send(link, std::countr_zero(rest)) || moved;
    }
    for (std::uint64_t rest = receivers_; rest != 0; rest &= rest - 1) {
      moved = receive(link, std::countr_zero(rest)) || moved;
    }
    return moved;
  }
  template <class Link>
  [[nodiscard]] bool send(Link& link, int peer) {
    auto& transfer = sends_[static_cast<std::size_t>(peer)];
    const std::size_t before = transfer.moved;
    if (transfer.moved < sizeof(Frame)) {
      const auto frame = std::as_bytes(std::span(&transfer.frame, 1));
      transfer.moved += link.send_some(peer, frame.subspan(transfer.moved));
    }
    if (transfer.moved >= sizeof(Frame) && !transfer.done()) {
      transfer.moved +=
          link.send_some(peer, transfer.bytes.subspan(transfer.moved - sizeof(Frame)));
    }
    if (transfer.done()) senders_ &= ~(std::uint64_t{1} << peer);
    return transfer.moved != before;
  }
  template <class Link>
  [[nodiscard]] bool receive(Link& link, int peer) {
    auto& transfer = receives_[static_cast<std::size_t>(peer)];
    const std::size_t before = transfer.moved;
    if (transfer.moved < sizeof(Frame)) {
      const auto frame = std::as_writable_bytes(std::span(&transfer.frame, 1));
      transfer.moved += link.receive_some(peer, frame.subspan(transfer.moved));
      if (transfer.moved == sizeof(Frame)) {
        if (!(transfer.frame.label == label_))
          fail_mismatch(rank_, label_, peer, transfer.frame.label);
        if (transfer.frame.bytes != transfer.bytes.size()) {
          core::fail<MismatchError>("dist: rank ", rank_, " wants ", transfer.bytes.size(),
                                    " bytes of rank ", peer, " in ", to_string(label_),
                                    ", which sent ", transfer.frame.bytes,
                                    ". Do all ranks give the same counts?");
        }
      }
    }
    if (transfer.moved >= sizeof(Frame) && !transfer.done()) {
      transfer.moved +=
          link.receive_some(peer, transfer.bytes.subspan(transfer.moved - sizeof(Frame)));
    }
    if (transfer.done()) receivers_ &= ~(std::uint64_t{1} << peer);
    return transfer.moved != before;
  }

  std::array<Transfer<const std::byte>, max_ranks> sends_;
  std::array<Transfer<std::byte>, max_ranks> receives_;
  std::uint64_t senders_ = 0, receivers_ = 0;  // peers with which something is left to move
  int rank_ = 0;
  Label label_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
