// SPDX-License-Identifier: MIT
// The scalar behind bf16 and fp16: storage, conversions, arithmetic, comparison and classification
// of a binary format of at most 16 bits. Users name the formats (bf16.hpp, fp16.hpp). Not for
// arrays: convert.hpp and the kernels are.
#pragma once

#include <bit>
#include <cmath>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/detail/round.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// A number of a small binary format. `Format` is a numeric::IeeeFormat.
///
/// Conversions are explicit, both ways: an accidental one is a precision bug. Each rounds once, to
/// nearest even, from float, double, long double, every integer type and other formats. A NaN stays
/// a NaN: quietened, with its sign and top payload bits (what F16C and AVX-512-BF16 do).
///
/// Conversions, comparison, classification, fma, nextafter, parsing and printing are integer code:
/// the same under every rounding mode, FTZ, DAZ and -ffast-math.
///
/// + - * / and sqrt compute in float and round that: together one correct rounding, because float
/// has at least 2p + 2 bits for the p of these formats. That holds in the default environment. FTZ
/// and DAZ leave fp16 alone (its subnormals are normal floats) but change bf16, whose subnormals
/// are float's: DAZ reads them as zero, FTZ turns a result below 2^-126 into zero. Under another
/// rounding mode the float operation rounds by that mode first.
template <class Format>
struct small_float {
  using format = Format;

  small_float() = default;  ///< indeterminate, as for float; small_float{} is +0
  constexpr explicit small_float(float x)
      : code_(static_cast<std::uint16_t>(numeric::detail::narrow<Format>(x))) {}
  constexpr explicit small_float(double x)
      : code_(static_cast<std::uint16_t>(numeric::detail::encode<Format>(x))) {}
  explicit small_float(long double x)
      : code_(static_cast<std::uint16_t>(numeric::detail::encode<Format>(x))) {}
  template <std::integral Integer>
  constexpr explicit small_float(Integer x)
      : code_(static_cast<std::uint16_t>(numeric::detail::encode_integer<Format>(x))) {}
  template <class Other>
  requires(!std::same_as<Other, Format>) constexpr explicit small_float(small_float<Other> x)
      : small_float(static_cast<float>(x)) {}

  [[nodiscard]] static constexpr small_float from_bits(std::uint16_t code) {
    small_float x{};
    x.code_ = code;
    return x;
  }
  [[nodiscard]] constexpr std::uint16_t bits() const { return code_; }

  /// Exact for float, double and long double; integers as from float (toward zero).
  template <class Number>
  requires std::is_arithmetic_v<Number>
  [[nodiscard]] constexpr explicit operator Number() const {
    if constexpr (std::same_as<Number, bool>) {
      return (code_ & ~Format::sign_code) != 0;
    } else if constexpr (std::is_floating_point_v<Number> && !std::same_as<Number, float>) {
      return static_cast<Number>(numeric::detail::widen_to_double<Format>(code_));
    } else {
      return static_cast<Number>(numeric::detail::widen<Format>(code_));
    }
  }

  [[nodiscard]] constexpr small_float operator+() const { return *this; }
  [[nodiscard]] constexpr small_float operator-() const {
    return from_bits(static_cast<std::uint16_t>(code_ ^ Format::sign_code));
  }
  [[nodiscard]] friend constexpr small_float operator+(small_float a, small_float b) {
    return small_float(static_cast<float>(a) + static_cast<float>(b));
  }
  [[nodiscard]] friend constexpr small_float operator-(small_float a, small_float b) {
    return small_float(static_cast<float>(a) - static_cast<float>(b));
  }
  [[nodiscard]] friend constexpr small_float operator*(small_float a, small_float b) {
    return small_float(static_cast<float>(a) * static_cast<float>(b));
  }
  [[nodiscard]] friend constexpr small_float operator/(small_float a, small_float b) {
    return small_float(static_cast<float>(a) / static_cast<float>(b));
  }
  constexpr small_float& operator+=(small_float b) { return *this = *this + b; }
  constexpr small_float& operator-=(small_float b) { return *this = *this - b; }
  constexpr small_float& operator*=(small_float b) { return *this = *this * b; }
  constexpr small_float& operator/=(small_float b) { return *this = *this / b; }

  [[nodiscard]] friend constexpr bool operator==(small_float a, small_float b) {
    return !isnan(a) && !isnan(b) && a.order() == b.order();
  }
  [[nodiscard]] friend constexpr std::partial_ordering operator<=>(small_float a, small_float b) {
    if (isnan(a) || isnan(b)) return std::partial_ordering::unordered;
    return a.order() <=> b.order();
  }

  [[nodiscard]] friend constexpr bool isnan(small_float x) {
    return x.magnitude() > Format::infinity_code;
  }
  [[nodiscard]] friend constexpr bool isinf(small_float x) {
    return x.magnitude() == Format::infinity_code;
  }
  [[nodiscard]] friend constexpr bool isfinite(small_float x) {
    return x.magnitude() < Format::infinity_code;
  }
  [[nodiscard]] friend constexpr bool isnormal(small_float x) {
    return isfinite(x) && (x.magnitude() >> Format::mantissa_bits) != 0;
  }
  [[nodiscard]] friend constexpr bool signbit(small_float x) {
    return (x.code_ & Format::sign_code) != 0;
  }
  [[nodiscard]] friend constexpr small_float abs(small_float x) {
    return from_bits(static_cast<std::uint16_t>(x.magnitude()));
  }
  [[nodiscard]] friend constexpr small_float copysign(small_float x, small_float sign) {
    return from_bits(static_cast<std::uint16_t>(x.magnitude() | (sign.code_ & Format::sign_code)));
  }
  [[nodiscard]] friend small_float sqrt(small_float x) {
    return small_float(std::sqrt(static_cast<float>(x)));
  }

  /// a * b + c, rounded once: exact in integers before that. (Float is not wide enough for fp16,
  /// double not for bf16: 7 * 37 - 2^-60 is 258, not the tie that double sees.)
  [[nodiscard]] friend constexpr small_float fma(small_float a, small_float b, small_float c) {
    return from_bits(fused(a, b, c));
  }

  /// The neighbour of `from` in the direction of `to`; `to` if they are equal; NaN if either is.
  [[nodiscard]] friend constexpr small_float nextafter(small_float from, small_float to) {
    if (isnan(from)) return quiet(from);
    if (isnan(to)) return quiet(to);
    if (from == to) return to;
    if (from.magnitude() == 0) {
      return from_bits(static_cast<std::uint16_t>((to.code_ & Format::sign_code) | 1U));
    }
    const bool outward = (from.order() < to.order()) != signbit(from);
    return from_bits(static_cast<std::uint16_t>(outward ? from.code_ + 1U : from.code_ - 1U));
  }

  /// IEEE 754's total order: -NaN < -inf < … < -0 < +0 < … < inf < NaN.
  [[nodiscard]] friend constexpr bool totally_before(small_float a, small_float b) {
    const auto key = [](small_float x) {
      return signbit(x) ? -1 - static_cast<std::int32_t>(x.magnitude())
                        : static_cast<std::int32_t>(x.magnitude());
    };
    return key(a) < key(b);
  }

 private:
  [[nodiscard]] constexpr std::uint32_t magnitude() const {
    return code_ & (Format::sign_code - 1);
  }
  [[nodiscard]] constexpr std::int32_t order() const {
    const auto m = static_cast<std::int32_t>(magnitude());
    return (code_ & Format::sign_code) != 0 ? -m : m;
  }
  [[nodiscard]] static constexpr small_float quiet(small_float x) {
    return from_bits(static_cast<std::uint16_t>(x.code_ | Format::quiet_bit));
  }
  [[nodiscard]] static constexpr std::uint16_t fused(small_float a, small_float b, small_float c);

  std::uint16_t code_;
};

template <class Format>
constexpr std::uint16_t small_float<Format>::fused(small_float a, small_float b, small_float c) {
  constexpr auto invalid =
      static_cast<std::uint16_t>(Format::sign_code | Format::nan_code);  // as x86 makes it
  if (isnan(a)) return quiet(a).code_;
  if (isnan(b)) return quiet(b).code_;
  if (isnan(c)) return quiet(c).code_;
  const bool negative = signbit(a) != signbit(b);
  if (isinf(a) || isinf(b)) {
    if (a.magnitude() == 0 || b.magnitude() == 0 || (isinf(c) && signbit(c) != negative))
      return invalid;
    return static_cast<std::uint16_t>((negative ? Format::sign_code : 0) | Format::infinity_code);
  }
  if (isinf(c)) return c.code_;
  const auto x = numeric::detail::decode<Format>(a.code_);
  const auto y = numeric::detail::decode<Format>(b.code_);
  const auto z = numeric::detail::decode<Format>(c.code_);
  numeric::detail::Exact high{negative, x.significand * y.significand, x.exponent + y.exponent};
  numeric::detail::Exact low = z;
  if (high.significand == 0) {
    if (low.significand == 0)
      return static_cast<std::uint16_t>(negative && signbit(c) ? Format::sign_code : 0U);
    return c.code_;
  }
  if (low.significand == 0) return static_cast<std::uint16_t>(numeric::detail::round<Format>(high));
  // Both with the leading one at bit 61, so that their sum fits; then the smaller one is shifted
  // down to the larger one's exponent. What falls off is kept as "a bit more": after a shift that
  // long the difference has far more bits than the format, so one unit of it decides nothing but
  // ties.
  for (auto* part : {&high, &low}) {
    const int shift = std::countl_zero(part->significand) - 2;
    part->significand <<= shift;
    part->exponent -= shift;
  }
  if (high.exponent < low.exponent ||
      (high.exponent == low.exponent && high.significand < low.significand)) {
    const auto swap = high;
    high = low;
    low = swap;
  }
  const int distance = high.exponent - low.exponent;
  const std::uint64_t shifted = distance < 64 ? low.significand >> distance : 0;
  const bool sticky = distance >= 64 || (shifted << distance) != low.significand;
  if (high.negative == low.negative) {
    high.significand += shifted;
  } else {
    high.significand -= shifted + (sticky ? 1 : 0);
    if (high.significand == 0) return 0;  // x - x is +0
  }
  high.sticky = sticky;
  return static_cast<std::uint16_t>(numeric::detail::round<Format>(high));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG

/// Equal values have equal hashes: +0 and -0 too.
template <class Format>
struct std::hash<halfstep::small_float<Format>> {
  [[nodiscard]] std::size_t operator()(halfstep::small_float<Format> x) const noexcept {
    return std::hash<std::uint16_t>{}(static_cast<bool>(x) ? x.bits() : std::uint16_t{0});
  }
};

template <class Format>
class std::numeric_limits<halfstep::small_float<Format>> {
  using T = halfstep::small_float<Format>;
  static constexpr T code(std::uint32_t bits) {
    return T::from_bits(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr std::float_denorm_style has_denorm = std::denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr bool is_iec559 = true;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int radix = 2;
  static constexpr int digits = Format::mantissa_bits + 1;
  // log10(2) = 0.30103 to five digits, enough for floor and ceil at these sizes (tests: literals).
  static constexpr int digits10 = (digits - 1) * 30103 / 100000;
  static constexpr int max_digits10 = digits * 30103 / 100000 + 2;
  static constexpr int min_exponent = Format::min_exponent + 1;
  static constexpr int min_exponent10 = -((-Format::min_exponent) * 30103 / 100000);
  static constexpr int max_exponent = Format::bias + 1;
  static constexpr int max_exponent10 = max_exponent * 30103 / 100000;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;

  [[nodiscard]] static constexpr T min() noexcept { return code(1U << Format::mantissa_bits); }
  [[nodiscard]] static constexpr T lowest() noexcept {
    return code(Format::sign_code | Format::max_code);
  }
  [[nodiscard]] static constexpr T max() noexcept { return code(Format::max_code); }
  [[nodiscard]] static constexpr T epsilon() noexcept {
    return code(static_cast<std::uint32_t>(Format::bias - Format::mantissa_bits)
                << Format::mantissa_bits);
  }
  [[nodiscard]] static constexpr T round_error() noexcept {
    return code(static_cast<std::uint32_t>(Format::bias - 1) << Format::mantissa_bits);
  }
  [[nodiscard]] static constexpr T infinity() noexcept { return code(Format::infinity_code); }
  [[nodiscard]] static constexpr T quiet_NaN() noexcept { return code(Format::nan_code); }
  [[nodiscard]] static constexpr T signaling_NaN() noexcept {
    return code(Format::infinity_code | (Format::quiet_bit >> 1));
  }
  [[nodiscard]] static constexpr T denorm_min() noexcept { return code(1); }
};
