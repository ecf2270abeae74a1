// SPDX-License-Identifier: MIT
// What the paths of stochastic rounding are told: whose random numbers, and the codes of what the
// format cannot hold. Not the rounding, which is each path's in stochastic.inc.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

struct StochasticCodes {
  std::uint64_t seed, stream, first;
  std::uint32_t overflow, infinity;  ///< magnitudes: what lies beyond the largest, and infinity
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
