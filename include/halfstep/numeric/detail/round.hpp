// SPDX-License-Identifier: MIT
// The one place where a number becomes a small format: an exact source (sign, integer, power of
// two, "and a bit more") is rounded once to a code, in integers only, so that no rounding mode,
// FTZ, DAZ or -ffast-math can change it. Not for bulk data: those paths are in convert.hpp.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/rounding.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail {

/// A finite number: (-1)^negative * significand * 2^exponent, plus less than one unit of the
/// significand's last place if `sticky` (then significand is not 0).
struct Exact {
  bool negative = false;
  std::uint64_t significand = 0;
  int exponent = 0;
  bool sticky = false;
};

/// A magnitude with its sign. The scales have none: their negative numbers are NaN.
template <class Format>
[[nodiscard]] constexpr std::uint32_t with_sign(bool negative, std::uint32_t magnitude) {
  if (!negative) return magnitude;
  if constexpr (!Format::is_signed) return Format::nan_code;
  if constexpr (!Format::has_negative_zero)
    return magnitude == 0 ? 0 : Format::sign_code | magnitude;
  return Format::sign_code | magnitude;
}

/// What a zero becomes: NaN among the scales, which have none.
template <class Format>
[[nodiscard]] constexpr std::uint32_t zero_code(bool negative) {
  return Format::has_zero ? with_sign<Format>(negative, 0) : Format::nan_code;
}

/// What a NaN becomes: quiet, with the sign and the top payload bits that the format has room for,
/// as the hardware does. `payload` is its mantissa shifted to the top of 64 bits. A format without
/// NaN gives the zero of the other sign, as ml_dtypes does.
template <class Format>
[[nodiscard]] constexpr std::uint32_t nan_code(bool negative, std::uint64_t payload = 0) {
  if constexpr (!Format::has_nan) return negative ? 0 : Format::sign_code;
  std::uint32_t code = Format::nan_code | (negative ? Format::sign_code : 0);
  if constexpr (Format::has_infinity)
    code |= static_cast<std::uint32_t>(payload >> (64 - Format::mantissa_bits));
  return code;
}

/// What an infinity becomes.
template <class Format, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t infinity_code(bool negative) {
  if constexpr (O == Overflow::saturate || !Format::has_nan)
    return with_sign<Format>(negative, Format::max_code);
  if constexpr (!Format::has_infinity) return nan_code<Format>(negative);
  return with_sign<Format>(negative, Format::infinity_code);
}

/// What a finite value becomes that rounds beyond the largest one.
template <class Format, Rounding R, Overflow O>
[[nodiscard]] constexpr std::uint32_t overflow_code(bool negative) {
  if constexpr (O == Overflow::nan && Format::has_nan) {
    return nan_code<Format>(negative);
  } else if constexpr (O != Overflow::infinity || R == Rounding::toward_zero ||
                       R == Rounding::to_odd) {
    return with_sign<Format>(negative, Format::max_code);
  } else if constexpr (R == Rounding::up || R == Rounding::down) {
    if (negative == (R == Rounding::up)) return with_sign<Format>(negative, Format::max_code);
    return infinity_code<Format>(negative);
  } else {
    return infinity_code<Format>(negative);
  }
}

/// The magnitude of `x`, which is not 0, in Format, rounded once; beyond max_code it is more than
/// that. `random` is read by Rounding::stochastic alone: 64 uniform bits, so the probability is
/// exact wherever at most 64 bits are cut off, and less than 2^-64 too small elsewhere.
template <class Format, Rounding R>
[[nodiscard]] constexpr std::uint64_t round_magnitude(Exact x, std::uint64_t random = 0) {
  const int lead = std::countl_zero(x.significand);
  const std::uint64_t significand = x.significand << lead;
  const int exponent = x.exponent - lead;  // of the last bit of `significand`
  const int magnitude = exponent + 63;     // floor(log2 |x|)
  const int base = magnitude < Format::min_exponent ? Format::min_exponent : magnitude;
  if (base > Format::max_exponent) return std::uint64_t{Format::max_code} + 1;
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
  kept += away ? 1 : 0;
  // A carry out of the mantissa lands in the exponent, where it belongs.
  const auto field = static_cast<std::uint64_t>(base - Format::min_exponent);
  if constexpr (Format::has_zero) return (field << Format::mantissa_bits) + kept;
  // The exponent field of a scale counts from its smallest value, below which there is nothing.
  return field + (kept == 0 ? 0 : kept - 1);
}

/// The code of `x` in Format, rounded once.
template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity>
[[nodiscard]] constexpr std::uint32_t round(Exact x, std::uint64_t random = 0) {
  if (x.significand == 0) return zero_code<Format>(x.negative);
  const std::uint64_t magnitude = round_magnitude<Format, R>(x, random);
  if (magnitude > Format::max_code) return overflow_code<Format, R, O>(x.negative);
  return with_sign<Format>(x.negative, static_cast<std::uint32_t>(magnitude));
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
  const auto field = static_cast<int>((code & Format::magnitude_mask) >> Format::mantissa_bits);
  const bool negative = (code & Format::sign_code) != 0;
  constexpr int last =
      Format::min_exponent - Format::mantissa_bits;  // exponent of the smallest value's last bit
  if constexpr (!Format::has_zero) return {negative, 1, last + field};
  if (field == 0) return {negative, fraction, last};
  return {negative, fraction | implied, last + field - 1};
}

/// A code as the bits of a wider format with `Mantissa` stored bits and bias `Bias`, exactly.
template <class Format, class Bits, int Mantissa, int Bias>
[[nodiscard]] constexpr Bits widen_bits(std::uint32_t code) {
  constexpr int shift = Mantissa - Format::mantissa_bits;
  constexpr Bits infinity = static_cast<Bits>(2 * Bias + 1) << Mantissa;
  const Bits sign = static_cast<Bits>((code & Format::sign_code) != 0) << (sizeof(Bits) * 8 - 1);
  const Bits magnitude = code & Format::magnitude_mask;
  if (Format::is_nan(code)) {
    constexpr Bits payload = Format::has_infinity ? Format::quiet_bit * 2 - 1 : 0;
    return sign | infinity | (Bits{1} << (Mantissa - 1)) | ((magnitude & payload) << shift);
  }
  if (Format::is_infinity(code)) return sign | infinity;
  if ((magnitude >> Format::mantissa_bits) != 0 || (!Format::has_zero && Format::bias < Bias))
    return sign | ((magnitude << shift) + (static_cast<Bits>(Bias - Format::bias) << Mantissa));
  if constexpr (!Format::has_zero) return Bits{1} << (Mantissa - 1);  // 2^-127: subnormal
  if (magnitude == 0) return sign;
  // A subnormal is a normal number of the wider format: its leading one becomes the implied one.
  const int top = static_cast<int>(std::bit_width(magnitude)) - 1;
  const int field = Bias + Format::min_exponent - Format::mantissa_bits + top;
  return sign | ((static_cast<Bits>(field - 1) << Mantissa) + (magnitude << (Mantissa - top)));
}

/// A code as a float: exact for every format no wider than float in either part. A signalling NaN
/// is quietened, as F16C does, unless the exponent field is float's own: there the code is float's
/// top half and is only shifted.
template <class Format>
[[nodiscard]] constexpr float widen(std::uint32_t code) {
  if constexpr (Format::exponent_bits == 8 && Format::has_infinity) {
    return std::bit_cast<float>(code << (32 - Format::bits));
  } else {
    return std::bit_cast<float>(widen_bits<Format, std::uint32_t, 23, 127>(code));
  }
}

/// A code as a double, exactly.
template <class Format>
[[nodiscard]] constexpr double widen_to_double(std::uint32_t code) {
  return std::bit_cast<double>(widen_bits<Format, std::uint64_t, 52, 1023>(code));
}

/// encode<Format>(float) for nearest-even, written for speed; the tests compare the two on all
/// inputs.
template <class Format>
[[nodiscard]] constexpr std::uint32_t narrow(float x) {
  if constexpr (!Format::has_zero) return encode<Format>(x);
  constexpr int shift = 23 - Format::mantissa_bits;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const bool negative = (bits >> 31) != 0;
  const std::uint32_t sign = (bits >> 31) << (Format::bits - 1);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U)
    return nan_code<Format>(negative, std::uint64_t{magnitude & 0x7F'FFFFU} << 41);
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
      return code <= Format::max_code ? sign | code : infinity_code<Format>(negative);
    }
    constexpr auto half_smallest =
        static_cast<std::uint32_t>(126 + Format::min_exponent - Format::mantissa_bits) << 23;
    if (magnitude <= half_smallest) return with_sign<Format>(negative, 0);
    return encode<Format>(x);
  }
}

/// The code of any integer, rounded once.
template <class Format, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity,
          class Integer>
requires(sizeof(Integer) <= sizeof(std::uint64_t))
    [[nodiscard]] constexpr std::uint32_t encode_integer(Integer x, std::uint64_t random = 0) {
  const bool negative = x < Integer{};
  const auto wide = static_cast<std::uint64_t>(x);
  return round<Format, R, O>({negative, negative ? std::uint64_t{0} - wide : wide, 0}, random);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail
