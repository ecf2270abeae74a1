// SPDX-License-Identifier: MIT
// The layout of a binary format of few bits: exponent, mantissa, bias, and which codes are no
// numbers. Constants and predicates on codes alone; the scalar is small_float.hpp. Not for formats
// with a shared scale: those are blocks of numbers, and there are none here.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// Which codes of a format are not finite numbers, after the suffixes that the formats' names bear.
enum class Specials : std::uint8_t {
  ieee,    ///< the highest exponent field holds the infinities and, above them, the NaNs
  fn,      ///< no infinity; NaN is the code with every bit set, once for each sign
  fnuz,    ///< no infinity, no -0: its code is the one NaN
  finite,  ///< neither infinity nor NaN (6 and 4 bits, whose names say fn all the same)
  scale    ///< powers of two: no sign, no zero, no subnormals; NaN is the code with every bit set
};

/// A binary format of at most 32 bits: sign, `Exponent` bits, `Mantissa` stored bits.
///
/// A magnitude is a code without its sign, and magnitudes are in the order of their values.
template <int Exponent, int Mantissa, Specials S = Specials::ieee,
          int Bias = (1 << (Exponent - 1)) - 1>
struct BinaryFormat {
  static constexpr Specials specials = S;
  static constexpr bool is_signed = S != Specials::scale;
  static constexpr bool has_zero = S != Specials::scale;  ///< and subnormals
  static constexpr bool has_negative_zero = has_zero && S != Specials::fnuz;
  static constexpr bool has_infinity = S == Specials::ieee;
  static constexpr bool has_nan = S != Specials::finite;

  static constexpr int exponent_bits = Exponent;
  static constexpr int mantissa_bits = Mantissa;  ///< stored ones; the leading one is implied
  static constexpr int bits = Exponent + Mantissa + (is_signed ? 1 : 0);
  static constexpr int bias = Bias;
  static constexpr int min_exponent = (has_zero ? 1 : 0) - Bias;  ///< of the smallest normal value

  static constexpr std::uint32_t magnitude_mask = (1U << (Exponent + Mantissa)) - 1;
  static constexpr std::uint32_t sign_code = is_signed ? magnitude_mask + 1 : 0;
  static constexpr std::uint32_t infinity_code =  ///< where has_infinity
      ((1U << Exponent) - 1) << Mantissa;
  static constexpr std::uint32_t max_code =  ///< magnitude of the largest finite value
      has_infinity                                ? infinity_code - 1
      : S == Specials::fn || S == Specials::scale ? magnitude_mask - 1
                                                  : magnitude_mask;
  static constexpr int max_exponent = static_cast<int>(max_code >> Mantissa) - Bias;
  static constexpr std::uint32_t quiet_bit =
      has_infinity ? 1U << (Mantissa > 0 ? Mantissa - 1 : 0) : 0U;
  static constexpr std::uint32_t nan_code =  ///< quiet; where has_nan
      has_infinity          ? infinity_code | quiet_bit
      : S == Specials::fnuz ? sign_code
                            : magnitude_mask;

  using storage = std::conditional_t<(bits > 8), std::uint16_t, std::uint8_t>;

  [[nodiscard]] static constexpr bool is_nan(std::uint32_t code) {
    if constexpr (has_infinity) return (code & magnitude_mask) > infinity_code;
    if constexpr (S == Specials::fnuz) return code == nan_code;
    return has_nan && (code & magnitude_mask) == nan_code;
  }
  [[nodiscard]] static constexpr bool is_infinity(std::uint32_t code) {
    return has_infinity && (code & magnitude_mask) == infinity_code;
  }
};

/// A format laid out as IEEE 754 says, specials included.
template <int Exponent, int Mantissa>
using IeeeFormat = BinaryFormat<Exponent, Mantissa>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
