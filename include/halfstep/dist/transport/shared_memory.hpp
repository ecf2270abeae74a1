// SPDX-License-Identifier: MIT
// The transport over a segment that all ranks map: messages through mailboxes, and the second tier,
// in which ranks read and write each other's buffers between two barriers. The same protocol for
// processes and for threads, where ThreadSanitizer sees it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/transport/detail/exchange.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

struct WaitOptions {
  std::chrono::milliseconds timeout{300'000};  ///< for another rank, in any one wait
  bool crowded = false;                        ///< more threads of ranks than CPUs: do not spin
};

/// Waiting spins for some microseconds and then sleeps on a futex of this rank's own. A rank that
/// finds another asleep wakes it: the waiter says so (asleep) and looks again; the other first
/// writes what is waited for and then looks whether it sleeps. All four are sequentially
/// consistent, so one of the two sees the other.
class SharedMemory final : public Transport {
 public:
  /// The segment must outlive it.
  SharedMemory(Segment& segment, int rank, std::string_view name, const WaitOptions& options = {})
      : segment_(segment), rank_(rank), size_(segment.ranks()), name_(name), options_(options) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const override { return options_.timeout; }
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] SharedMemory* shared() override { return this; }

  void start(const Label& label, std::span<const Outgoing> out,
             std::span<const Incoming> in) override {
    finish();
    current_ = label;
    exchange_.start(count(), rank_, size_, label, out, in);
    advance();
  }
  void advance() override { exchange_.advance(*this); }
  void finish() override { exchange_.finish(*this); }

  /// Room for n elements in this rank's arena, at a multiple of 128 bytes; kept as long as the
  /// segment. Collectives on such buffers copy nothing.
  /// @throws MemoryError if the arena is full.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> allocate(std::int64_t n) {
    return take<T>(n, "allocate", segment_.arena(rank_), used_, "arena");
  }
  /// The same for all ranks together, which make the same calls in the same order and are given the
  /// same memory.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> allocate_common(std::int64_t n) {
    return take<T>(n, "allocate_common", segment_.common(), common_used_,
                   "common");
  }

  template <class T>
  [[nodiscard]] bool has_room(std::int64_t n) const {
    return core::round_up(n * std::int64_t{sizeof(T)}, detail::line_pair) <=
           std::ssize(segment_.arena(rank_)) - used_;
  }
  /// Whether allocate_common of n elements would succeed.
  template <class T>
  [[nodiscard]] bool has_common_room(std::int64_t n) const {
    return core::round_up(n * std::int64_t{sizeof(T)}, detail::line_pair) <=
           std::ssize(segment_.common()) - common_used_;
  }

  // The second tier, for collectives. An operation is: post; one or more meetings, between which
  // the ranks touch each other's memory by an agreed plan.

  /// Begins an operation on `data`, which may lie anywhere: the label and the place are published.
  void post(const Label& label, std::span<const std::byte> data) {
    current_ = label;
    detail::Slot& slot = segment_.control(rank_).slots[++posts_ % 2];
    slot.label = label;
    slot.offset = offset_of(data);
  }
  /// Returns when every rank has come to its meeting of that number. What others wrote before
  /// theirs can be read, what they read before can be overwritten.
  void meet() {
    const std::uint64_t phase = ++phase_;
    segment_.control(rank_).phase.store(phase);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_ && segment_.control(peer).asleep.load() != 0) segment_.wake(peer);
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::atomic<std::uint64_t>& theirs = segment_.control(peer).phase;
      wait_until([&] { return theirs.load() >= phase; }, std::uint64_t{1} << peer);
    }
  }
  /// After the first meeting: throws MismatchError unless all ranks posted the same label.
  void compare_labels() {
    for (int peer = 0; peer < size_; ++peer) {
      const Label& theirs = slot(peer).label;
      if (!(theirs == current_)) fail_mismatch(rank_, current_, peer, theirs);
    }
  }
  /// Where that rank's data lies, of `bytes`; null if not in the segment.
  [[nodiscard]] std::byte* posted(int peer, std::int64_t bytes) const {
    const std::int64_t offset = slot(peer).offset;
    if (offset < 0 || offset + bytes > std::ssize(segment_.bytes())) return nullptr;
    return segment_.bytes().data() + offset;
  }
  [[nodiscard]] bool all_posted_here() const {
    for (int peer = 0; peer < size_; ++peer) {
      if (slot(peer).offset < 0) return false;
    }
    return true;
  }
  /// Room beside the control words: Segment::stage_bytes in two halves, Segment::inline_bytes for
  /// the operation of that number.
  [[nodiscard]] std::byte* stage(int peer, std::uint64_t which) const {
    return segment_.stage(peer, which);
  }
  [[nodiscard]] std::byte* inline_data(int peer) const {
    return segment_.inline_data(peer, posts_);
  }

  // The link under detail::Exchange.

  std::size_t send_some(int peer, std::span<const std::byte> bytes) {
    detail::Mailbox& box = segment_.mailbox(rank_, peer);
    const std::uint64_t written = box.written.load(std::memory_order_relaxed);
    const std::uint64_t room = detail::Mailbox::capacity - (written - box.read.load());
    return move(bytes.size(), room, written, box.written, peer,
                [&](std::uint64_t at, std::size_t from, std::size_t n) {
                  std::memcpy(box.data + at, bytes.data() + from, n);
                });
  }
  std::size_t receive_some(int peer, std::span<std::byte> bytes) {
    detail::Mailbox& box = segment_.mailbox(peer, rank_);
    const std::uint64_t read = box.read.load(std::memory_order_relaxed);
    const std::uint64_t there = box.written.load() - read;
    return move(bytes.size(), there, read, box.read, peer,
                [&](std::uint64_t at, std::size_t from, std::size_t n) {
                  std::memcpy(bytes.data() + from, box.data + at, n);
                });
  }
  void wait(std::uint64_t senders, std::uint64_t receivers) {
    wait_until(
        [&] {
          for (int peer = 0; peer < size_; ++peer) {
            if ((senders >> peer & 1U) != 0) {
              const detail::Mailbox& box = segment_.mailbox(rank_, peer);
              if (box.written.load() - box.read.load() < detail::Mailbox::capacity) return true;
            }
            if ((receivers >> peer & 1U) != 0) {
              const detail::Mailbox& box = segment_.mailbox(peer, rank_);
              if (box.written.load() != box.read.load()) return true;
            }
          }
          return false;
        },
        senders | receivers);
  }

 private:
  /// Ticks of the time-stamp counter, 2 to 4 a nanosecond.
  static constexpr std::uint64_t yield_ticks = 4'000;
  static constexpr std::uint64_t spin_limit = 100'000;

  template <class T>
  [[nodiscard]] std::span<T> take(std::int64_t n, std::string_view function,
                                  std::span<std::byte> from, std::int64_t& used,
                                  std::string_view name) const {
    const std::int64_t bytes = core::round_up(n * std::int64_t{sizeof(T)}, detail::line_pair);
    if (n < 0 || bytes > std::ssize(from) - used) {
      core::fail<MemoryError>("SharedMemory::", function, ": rank ", rank_, " wants ", bytes,
                              " bytes, but ", used, " of ", from.size(), ' ', name,
                              " bytes are taken. Ask for more in LaunchOptions::", name, "_bytes.");
    }
    T* const data = reinterpret_cast<T*>(from.data() + used);
    used += bytes;
    return {data, static_cast<std::size_t>(n)};
  }

  [[nodiscard]] const detail::Slot& slot(int peer) const {
    return segment_.control(peer).slots[posts_ % 2];
  }
  [[nodiscard]] std::int64_t offset_of(std::span<const std::byte> data) const {
    const std::span<const std::byte> all = segment_.bytes();
    const auto at = reinterpret_cast<std::uintptr_t>(data.data()) -
                    reinterpret_cast<std::uintptr_t>(all.data());
    return at <= all.size() && data.size() <= all.size() - at ? static_cast<std::int64_t>(at) : -1;
  }

  template <class Copy>
  std::size_t move(std::size_t wanted, std::uint64_t possible, std::uint64_t position,
                   std::atomic<std::uint64_t>& counter, int peer, Copy copy) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, possible));
    if (n == 0) return 0;
    const std::uint64_t at = position % detail::Mailbox::capacity;
    const auto first =
        static_cast<std::size_t>(std::min<std::uint64_t>(n, detail::Mailbox::capacity - at));
    copy(at, 0, first);
    copy(0, first, n - first);
    counter.store(position + n);
    if (segment_.control(peer).asleep.load() != 0) segment_.wake(peer);
    return n;
  }

  template <class Ready>
  void wait_until(Ready ready, std::uint64_t peers) {
    const std::uint64_t start = __builtin_ia32_rdtsc();
    std::uint64_t yield_at = options_.crowded ? 0 : yield_ticks;
    for (;;) {
      if (ready()) return;
      const std::uint64_t ticks = __builtin_ia32_rdtsc() - start;
      if (ticks >= spin_limit) break;
      if (ticks >= yield_at) {
        sched_yield();  // whom this rank waits for may need this very core
        yield_at = ticks + (options_.crowded ? 0 : yield_ticks);
      }
      __builtin_ia32_pause();
    }
    sleep_until(ready, peers);
  }
  template <class Ready>
  void sleep_until(Ready ready, std::uint64_t peers) {
    detail::RankControl& mine = segment_.control(rank_);
    const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
    for (;;) {
      const std::uint32_t bell = mine.bell.load();
      mine.asleep.store(1);
      const bool come = ready();
      if (!come && segment_.failed_rank() < 0) {
        // In slices: a rank that is killed wakes nobody, if it is the launcher that was killed.
        const timespec slice{0, 50'000'000};
        syscall(SYS_futex, &mine.bell, FUTEX_WAIT, bell, &slice, nullptr, 0);
      }
      mine.asleep.store(0);
      // Read before the last look: what a rank did before it ended is seen then.
      const std::uint64_t ended = segment_.ended() & peers;
      if (come || ready()) return;
      if (segment_.failed_rank() >= 0) {
        core::fail<PeerError>("dist: rank ", rank_, " cannot go on in ", to_string(current_),
                              ": rank ", segment_.failed_rank(), " of ", size_, ' ',
                              segment_.failure());
      }
      if (ended != 0) {
        core::fail<PeerError>("dist: rank ", rank_, " cannot go on in ", to_string(current_),
                              ": rank ", std::countr_zero(ended), " of ", size_,
                              " has ended without it. Do all ranks make the same calls?");
      }
      if (std::chrono::steady_clock::now() >= deadline) fail_late(peers);
    }
  }
  /// Which ranks are late and where each was last: a roll call.
  [[noreturn]] void fail_late(std::uint64_t peers) {
    std::string roll;
    for (int peer = 0; peer < size_; ++peer) {
      if ((peers >> peer & 1U) == 0) continue;
      const detail::RankControl& theirs = segment_.control(peer);
      roll += core::text(roll.empty() ? "" : "; ", "rank ", peer, " has come to ",
                         theirs.phase.load(), " meetings, this rank to ", phase_);
    }
    core::fail<TimeoutError>("dist: rank ", rank_, " of ", size_, " waited ",
                             options_.timeout.count(), " ms in ", to_string(current_), ": ", roll,
                             ". Does that process still run, and the same calls as this one?");
  }

  Segment& segment_;
  int rank_;
  int size_;
  std::string_view name_;
  WaitOptions options_;
  Label current_;
  detail::Exchange exchange_;
  std::uint64_t posts_ = 0;  // so many operations began by `post`: messages alone have no slot
  std::uint64_t phase_ = 0;
  std::int64_t used_ = 0, common_used_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
