// SPDX-License-Identifier: MIT
// The policies of a conversion: how what lies between two values is rounded, and what becomes of
// what lies beyond the largest. round_to.hpp takes them for one number; for arrays, convert.hpp
// rounds to nearest even. Not the processor's rounding mode, which no conversion here reads.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// How a value between two neighbours of a format is rounded.
enum class Rounding : std::uint8_t {
  nearest_even,  ///< to the nearer one, a tie to the even significand; the default everywhere
  nearest_away,  ///< to the nearer one, a tie away from zero
  toward_zero,
  up,         ///< toward +infinity
  down,       ///< toward -infinity
  to_odd,     ///< to the odd significand: a second, shorter rounding is then innocuous
  stochastic  ///< away from zero with a probability equal to the part that is cut off
};

/// What a value becomes that rounds beyond the largest finite one.
enum class Overflow : std::uint8_t {
  infinity,  ///< as IEEE 754 says for the rounding: toward_zero and to_odd give the largest finite.
             ///< Where a format has no infinity, NaN takes its place; where it has neither, the
             ///< largest finite
  saturate,  ///< the largest finite one; infinities too
  nan        ///< NaN (where there is none, the largest finite); an infinity is infinity's affair
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
