// SPDX-License-Identifier: MIT
// fp16: IEEE 754 binary16, 11 significant bits between 2^-24 and 65504. For weights and activations
// with a loss scale in front of small gradients. Not for sums: 2048 + 1 is 2048.
#pragma once

#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Largest 65504 (0x7BFF), smallest normal 2^-14, smallest subnormal 2^-24, epsilon 2^-10.
/// What holds for conversions, arithmetic, FTZ and DAZ is said at small_float.
using fp16 = small_float<numeric::IeeeFormat<5, 10>>;

static_assert(sizeof(fp16) == 2 && alignof(fp16) == 2 && std::is_trivial_v<fp16> &&
              std::is_standard_layout_v<fp16>);

}  // namespace halfstep::inline HALFSTEP_CONFIG
