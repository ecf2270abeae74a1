// SPDX-License-Identifier: MIT
// bf16: float's exponent with 8 significant bits, the upper half of a float. For weights and
// activations that want float's range. Not for sums: 256 + 1 is 256.
#pragma once

#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Largest 3.3895e38 (0x7F7F), smallest normal 2^-126, smallest subnormal 2^-133, epsilon 2^-7.
/// What holds for conversions, arithmetic, FTZ and DAZ is said at small_float.
using bf16 = small_float<numeric::IeeeFormat<8, 7>>;

static_assert(sizeof(bf16) == 2 && alignof(bf16) == 2 && std::is_trivial_v<bf16> &&
              std::is_standard_layout_v<bf16>);

}  // namespace halfstep::inline HALFSTEP_CONFIG
