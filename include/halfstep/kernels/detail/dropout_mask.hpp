// SPDX-License-Identifier: MIT
// What kernels that drop elements are told: which words of the random stream keep one, and by what
// it is multiplied. Not the drawing, which is each path's in dropout.inc.
#pragma once

#include <cmath>
#include <cstdint>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// Element e is kept, and multiplied by factor, if random_bits(seed, stream, first + e) >=
/// threshold.
template <class A>
struct DropoutMask {
  std::uint32_t threshold = 0;
  std::uint64_t seed = 0, stream = 0;
  std::uint64_t first = 0;
  A factor{};  ///< 1 / (1 - p)
};

/// @throws OptionError if p is not in [0, 1).
template <class A>
[[nodiscard]] DropoutMask<A> dropout_mask(const core::Compute& compute, const char* function,
                                          float p, std::uint64_t seed, std::uint64_t stream,
                                          std::uint64_t first) {
  if (!(p >= 0.0F && p < 1.0F)) {
    core::fail<OptionError>(function, ": p is ", p,
                            "; wanted at least 0 and below 1. It is the share that is dropped.");
  }
  // Both exact in double for every float p but for the quotient, which rounds as the caller's mode
  // says: so it is computed inside. The largest p below 1 gives 2^32 - 2^8.
  const auto threshold = static_cast<std::uint32_t>(std::ceil(static_cast<double>(p) * 0x1p32));
  A factor{};
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    factor = static_cast<A>(1.0 / (1.0 - static_cast<double>(p)));
  });
  return {threshold, seed, stream, first, factor};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
