// SPDX-License-Identifier: MIT
// The account of memory: every byte the library takes, by category, live and at the peak. Counts
// only; memory itself comes from tensor/.
#pragma once

#include <array>
#include <cstdint>
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

/// Live and peak bytes. Belongs to one training thread, as its Runtime does.
class Ledger {
 public:
  using Bytes = std::array<std::int64_t, categories>;

  void add(Category category, std::int64_t bytes) {
    const auto c = static_cast<std::size_t>(category);
    live_[c] += bytes;
    live_total_ += bytes;
    if (live_[c] > peak_[c]) peak_[c] = live_[c];
    if (live_total_ > peak_total_) {
      peak_total_ = live_total_;
      at_peak_ = live_;
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
  /// The largest that one category has been, at whatever moment.
  [[nodiscard]] std::int64_t peak(Category c) const { return peak_[static_cast<std::size_t>(c)]; }
  /// Starts the peaks anew from what is live now.
  void restart_peaks() {
    peak_ = live_;
    at_peak_ = live_;
    peak_total_ = live_total_;
  }

 private:
  Bytes live_{}, peak_{}, at_peak_{};
  std::int64_t live_total_ = 0, peak_total_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
