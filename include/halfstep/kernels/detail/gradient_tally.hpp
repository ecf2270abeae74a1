// SPDX-License-Identifier: MIT
// What the gradient pass counts for telemetry, in the integers that the paths compare. Not the
// counting, which is each path's in gradient.inc.
#pragma once

#include <array>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// Magnitudes as their bits, whose order is that of the numbers.
template <class Bits>
struct GradientTally {
  std::array<Bits, 3> limits{};
  std::array<std::int64_t, 3> counts{};  ///< of elements in (0, limit]
  std::int64_t nonzero = 0;
  Bits largest = 0;  ///< of the finite ones
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
