// SPDX-License-Identifier: MIT
// Learning rates as pure functions of the step: a linear warm-up followed by half a cosine, and a
// constant. There is no scheduler to advance, save or forget. Not for: who counts steps (an
// optimizer).
#pragma once

#include <cstdint>
#include <limits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/elementary_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// `lr(optimizer.steps())`: with s updates applied before this one,
///   s < warmup   peak (s + 1) / (warmup + 1)
///   s >= steps   floor
///   otherwise    floor + (1 + cos(pi (s - warmup) / (steps - warmup))) / 2 x (peak - floor)
/// in double, one rounding to float at the end; the same bits in any floating-point environment.
///
/// So the first update is not lost to a rate of 0, the one after the warm-up has the peak, and a
/// run of `steps` updates ends one step before the floor. warmup 0: starts at the peak. warmup >=
/// steps: the warm-up is finished all the same and the floor follows at once. Source: nanoGPT's
/// train.py. Differs: at s = steps = warmup, where that divides 0 by 0, the floor.
struct WarmupCosine {
  float peak = 1e-3F;
  float floor = 1e-4F;
  std::int64_t warmup = 100;  ///< updates
  std::int64_t steps = 2000;  ///< updates, the warm-up among them, after which the rate is `floor`

  /// @throws OptionError for a negative count, or a rate that is negative or not finite.
  [[nodiscard]] float operator()(std::int64_t step) const {
    const auto good = [](float rate) {
      return rate >= 0.0F && rate < std::numeric_limits<float>::infinity();
    };
    if (step < 0 || warmup < 0 || steps < 0 || !good(peak) || !good(floor)) {
      core::fail<OptionError>("WarmupCosine: step ", step, ", warmup ", warmup, ", steps ", steps,
                              ", peak ", peak, ", floor ", floor,
                              "; wanted counts of at least 0 and finite rates of at least 0. ",
                              "Is one of them an unset option?");
    }
    float rate = 0.0F;
    core::Compute{core::Isa::portable}.parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { rate = evaluate(step); });
    return rate;
  }

 private:
  [[nodiscard]] float evaluate(std::int64_t step) const {
    const double high = peak, low = floor;
    if (step < warmup)
      return static_cast<float>(high * (static_cast<double>(step) + 1.0) /
                                (static_cast<double>(warmup) + 1.0));
    if (step >= steps) return floor;
    const double way = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
    const double share = 0.5 * (1.0 + numeric::cos(3.141592653589793 * way));
    return static_cast<float>(core::fma(share, high - low, low));
  }
};

/// The same rate at every step.
struct Constant {
  float rate = 1e-3F;
  [[nodiscard]] float operator()(std::int64_t /*step*/) const { return rate; }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
