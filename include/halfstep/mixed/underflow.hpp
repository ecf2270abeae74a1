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

/// Elements of the gradient of the mean loss.
struct Underflow {
  std::int64_t nonzero = 0;
  std::int64_t fp16 = 0;         ///< of those, rounded to zero by fp16
  std::int64_t fp16_scaled = 0;  ///< the same after multiplication by the loss scale
  std::int64_t bf16 = 0;         ///< rounded to zero by bf16

  [[nodiscard]] double share(std::int64_t lost) const {
    return nonzero == 0 ? 0.0 : static_cast<double>(lost) / static_cast<double>(nonzero);
  }
};

/// Counts over all parameters, before clipping. Half of the smallest subnormal, a tie, rounds to
/// zero: 2^-25 in fp16, 2^-134 in bf16. Cost: one read of the gradient; nothing is changed.
/// @throws StateError if the gradients were used already.
template <class T>
[[nodiscard]] Underflow count_underflow(const Unscaled<T>& gradients, float scale) {
  const double factor = gradients.factor() / static_cast<double>(gradients.result().clipped_by);
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
