// SPDX-License-Identifier: MIT
// What moves bytes between the ranks of one group: the role that collectives are written against,
// in two tiers (messages; shared memory, where there is one). Not for arithmetic: dist/collective/.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Ranks of one group at most: sets of peers are 64-bit masks.
inline constexpr int max_ranks = 64;

/// What `launch` returns where a rank threw: EX_SOFTWARE of sysexits.h.
inline constexpr int failed_rank_code = 70;

/// What a rank says it is doing. Ranks that meet compare their labels before they use each other's
/// data, so that two different operations, or one with different sizes, end in an error on both.
struct Label {
  std::array<char, 16> operation{};  ///< "all_reduce"
  std::array<char, 8> format{};      ///< of the elements: "bf16"; "bytes" where it does not matter
  std::array<char, 8> detail{};      ///< "sum", "root 2"
  std::uint64_t number = 0;          ///< of the operation in its group, from 1
  std::int64_t count = 0;            ///< elements
  std::uint64_t cut = 0;             ///< hash of counts per rank, and of the chosen algorithm

  friend bool operator==(const Label&, const Label&) = default;
};

namespace detail {
template <std::size_t N>
[[nodiscard]] std::array<char, N> word(std::string_view text) {
  std::array<char, N> out{};
  std::copy_n(text.begin(), std::min(text.size(), N - 1), out.begin());
  return out;
}
template <std::size_t N>
[[nodiscard]] std::string_view word(const std::array<char, N>& text) {
  return {text.data(),
          static_cast<std::size_t>(std::find(text.begin(), text.end(), '\0') - text.begin())};
}
}  // namespace detail

[[nodiscard]] inline Label label(std::string_view operation, std::string_view format,
                                 std::string_view detail, std::uint64_t number, std::int64_t count,
                                 std::uint64_t cut = 0) {
  return {detail::word<16>(operation),
          detail::word<8>(format),
          detail::word<8>(detail),
          number,
          count,
          cut};
}
/// "all_reduce 417 (sum of 1024 bf16)".
[[nodiscard]] inline std::string to_string(const Label& label) {
  if (label.number == 0) return "nothing yet";
  const std::string_view detail = detail::word(label.detail);
  return core::text(detail::word(label.operation), ' ', label.number, " (", detail,
                    detail.empty() ? "" : " of ", label.count, ' ', detail::word(label.format),
                    ')');
}

/// The message of ranks that met with different labels.
[[noreturn]] inline void fail_mismatch(int rank, const Label& mine, int peer, const Label& theirs) {
  core::fail<MismatchError>(
      "dist: rank ", rank, " is in ", to_string(mine), ", but rank ", peer, " is in ",
      to_string(theirs),
      mine.cut != theirs.cut && to_string(mine) == to_string(theirs)
          ? ", with other counts per rank or another algorithm"
          : "",
      ". Do all ranks run the same calls in the same order, with the same sizes?");
}

/// A message to one peer, and the room for one from a peer.
struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

/// What this rank moved since the transport was made.
struct Traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;      ///< in messages, their labels not counted
  std::uint64_t bytes_received = 0;  ///< as above
  std::uint64_t bytes_read = 0;      ///< from buffers in shared memory, one's own included
  std::uint64_t bytes_written = 0;   ///< to them
  std::uint64_t bytes_staged = 0;  ///< copied in and out because a buffer was not in shared memory

  Traffic& operator+=(const Traffic& other) {
    messages_sent += other.messages_sent;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    bytes_staged += other.bytes_staged;
    return *this;
  }
  /// Since `before`.
  [[nodiscard]] friend Traffic operator-(const Traffic& now, const Traffic& before) {
    return {now.messages_sent - before.messages_sent,   now.bytes_sent - before.bytes_sent,
            now.bytes_received - before.bytes_received, now.bytes_read - before.bytes_read,
            now.bytes_written - before.bytes_written,   now.bytes_staged - before.bytes_staged};
  }
};

class SharedMemory;

/// The role of a transport. An implementer promises:
///   - An exchange sends and receives all of its messages, in whatever order they can move, so two
///     ranks that both send first do not wait for each other. `start` moves what moves without
///     waiting, and so does `advance`; `finish` returns when its own sends are handed over and its
///     receives are complete, at once if nothing is under way. Until then its buffers are the
///     transport's. `start` finishes what is under way. At most one message a peer and direction.
///   - Between one pair of ranks messages arrive in the order in which they were sent. Each carries
///     its sender's label and length; the receiver throws MismatchError, naming both ranks and both
///     labels, before it writes a byte of one that differs from its own.
///   - A peer that ended or failed gives PeerError with its number; one that does not come within
///     `timeout()`, TimeoutError. After an error the transport is of no further use.
///   - All ranks call the same operations in the same order, one thread at a time.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const = 0;
  /// "threads", "shm", "pipe": for logs.
  [[nodiscard]] virtual std::string_view name() const = 0;

  virtual void start(const Label& label, std::span<const Outgoing> out,
                     std::span<const Incoming> in) = 0;
  virtual void advance() = 0;
  virtual void finish() = 0;
  void exchange(const Label& label, std::span<const Outgoing> out, std::span<const Incoming> in) {
    start(label, out, in);
    finish();
  }

  /// The second tier: the memory that all ranks map; null where there is none.
  [[nodiscard]] virtual SharedMemory* shared() { return nullptr; }

  [[nodiscard]] const Traffic& traffic() const { return traffic_; }
  /// For what moves bytes on this transport's behalf.
  [[nodiscard]] Traffic& count() { return traffic_; }

  /// The number of the operation of that name, which begins: one more than the last one's,
  /// whichever group it was of. Until `end` there may be no other.
  /// @throws StateError if there is one, of another thread.
  [[nodiscard]] std::uint64_t begin(std::string_view name) {
    bool idle = false;
    if (!busy_.compare_exchange_strong(idle, true)) {
      core::fail<StateError>("dist: two threads of rank ", rank(),
                             " are in collectives over one transport, the second in ", name,
                             ". Give each thread that communicates a transport of its own.");
    }
    return ++operations_;
  }
  void end() { busy_.store(false); }

 private:
  Traffic traffic_;
  std::uint64_t operations_ = 0;
  std::atomic<bool> busy_{false};
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
