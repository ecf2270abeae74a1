// SPDX-License-Identifier: MIT
// The account of memory: every byte the library takes, by category, live and at the peak. Counts
// only; memory itself comes from tensor/.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

enum class Category : std::uint8_t {
  weights,
  gradients,
  master,
  moments,
  activations,
  recompute,
  workspace,
  packed
};
inline constexpr std::size_t categories = 8;

[[nodiscard]] constexpr std::string_view to_string(Category category) {
  constexpr std::array<std::string_view, categories> names{"weights",   "gradients",   "master",
                                                           "moments",   "activations", "recompute",
                                                           "workspace", "packed"};
  return names[static_cast<std::size_t>(category)];
}

/// What was going on when memory was taken.
struct Event {
  enum class Phase : std::uint8_t { outside, forward, replay, backward };
  Phase phase = Phase::outside;  ///< of a tape's pass
  std::string_view op{};         ///< that was running
  std::uint32_t node = 0;        ///< its number on the tape
};

[[nodiscard]] constexpr std::string_view to_string(Event::Phase phase) {
  constexpr std::array<std::string_view, 4> names{"outside of a pass", "forward", "forward in a second run", "backward"};
  return names[static_cast<std::size_t>(phase)];
}

/// Live and peak bytes. Belongs to one training thread, as its Runtime does. A dry one counts what
/// would be taken: what is entered in it has addresses and no memory.
class Ledger {
 public:
  using Bytes = std::array<std::int64_t, categories>;

  Ledger() = default;
  explicit Ledger(bool dry) : dry_(dry) {}
  [[nodiscard]] bool dry() const { return dry_; }

  void add(Category category, std::int64_t bytes) {
    const auto c = static_cast<std::size_t>(category);
    live_[c] += bytes;
    live_total_ += bytes;
    if (live_[c] > peak_[c]) peak_[c] = live_[c];
    if (live_total_ > peak_total_) {
      peak_total_ = live_total_;
      at_peak_ = live_;
      peak_event_ = event_;
    }
    if (live_total_ >= notify_at_) {
      notify_at_ = never;
      notify_(context_);
    }
  }
  void remove(Category category, std::int64_t bytes) {
    const auto c = static_cast<std::size_t>(category);
    HALFSTEP_ASSERT(live_[c] >= bytes);
    live_[c] -= bytes;
    live_total_ -= bytes;
  }

  [[nodiscard]] std::int64_t live() const { return live_total_; }
  [[nodiscard]] std::int64_t live(Category c) const { return live_[static_cast<std::size_t>(c)]; }
  /// The largest total so far, and the categories at that moment, which sum to it.
  [[nodiscard]] std::int64_t peak() const { return peak_total_; }
  [[nodiscard]] const Bytes& at_peak() const { return at_peak_; }
  /// What was going on at that moment.
  [[nodiscard]] const Event& peak_event() const { return peak_event_; }
  /// The largest that one category has been, at whatever moment.
  [[nodiscard]] std::int64_t peak(Category c) const { return peak_[static_cast<std::size_t>(c)]; }
  /// Starts the peaks anew from what is live now.
  void restart_peaks() {
    peak_ = live_;
    at_peak_ = live_;
    peak_total_ = live_total_;
    peak_event_ = event_;
  }

  /// What goes on from now on; for who takes the memory to tell.
  void set_event(const Event& event) { event_ = event; }
  [[nodiscard]] const Event& event() const { return event_; }
  /// Calls call(context), once, when `total` bytes are live next.
  void notify_at(std::int64_t total, void (*call)(void*), void* context) {
    notify_at_ = total;
    notify_ = call;
    context_ = context;
  }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  bool dry_ = false;
  Event event_, peak_event_;
  std::int64_t notify_at_ = never;
  void (*notify_)(void*) = nullptr;
  void* context_ = nullptr;
  Bytes live_{}, peak_{}, at_peak_{};
  std::int64_t live_total_ = 0, peak_total_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
