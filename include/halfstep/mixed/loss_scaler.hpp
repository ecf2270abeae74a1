// SPDX-License-Identifier: MIT
// How large the loss scale of fp16 training is: grown after a run of good steps, cut after an
// overflow, or fixed. Not for: applying it (the window's seed and unscale pass do that).
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// PyTorch's GradScaler, whose defaults these are.
struct LossScalerOptions {
  float initial = 65536.0F;  ///< first scale
  float growth = 2.0F;       ///< multiplies the scale after `interval` good steps in a row; > 1
  float backoff = 0.5F;      ///< multiplies it after an overflow; in (0, 1)
  int interval = 2000;       ///< at least 1
  float minimum =
      0x1p-126F;  ///< no overflow takes the scale below it: a scale of 0 would end training
};

/// Belongs to the windows that are begun with it: they hold the scale still while they are open,
/// and the step that ends the last of them updates it. Powers of two keep scaling and unscaling
/// exact within the normal range; other numbers are allowed, and named once on stderr.
class LossScaler {
 public:
  /// @throws OptionError for options out of range.
  explicit LossScaler(const LossScalerOptions& options = {})
      : options_(options), scale_(options.initial) {
    const auto positive = [](float x) {
      return x > 0.0F && x <= std::numeric_limits<float>::max();
    };
    if (!positive(options.initial) || !positive(options.growth) || !(options.growth > 1.0F) ||
        !positive(options.backoff) || !(options.backoff < 1.0F) || options.interval < 1 ||
        !positive(options.minimum) || options.minimum > options.initial) {
      core::fail<OptionError>(
          "LossScaler: initial ", options.initial, ", growth ", options.growth, ", backoff ",
          options.backoff, ", interval ", options.interval, ", minimum ", options.minimum,
          "; wanted initial > 0, growth > 1, backoff between 0 and 1, interval >= 1, ",
          "0 < minimum <= initial. Were growth and backoff exchanged?");
    }
    if (!power_of_two(options.initial) || !power_of_two(options.growth) ||
        !power_of_two(options.backoff)) {
      std::fprintf(stderr,
                   "halfstep: warning: LossScaler: initial %g, growth %g and backoff %g are not "
                   "all powers of two, so "
                   "scaling and unscaling round.\n",
                   static_cast<double>(options.initial), static_cast<double>(options.growth),
                   static_cast<double>(options.backoff));
    }
  }
  /// A scale that never changes. @throws OptionError unless it is positive and finite.
  [[nodiscard]] static LossScaler fixed(float scale) {
    if (!(scale > 0.0F && scale <= std::numeric_limits<float>::max())) {
      core::fail<OptionError>("LossScaler::fixed: the scale is ", scale,
                              ", wanted a positive, finite number. ", "1 is no scaling.");
    }
    LossScaler scaler({.initial = scale, .minimum = scale < 0x1p-126F ? scale : 0x1p-126F});
    scaler.dynamic_ = false;
    return scaler;
  }

  [[nodiscard]] float scale() const { return scale_; }
  [[nodiscard]] bool dynamic() const { return dynamic_; }
  /// Good steps since the scale last changed.
  [[nodiscard]] std::int64_t good_steps() const { return good_steps_; }

  /// The rule itself. A growth beyond the largest float keeps the scale (and starts the count
  /// anew); the count is compared with >=, so that a shorter interval takes effect at once. Steps
  /// call it, through their window; calling it while a window is open is a
  /// @throws StateError
  void update(bool overflowed) {
    if (windows_ > 0) {
      core::fail<StateError>("LossScaler::update: ", windows_,
                             " window(s) are open, which were seeded with the scale ", scale_,
                             ". The step that ends a window updates its scaler; nobody else need.");
    }
    if (!dynamic_) return;
    if (overflowed) {
      const float lower = scaled(options_.backoff);
      scale_ = lower < options_.minimum ? options_.minimum : lower;
      good_steps_ = 0;
    } else if (++good_steps_ >= options_.interval) {
      const float higher = scaled(options_.growth);
      if (higher <= std::numeric_limits<float>::max()) scale_ = higher;
      good_steps_ = 0;
    }
  }

  /// A window opens: the scale stands still until every open window is settled or dropped.
  void hold() { ++windows_; }
  /// A window's step is over. The last open one updates the scale: an overflow in any of them
  /// counts.
  void settle(bool overflowed) {
    settled_ = true;
    overflowed_ = overflowed_ || overflowed;
    release();
  }
  /// A window ends without a step.
  void release() {
    HALFSTEP_ASSERT(windows_ > 0);
    if (--windows_ > 0) return;
    const bool settled = settled_, overflowed = overflowed_;
    settled_ = overflowed_ = false;
    if (settled) update(overflowed);
  }

  /// Scale and count; not the options, which come from whoever resumes. A fixed scaler shows its
  /// own scale and keeps it.
  /// @throws DataError if a visitor stores a scale that is none.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    double scale = scale_;
    std::int64_t good_steps = good_steps_;
    visitor.scalar("loss_scaler.scale", scale);
    visitor.scalar("loss_scaler.good_steps", good_steps);
    if (!dynamic_) return;
    if (!(scale > 0.0 && scale <= std::numeric_limits<float>::max()) || good_steps < 0) {
      core::fail<DataError>(
          "LossScaler: the state holds scale ", scale, " and ", good_steps,
          " good steps; wanted a positive, finite scale. Is the file of another run or damaged?");
    }
    scale_ = static_cast<float>(scale);
    good_steps_ = good_steps;
  }

 private:
  // Where factors are no powers of two this rounds, in the kernels' environment, not the caller's.
  [[nodiscard]] float scaled(float by) const {
    float product = 0.0F;
    core::Compute{core::Isa::portable}.parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { product = scale_ * by; });
    return product;
  }
  // On bits, so that the caller's rounding mode and DAZ have no say.
  [[nodiscard]] static bool power_of_two(float x) {
    const auto fraction = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFU;
    return std::bit_cast<std::uint32_t>(x) >= 0x800000U ? fraction == 0
                                                        : std::has_single_bit(fraction);
  }

  LossScalerOptions options_;
  float scale_;
  std::int64_t good_steps_ = 0;
  bool dynamic_ = true;
  int windows_ = 0;
  bool settled_ = false, overflowed_ = false;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
