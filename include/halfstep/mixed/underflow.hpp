// SPDX-License-Identifier: MIT
// How much of a step's gradient a 16-bit format would round to zero: the figure that a loss scale
// is there to lower. Looks at the gradients of parameters; those of activations are smaller still.
#pragma once

#include <cstdint>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/gradient_pass.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Elements of the gradient of the mean loss, before clipping. A format loses a finite element that
/// is not zero if it rounds that times the scale, a product in double, to zero: half of its
/// smallest number, a tie, is lost too, 2^-25 in fp16 and 2^-134 in bf16. Subnormals are numbers
/// like others; infinities and NaNs count nowhere. mixed::Magnitudes and kernels::Underflows mean
/// the same; where Magnitudes sorts each element into a histogram that answers for every format and
/// scale, this is the cheap figure, counted where pass one reads the gradient anyway:
/// Window::unscale(&underflow).
struct Underflow {
  std::int64_t nonzero = 0;
  std::int64_t fp16 = 0;         ///< of those, lost by fp16
  std::int64_t fp16_scaled = 0;  ///< the same after multiplication by the loss scale
  std::int64_t bf16 = 0;         ///< lost by bf16

  [[nodiscard]] double share(std::int64_t lost) const {
    return nonzero == 0 ? 0.0 : static_cast<double>(lost) / static_cast<double>(nonzero);
  }
};

namespace detail {
/// What pass one is asked about sums that `factor` makes the mean loss's gradient.
template <class G>
[[nodiscard]] kernels::Underflows<G> underflow_question(const core::Compute& compute, double factor,
                                                        float scale) {
  const double scaled = factor * static_cast<double>(scale);
  return {.limits = {kernels::underflow_limit<halfstep::fp16, G>(compute, factor),
                     kernels::underflow_limit<halfstep::fp16, G>(compute, scaled),
                     kernels::underflow_limit<halfstep::bf16, G>(compute, factor)}};
}
template <class G>
[[nodiscard]] Underflow underflow_answer(const kernels::Underflows<G>& counted) {
  return {counted.nonzero, counted.counts[0], counted.counts[1], counted.counts[2]};
}
}  // namespace detail

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
