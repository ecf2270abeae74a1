// SPDX-License-Identifier: MIT
// How much of a step's gradient a 16-bit format would round to zero: the figure that a loss scale is
// there to lower. Looks at the gradients of parameters; those of activations are smaller still.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/unscaled.hpp>
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

/// Counts over all parameters, before clipping. Half of the smallest subnormal, a tie, rounds to zero:
/// 2^-25 in fp16, 2^-134 in bf16. Cost: one read of the gradient; nothing is changed.
/// @throws StateError if the gradients were used already.
template <class T>
[[nodiscard]] Underflow count_underflow(const Unscaled<T>& gradients, float scale) {
  constexpr double fp16_zero = 0x1p-25, bf16_zero = 0x1p-134;
  std::atomic<std::int64_t> nonzero{0}, fp16{0}, fp16_scaled{0}, bf16{0};
  const double factor = gradients.unscale_factor();
  const double scaled = factor * static_cast<double>(scale);
  const core::Compute compute = gradients.parameters().runtime().compute();
  for (std::uint32_t p = 0; p < gradients.parameters().size(); ++p) {
    const auto sum = gradients.sum({p});
    compute.parallel(std::ssize(sum), 16384, [&](std::int64_t begin, std::int64_t end, int) {
      std::int64_t counts[4]{};
      for (std::int64_t i = begin; i < end; ++i) {
        const double size = std::fabs(static_cast<double>(sum[static_cast<std::size_t>(i)]));
        if (size == 0.0) continue;
        ++counts[0];
        counts[1] += size * factor <= fp16_zero ? 1 : 0;
        counts[2] += size * scaled <= fp16_zero ? 1 : 0;
        counts[3] += size * factor <= bf16_zero ? 1 : 0;
      }
      nonzero += counts[0], fp16 += counts[1], fp16_scaled += counts[2], bf16 += counts[3];
    });
  }
  return {nonzero, fp16, fp16_scaled, bf16};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
