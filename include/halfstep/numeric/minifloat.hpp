// SPDX-License-Identifier: MIT
// The other published formats of 8, 6 and 4 bits, for reading what other tools wrote and for
// studying what a smaller format would do. For storage and telemetry. Not for training, and not the
// blocks with a shared scale (MX) that some of them are made for.
#pragma once

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// e4m3 without infinity and -0, bias 8: largest 240 (0x7F), smallest 2^-10, NaN 0x80.
using fp8_e4m3fnuz = small_float<numeric::BinaryFormat<4, 3, numeric::Specials::fnuz, 8>>;
/// e5m2 without infinity and -0, bias 16: largest 57344 (0x7F), smallest 2^-17, NaN 0x80.
using fp8_e5m2fnuz = small_float<numeric::BinaryFormat<5, 2, numeric::Specials::fnuz, 16>>;
/// The same with bias 11: largest 30 (0x7F), smallest 2^-13, NaN 0x80.
using fp8_e4m3b11fnuz = small_float<numeric::BinaryFormat<4, 3, numeric::Specials::fnuz, 11>>;
/// e4m3 as IEEE 754 lays it out (ml_dtypes' float8_e4m3): largest 240 (0x77), infinity 0x78.
using fp8_e4m3_ieee = small_float<numeric::IeeeFormat<4, 3>>;
/// Largest 15.5 (0x6F), smallest 2^-6, infinity 0x70.
using fp8_e3m4 = small_float<numeric::IeeeFormat<3, 4>>;
/// Powers of two from 2^-127 (0x00) to 2^127 (0xFE), NaN 0xFF: the scale of a block. A tie goes up;
/// zeros, negative numbers and what is too large become NaN.
using fp8_e8m0 = small_float<numeric::BinaryFormat<8, 0, numeric::Specials::scale>>;
/// 6 bits: largest 7.5 (0x1F), smallest 2^-3. No infinity, no NaN: what is too large saturates, and
/// a NaN becomes the zero of the other sign.
using fp6_e2m3 = small_float<numeric::BinaryFormat<2, 3, numeric::Specials::finite>>;
/// 6 bits: largest 28 (0x1F), smallest 2^-4; as fp6_e2m3 otherwise.
using fp6_e3m2 = small_float<numeric::BinaryFormat<3, 2, numeric::Specials::finite>>;
/// 4 bits: largest 6 (0x7), smallest 2^-1; as fp6_e2m3 otherwise.
using fp4_e2m1 = small_float<numeric::BinaryFormat<2, 1, numeric::Specials::finite>>;

}  // namespace halfstep::inline HALFSTEP_CONFIG
