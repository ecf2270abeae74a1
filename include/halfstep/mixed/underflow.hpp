// SPDX-License-Identifier: MIT
// How much of a step's gradient a 16-bit format would round to zero: the figure that a loss scale
// is there to lower. Looks at the gradients of parameters; those of activations are smaller still.
#pragma once

#include <cstdint>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/gradient_pass.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Elements of the gradient of the mean loss. A format loses a finite element that is not zero if it
/// rounds that times the scale, a product in double, to zero: half of its smallest number, a tie, is
/// lost too, 2^-25 in fp16 and 2^-134 in bf16. Subnormals are numbers like others; infinities and
/// NaNs count nowhere. mixed::Magnitudes and kernels::Underflows mean the same.
struct Underflow {
  std::int64_t nonzero = 0;
  std::int64_t fp16 = 0;         ///< of those, lost by fp16
  std::int64_t fp16_scaled = 0;  ///< the same after multiplication by the loss scale
  std::int64_t bf16 = 0;         ///< lost by bf16

  [[nodiscard]] double share(std::int64_t lost) const {
    return nonzero == 0 ? 0.0 : static_cast<double>(lost) / static_cast<double>(nonzero);
  }
};

/// Counts over all parameters, before clipping; exact for any scale. The cheap figure: one read of
/// the gradient by vectors, where gradient_magnitudes sorts each element into a histogram that
/// answers for every format and scale. Nothing is changed.
/// @throws StateError if the gradients were used already.
template <class T>
[[nodiscard]] Underflow count_underflow(const Unscaled<T>& gradients, float scale) {
  const double factor = gradients.unscale_factor();
  const double scaled = factor * static_cast<double>(scale);
  const core::Compute compute = gradients.parameters().runtime().compute();
  using G = typename Unscaled<T>::gradient;
  kernels::Underflows<G> counted{
      .limits = {kernels::underflow_limit<halfstep::fp16, G>(compute, factor),
                 kernels::underflow_limit<halfstep::fp16, G>(compute, scaled),
                 kernels::underflow_limit<halfstep::bf16, G>(compute, factor)}};
  for (std::uint32_t p = 0; p < gradients.parameters().size(); ++p)
    kernels::count_underflows<G>(compute, gradients.sum({p}), counted);
  return {counted.nonzero, counted.counts[0], counted.counts[1], counted.counts[2]};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
