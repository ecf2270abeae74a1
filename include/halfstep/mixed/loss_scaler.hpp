// SPDX-License-Identifier: MIT
// How large the loss scale of fp16 training is: grown after a run of good steps, cut after an
// overflow, or fixed. Not for: applying it (the window's seed and unscale pass do that).
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/scale_policy.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

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
    if (!positive(options.maximum) || options.maximum < options.initial || options.hysteresis < 1 ||
        !(options.tolerance >= 0.0F && options.tolerance <= 1.0F)) {
      core::fail<OptionError>("LossScaler: maximum ", options.maximum, ", hysteresis ",
                              options.hysteresis, ", tolerance ", options.tolerance,
                              "; wanted initial (", options.initial,
                              ") <= maximum, hysteresis >= 1, tolerance a share in [0, 1]. ",
                              "Is the tolerance in per cent?");
    }
    const bool limited = options.maximum < std::numeric_limits<float>::max();
    if (!power_of_two(options.initial) || !power_of_two(options.growth) ||
        !power_of_two(options.backoff) || !power_of_two(options.minimum) ||
        (limited && !power_of_two(options.maximum))) {
      std::fprintf(stderr,
                   "halfstep: warning: LossScaler: initial %g, growth %g, backoff %g, minimum %g "
                   "and maximum %g are not all powers of two, so scaling and unscaling round.\n",
                   static_cast<double>(options.initial), static_cast<double>(options.growth),
                   static_cast<double>(options.backoff), static_cast<double>(options.minimum),
                   static_cast<double>(options.maximum));
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
  [[nodiscard]] const LossScalerOptions& options() const { return options_; }
  /// What to tell a person where ScaleChange::stop is met.
  [[nodiscard]] std::string floor_text() const {
    return core::text("the gradient overflows with the loss scale at its minimum, ", scale_,
                      ". A smaller scale is unlikely to help: lower lr, lengthen the warm-up or clip; "
                      "or lower LossScalerOptions::minimum.");
  }
  /// Good steps since the last overflow or growth.
  [[nodiscard]] std::int64_t good_steps() const { return good_steps_; }

  /// One step's worth of the rule in scale_policy.hpp. Counts are compared with >=, so that a shorter
  /// interval takes effect at once where the presets' originals, which test for equality, would
  /// never grow again. Steps call it, through their window.
  /// @throws StateError while a window is open; NumericError where the options want one.
  optim::ScaleChange update(bool overflowed) {
    if (windows_ > 0) {
      core::fail<StateError>("LossScaler::update: ", windows_,
                             " window(s) are open, which were seeded with the scale ", scale_,
                             ". The step that ends a window updates its scaler; nobody else need.");
    }
    return told(apply(overflowed));
  }

  /// @throws NumericError once an overflow at the minimum has asked to stop: begin calls it, so that
  /// a loop that does not look at its results ends too.
  void require_running() const {
    if (stopped_) fail_at_floor();
  }
  /// A window opens: the scale stands still until every open window is settled or dropped.
  void hold() { ++windows_; }
  /// A window's step is over. The last open one updates the scale, once: an overflow in any of them
  /// counts. @throws NumericError where the options want one; the window is settled all the same.
  optim::ScaleChange settle(bool overflowed) {
    settled_ = true;
    overflowed_ = overflowed_ || overflowed;
    return told(close());
  }
  /// A window ends without a step. If it was the last, those that were settled before it count.
  void release() { static_cast<void>(close()); }

  /// Scale and counts; not the options, which come from whoever resumes. A fixed scaler shows its
  /// own scale and keeps it.
  /// @throws DataError if a visitor stores a scale that is none.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    double scale = scale_;
    std::int64_t good_steps = good_steps_, hits = hits_, steps = steps_, overflows = overflows_;
    visitor.scalar("loss_scaler.scale", scale);
    visitor.scalar("loss_scaler.good_steps", good_steps);
    visitor.scalar("loss_scaler.hysteresis", hits);
    visitor.scalar("loss_scaler.steps_at_scale", steps);
    visitor.scalar("loss_scaler.overflows_at_scale", overflows);
    if (!dynamic_) return;
    if (!(scale > 0.0 && scale <= std::numeric_limits<float>::max()) || good_steps < 0 || hits < 0 ||
        steps < 0 || overflows < 0) {
      core::fail<DataError>("LossScaler: the state holds scale ", scale, " and the counts ",
                            good_steps, ", ", hits, ", ", steps, ", ", overflows,
                            "; wanted a positive, finite scale and counts of at least 0. ",
                            "Is the file of another run or damaged?");
    }
    scale_ = static_cast<float>(scale);
    good_steps_ = good_steps;
    hits_ = hits;
    steps_ = steps;
    overflows_ = overflows;
  }

 private:
  // Says ScaleChange::stop for both policies that end a run; `told` makes one of them an error.
  optim::ScaleChange apply(bool overflowed) {
    using optim::ScaleChange;
    if (!dynamic_) return ScaleChange::none;
    ++steps_;
    return overflowed ? after_overflow() : after_good_step();
  }
  optim::ScaleChange after_good_step() {
    using optim::ScaleChange;
    if (options_.counted == Hysteresis::consecutive) hits_ = 0;
    if (++good_steps_ < options_.interval) return ScaleChange::none;
    good_steps_ = 0;
    hits_ = 0;
    steps_ = 0;
    constexpr float largest = std::numeric_limits<float>::max();
    const float before = scale_, higher = scaled(options_.growth);
    if (higher <= options_.maximum) {
      scale_ = higher;
    } else if (options_.maximum < largest) {
      scale_ = options_.maximum;
    }
    return scale_ > before ? ScaleChange::grown : ScaleChange::none;
  }
  optim::ScaleChange after_overflow() {
    using optim::ScaleChange;
    good_steps_ = 0;
    ++overflows_;
    ++hits_;
    if (hits_ < options_.hysteresis || !(share() >= static_cast<double>(options_.tolerance))) {
      return ScaleChange::spared;
    }
    if (scale_ <= options_.minimum) {
      stopped_ = options_.at_floor != AtFloor::stay;
      return stopped_ ? ScaleChange::stop : ScaleChange::at_floor;
    }
    const float lower = scaled(options_.backoff);
    scale_ = lower < options_.minimum ? options_.minimum : lower;
    steps_ = overflows_ = 0;
    if (options_.counted == Hysteresis::window) hits_ = 0;
    return ScaleChange::cut;
  }
  optim::ScaleChange close() {
    HALFSTEP_ASSERT(windows_ > 0);
    if (--windows_ > 0) return optim::ScaleChange::none;
    const bool settled = settled_, overflowed = overflowed_;
    settled_ = overflowed_ = false;
    return settled ? apply(overflowed) : optim::ScaleChange::none;
  }
  optim::ScaleChange told(optim::ScaleChange change) const {
    if (change == optim::ScaleChange::stop && options_.at_floor == AtFloor::error) fail_at_floor();
    return change;
  }
  [[noreturn]] void fail_at_floor() const { throw NumericError("LossScaler: " + floor_text()); }
  // Where factors are no powers of two this rounds, in the kernels' environment, not the caller's.
  [[nodiscard]] float scaled(float by) const {
    float product = 0.0F;
    core::Compute{core::Isa::portable}.parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { product = scale_ * by; });
    return product;
  }
  [[nodiscard]] double share() const {
    double share = 0.0;
    core::Compute{core::Isa::portable}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      share = static_cast<double>(overflows_) / static_cast<double>(steps_);
    });
    return share;
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
  std::int64_t hits_ = 0;                   // overflows that count towards the hysteresis
  std::int64_t steps_ = 0, overflows_ = 0;  // since the scale changed; see LossScalerOptions
  bool dynamic_ = true;
  bool stopped_ = false;
  int windows_ = 0;
  bool settled_ = false, overflowed_ = false;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
