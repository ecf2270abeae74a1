// SPDX-License-Identifier: MIT
// The one place where a number becomes a small format: an exact source (sign, integer, power of
// two, "and a bit more") is rounded once to a code, in integers only, so that no rounding mode,
// FTZ, DAZ or -ffast-math can change it. Not for bulk data: those paths are in convert.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// How a value between two neighbours of a format is rounded.
enum class Rounding {
  nearest_even,  ///< to the nearer one, a tie to the one with an even code; the default everywhere
  nearest_away,  ///< to the nearer one, a tie away from zero
  toward_zero,
  up,         ///< toward +infinity
  down,       ///< toward -infinity
  to_odd,     ///< to the neighbour with an odd code: a second, shorter rounding is then innocuous
  stochastic  ///< away from zero with a probability equal to the part that is cut off
};

/// What a value becomes that rounds beyond the largest finite one.
enum class Overflow {
  infinity,  ///< as IEEE 754 says for the rounding: toward_zero and to_odd give the largest finite
  saturate,  ///< the largest finite one, infinities too
  nan
};

/// A binary format with a sign, subnormals, infinities and NaNs laid out as IEEE 754 does.
/// Later formats differ in these constants and are rounded by the same code.
template <int Exponent, int Mantissa>
struct IeeeFormat {
  static constexpr int exponent_bits = Exponent;
  static constexpr int mantissa_bits = Mantissa;  ///< stored ones; the leading one is implied
  static constexpr int bits = 1 + Exponent + Mantissa;
  static constexpr int bias = (1 << (Exponent - 1)) - 1;
  static constexpr int min_exponent = 1 - bias;  ///< of the smallest normal value
  static constexpr std::uint32_t sign_code = 1U << (bits - 1);
  static constexpr std::uint32_t infinity_code = ((1U << Exponent) - 1) << Mantissa;
  static constexpr std::uint32_t max_code = infinity_code - 1;  ///< largest finite value
  static constexpr std::uint32_t quiet_bit = 1U << (Mantissa - 1);
  static constexpr std::uint32_t nan_code = infinity_code | quiet_bit;
};

namespace detail {

/// A finite number: (-1)^negative * significand * 2^exponent, plus less than one unit of the
/// significand's last place if `sticky` (then significand is not 0).
struct Exact {
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  bool sticky = false;
};

/// The code of what lies beyond the largest finite value.
template <class Format, Rounding R, Overflow O>
[[nodiscard]] constexpr std::uint32_t overflow_code(bool negative) {
  const std::uint32_t sign = negative ? Format::sign_code : 0;
  if constexpr (O == Overflow::nan) {
    return sign | Format::nan_code;
  } else if constexpr (O == Overflow::saturate || R == Rounding::toward_zero ||
                       R == Rounding::to_odd) {
    return sign | Format::max_code;
  } else if constexpr (R == Rounding::up) {
    return negative ? (sign | Format::max_code) : Format::infinity_code;
  } else if constexpr (R == Rounding::down) {
    return negative ? (sign | Format::infinity_code) : Format::max_code;
  } else {
    return sign | Format::infinity_code;
  }
}

/// The code of `x` in Format, rounded once. `random` is read by Rounding::stochastic alone: 64
/// uniform bits, so the probability is exact wherever at most 64 bits are cut off.
template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t round(Exact x, std::uint64_t random = 0) {
  const std::uint32_t sign = x.negative ? Format::sign_code : 0;
  if (x.significand == 0) return sign;
  const int lead = std::countl_zero(x.significand);
  const std::uint64_t significand = x.significand << lead;
  const int exponent = x.exponent - lead;  // of the last bit of `significand`
  const int magnitude = exponent + 63;     // floor(log2 |x|)
  const int base = magnitude < Format::min_exponent ? Format::min_exponent : magnitude;
  if (base > Format::bias + 1) return overflow_code<Format, R, O>(x.negative);
  const int drop = base - Format::mantissa_bits - exponent;  // bits cut off, at least 40
  std::uint64_t kept = 0;
  std::uint64_t rest = 1;  // what is cut off, in units of 2^-64 of the last kept place
  if (drop < 64) {
    kept = significand >> drop;
    rest = significand << (64 - drop);
  } else if (drop - 64 < 64) {
    rest = significand >> (drop - 64);
    if ((rest << (drop - 64)) != significand && R != Rounding::stochastic) rest |= 1;
  } else if constexpr (R == Rounding::stochastic) {
    rest = 0;
  }
  if (x.sticky && R != Rounding::stochastic) rest |= 1;
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  bool away = false;
  if constexpr (R == Rounding::nearest_even)
    away = rest > half || (rest == half && (kept & 1) != 0);
  if constexpr (R == Rounding::nearest_away) away = rest >= half;
  if constexpr (R == Rounding::up) away = rest != 0 && !x.negative;
  if constexpr (R == Rounding::down) away = rest != 0 && x.negative;
  if constexpr (R == Rounding::to_odd) away = rest != 0 && (kept & 1) == 0;
  if constexpr (R == Rounding::stochastic) away = rest + random < rest;
  // A carry out of the mantissa lands in the exponent, where it belongs.
  const std::uint64_t code =
      (static_cast<std::uint64_t>(base - Format::min_exponent) << Format::mantissa_bits) + kept +
      (away ? 1 : 0);
  if (code > Format::max_code) return overflow_code<Format, R, O>(x.negative);
  return sign | static_cast<std::uint32_t>(code);
}

/// A NaN of another width, quietened: sign and the top payload bits are kept, as the hardware does.
/// `payload` is its mantissa shifted to the top of 64 bits.
template <class Format>
[[nodiscard]] constexpr std::uint32_t nan_code(bool negative, std::uint64_t payload) {
  return (negative ? Format::sign_code : 0) | Format::nan_code |
         static_cast<std::uint32_t>(payload >> (64 - Format::mantissa_bits));
}

template <class Format, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t infinity_code(bool negative) {
  const std::uint32_t sign = negative ? Format::sign_code : 0;
  if constexpr (O == Overflow::saturate) return sign | Format::max_code;
  return sign | Format::infinity_code;
}

template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t encode(double x, std::uint64_t random = 0) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const bool negative = (bits >> 63) != 0;
  const auto field = static_cast<int>((bits >> 52) & 0x7FF);
  const std::uint64_t fraction = bits & 0xF'FFFF'FFFF'FFFF;
  if (field == 0x7FF) {
    return fraction != 0 ? nan_code<Format>(negative, fraction << 12)
                         : infinity_code<Format, O>(negative);
  }
  if (field == 0) return round<Format, R, O>({negative, fraction, -1074}, random);
  return round<Format, R, O>({negative, fraction | (std::uint64_t{1} << 52), field - 1075}, random);
}

template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t encode(float x, std::uint64_t random = 0) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool negative = (bits >> 31) != 0;
  const auto field = static_cast<int>((bits >> 23) & 0xFF);
  const std::uint64_t fraction = bits & 0x7F'FFFF;
  if (field == 0xFF) {
    return fraction != 0 ? nan_code<Format>(negative, fraction << 41)
                         : infinity_code<Format, O>(negative);
  }
  if (field == 0) return round<Format, R, O>({negative, fraction, -149}, random);
  return round<Format, R, O>({negative, fraction | 0x80'0000, field - 150}, random);
}

/// x86's 80-bit format: a 64-bit significand whose leading one is stored. Not constexpr: its
/// padding bytes cannot be bit-cast.
template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity>
[[nodiscard]] inline std::uint32_t encode(long double x, std::uint64_t random = 0) {
  std::uint64_t significand = 0;
  std::uint16_t top = 0;
  std::memcpy(&significand, &x, 8);
  std::memcpy(&top, reinterpret_cast<const unsigned char*>(&x) + 8, 2);
  const bool negative = (top >> 15) != 0;
  const int field = top & 0x7FFF;
  if (field == 0x7FFF) {
    return (significand << 1) != 0 ? nan_code<Format>(negative, significand << 1)
                                   : infinity_code<Format, O>(negative);
  }
  return round<Format, R, O>({negative, significand, (field == 0 ? 1 : field) - 16446}, random);
}

/// The exact value of a finite code.
template <class Format>
[[nodiscard]] constexpr Exact decode(std::uint32_t code) {
  constexpr std::uint32_t implied = 1U << Format::mantissa_bits;
  const std::uint32_t fraction = code & (implied - 1);
  const auto field = static_cast<int>((code & ~Format::sign_code) >> Format::mantissa_bits);
  const bool negative = (code & Format::sign_code) != 0;
  constexpr int last =
      Format::min_exponent - Format::mantissa_bits;  // exponent of the smallest subnormal
  if (field == 0) return {negative, fraction, last};
  return {negative, fraction | implied, last + field - 1};
}

/// A code as a float: exact for every format no wider than float in either part. A signalling NaN
/// is quietened where the mantissa widens through the F16C rule, that is, unless the exponent field
/// is float's own: there the code is float's top half and is only shifted.
template <class Format>
[[nodiscard]] constexpr float widen(std::uint32_t code) {
  const std::uint32_t sign = (code & Format::sign_code) << (32 - Format::bits);
  const std::uint32_t magnitude = code & (Format::sign_code - 1);
  if constexpr (Format::exponent_bits == 8) {
    return std::bit_cast<float>(sign | (magnitude << (23 - Format::mantissa_bits)));
  } else {
    constexpr int shift = 23 - Format::mantissa_bits;
    if (magnitude >= Format::infinity_code) {
      const std::uint32_t quiet = magnitude > Format::infinity_code ? 0x40'0000U : 0U;
      return std::bit_cast<float>(sign | 0x7F80'0000U | quiet |
                                  ((magnitude - Format::infinity_code) << shift));
    }
    if ((magnitude >> Format::mantissa_bits) != 0) {
      return std::bit_cast<float>(
          sign | ((magnitude << shift) + (static_cast<std::uint32_t>(127 - Format::bias) << 23)));
    }
    if (magnitude == 0) return std::bit_cast<float>(sign);
    // A subnormal is a normal float: move its leading one into the implied place.
    const int lead = std::countl_zero(magnitude) - 8;
    const auto field =
        static_cast<std::uint32_t>(127 + Format::min_exponent - Format::mantissa_bits + 23 - lead);
    return std::bit_cast<float>(sign | ((field << 23) + ((magnitude << lead) & 0x7F'FFFFU)));
  }
}

/// A code as a double, exactly; integers make the subnormals, which DAZ would read as zero if they
/// came through float.
template <class Format>
[[nodiscard]] constexpr double widen_to_double(std::uint32_t code) {
  constexpr int last = Format::min_exponent - Format::mantissa_bits;
  constexpr auto unit = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + last) << 52);
  const std::uint32_t magnitude = code & (Format::sign_code - 1);
  if ((magnitude >> Format::mantissa_bits) != 0) return static_cast<double>(widen<Format>(code));
  const auto sign = static_cast<std::uint64_t>(code & Format::sign_code) << (64 - Format::bits);
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(static_cast<double>(magnitude) * unit) |
                               sign);
}

/// encode<Format>(float) for nearest-even, written for speed; the tests compare the two on all
/// inputs.
template <class Format>
[[nodiscard]] constexpr std::uint32_t narrow(float x) {
  constexpr int shift = 23 - Format::mantissa_bits;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 31) << (Format::bits - 1);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) {
    return sign | Format::nan_code | ((magnitude & 0x7F'FFFFU) >> shift);
  }
  const auto round_off = [](std::uint32_t m) {
    return (m + ((1U << (shift - 1)) - 1) + ((m >> shift) & 1U)) >> shift;
  };
  if constexpr (Format::exponent_bits == 8) {
    return sign | round_off(magnitude);  // subnormals and infinity have float's own layout
  } else {
    constexpr auto smallest_normal = static_cast<std::uint32_t>(127 + Format::min_exponent) << 23;
    if (magnitude >= smallest_normal) {
      const std::uint32_t code =
          round_off(magnitude - (static_cast<std::uint32_t>(127 - Format::bias) << 23));
      return sign | (code < Format::infinity_code ? code : Format::infinity_code);
    }
    return encode<Format>(x);
  }
}

/// The code of any integer, rounded once.
template <class Format, class Integer>
[[nodiscard]] constexpr std::uint32_t encode_integer(Integer x) {
  const bool negative = x < Integer{};
  const auto wide = static_cast<std::uint64_t>(x);
  return round<Format>({negative, negative ? std::uint64_t{0} - wide : wide, 0});
}

}  // namespace detail
}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
