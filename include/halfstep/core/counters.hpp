// SPDX-License-Identifier: MIT
// What ran, counted where it ran: the evidence that an option was not ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/isa.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// What the time of a step is spent on, as far as kernels know it by themselves.
enum class Phase : std::uint8_t { other, products, attention, head };
inline constexpr std::size_t phases = 4;

/// Counts since the Runtime was made. Written by the thread that trains, in the kernels' front.
struct Counters {
  std::array<std::uint64_t, 4> products{};  ///< matrix products by the path that computed them
  std::uint64_t flops = 0;  ///< operations of matrix products and attention, replays included
  /// Of the time-stamp counter, by phase; `other` stays 0.
  std::array<std::uint64_t, phases> ticks{};
  Phase phase = Phase::other;                 ///< the one that is running
};

/// Counts the time until its end as that of a phase, unless an outer one counts it already:
/// products within attention or the head are theirs. Two reads of the time-stamp counter.
class PhaseScope {
 public:
  PhaseScope(Counters* counters, Phase phase)
      : counters_(counters != nullptr && counters->phase == Phase::other ? counters : nullptr) {
    if (counters_ == nullptr) return;
    counters_->phase = phase;
    start_ = __builtin_ia32_rdtsc();
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;
  ~PhaseScope() {
    if (counters_ == nullptr) return;
    const auto phase = static_cast<std::size_t>(counters_->phase);
    counters_->ticks[phase] += __builtin_ia32_rdtsc() - start_;
    counters_->phase = Phase::other;
  }

 private:
  Counters* counters_;
  std::uint64_t start_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
