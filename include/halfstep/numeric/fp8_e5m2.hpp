// SPDX-License-Identifier: MIT
// fp8_e5m2: 8 bits, the upper half of an fp16: 3 significant bits, up to 57344, with infinities and
// NaNs as IEEE 754 lays them out. For storage and telemetry in this release. Not for training yet:
// no kernel takes it.
#pragma once

#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Largest 57344 (0x7B), smallest normal 2^-14, smallest subnormal 2^-16, epsilon 2^-2. From 61440
/// on a value is infinity (0x7C).
using fp8_e5m2 = small_float<numeric::IeeeFormat<5, 2>>;

static_assert(sizeof(fp8_e5m2) == 1 && alignof(fp8_e5m2) == 1 && std::is_trivial_v<fp8_e5m2> &&
              std::is_standard_layout_v<fp8_e5m2>);

}  // namespace halfstep::inline HALFSTEP_CONFIG
