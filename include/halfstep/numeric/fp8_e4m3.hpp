// SPDX-License-Identifier: MIT
// fp8_e4m3: 8 bits, 4 of them exponent, 4 significant ones, up to 448; without infinity (e4m3fn of
// OCP and ml_dtypes). For storage and telemetry in this release. Not for training yet: no kernel
// takes it.
#pragma once

#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Largest 448 (0x7E), smallest normal 2^-6, smallest subnormal 2^-9, epsilon 2^-3; NaN is 0x7F.
/// 464 and below rounds to 448, more is NaN: there is no infinity. Saturate with
/// `numeric::round_to<fp8_e4m3, Rounding::nearest_even, Overflow::saturate>(x)`.
using fp8_e4m3 = small_float<numeric::BinaryFormat<4, 3, numeric::Specials::fn>>;

static_assert(sizeof(fp8_e4m3) == 1 && alignof(fp8_e4m3) == 1 && std::is_trivial_v<fp8_e4m3> &&
              std::is_standard_layout_v<fp8_e4m3>);

}  // namespace halfstep::inline HALFSTEP_CONFIG
