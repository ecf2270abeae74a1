// SPDX-License-Identifier: MIT
// The scalar behind bf16, fp16 and the fp8 formats: storage, conversions, arithmetic, comparison
// and classification of a binary format of at most 16 bits. Users name the formats (bf16.hpp,
// fp16.hpp, fp8_e4m3.hpp, fp8_e5m2.hpp, minifloat.hpp). Not for arrays: convert.hpp and the kernels
// are.
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

/// A number of a small binary format. `Format` is a numeric::BinaryFormat.
///
/// Conversions are explicit, both ways: an accidental one is a precision bug. Each rounds once, to
/// nearest even, from float, double, long double, every integer type and other formats; what is too
/// large becomes infinity, or NaN in a format without one, or the largest value in a format without
/// either. numeric::round_to has the other policies. A NaN stays a NaN: quietened, with its sign
/// and top payload bits where the format has them (what F16C and AVX-512-BF16 do).
///
/// Conversions, comparison, classification, fma, nextafter, parsing and printing are integer code:
/// the same under every rounding mode, FTZ, DAZ and -ffast-math.
///
/// + - * / and sqrt compute in float and round that: together one correct rounding, because float
/// has at least 2p + 2 bits for the p of these formats. That holds in the default environment. FTZ
/// and DAZ leave formats of 5 exponent bits and fewer alone (their subnormals are normal floats)
/// but change bf16, whose subnormals are float's: DAZ reads them as zero, FTZ turns a result below
/// 2^-126 into zero. Under another rounding mode the float operation rounds by that mode first.
///
/// The scales (fp8_e8m0) compute in double, for the same reason, and have no unary minus: their
/// zeros and negative results are NaN.
template <class Format>
struct small_float {
  using format = Format;
  using storage = typename Format::storage;
  /// What arithmetic computes in.
  using wide = std::conditional_t<Format::has_zero, float, double>;

  small_float() = default;  ///< indeterminate, as for float; small_float{} is code 0
  constexpr explicit small_float(float x)
      : code_(static_cast<storage>(numeric::detail::narrow<Format>(x))) {}
  constexpr explicit small_float(double x)
      : code_(static_cast<storage>(numeric::detail::encode<Format>(x))) {}
  explicit small_float(long double x)
      : code_(static_cast<storage>(numeric::detail::encode<Format>(x))) {}
  /// Of at most 64 bits: a wider one, which some compilers' modes know, does not compile.
  template <std::integral Integer>
  requires(sizeof(Integer) <= 8) constexpr explicit small_float(Integer x)
      : code_(static_cast<storage>(numeric::detail::encode_integer<Format>(x))) {}
  template <class Other>
  requires(!std::same_as<Other, Format>) constexpr explicit small_float(small_float<Other> x)
      : small_float(static_cast<float>(x)) {}

  /// Bits above the format's own are dropped (6 and 4 bits are stored in 8).
  [[nodiscard]] static constexpr small_float from_bits(storage code) {
    small_float x{};
    x.code_ = static_cast<storage>(code & (Format::magnitude_mask | Format::sign_code));
    return x;
  }
  [[nodiscard]] constexpr storage bits() const { return code_; }

  /// Exact for float, double and long double; integers as from float: toward zero, and undefined
  /// where the integer type has no such value. bool is whether it is not zero.
  template <class Number>
  requires std::is_arithmetic_v<Number>
  [[nodiscard]] constexpr explicit operator Number() const {
    if constexpr (std::same_as<Number, bool>) {
      return !iszero(*this);
    } else if constexpr (std::is_floating_point_v<Number> && !std::same_as<Number, float>) {
      return static_cast<Number>(numeric::detail::widen_to_double<Format>(code_));
    } else {
      return static_cast<Number>(numeric::detail::widen<Format>(code_));
    }
  }

  [[nodiscard]] constexpr small_float operator+() const { return *this; }
  [[nodiscard]] constexpr small_float operator-() const requires(Format::is_signed) {
    if (!Format::has_negative_zero && magnitude() == 0) return *this;
    return from_bits(static_cast<storage>(code_ ^ Format::sign_code));
  }
  [[nodiscard]] friend constexpr small_float operator+(small_float a, small_float b) {
    return small_float(static_cast<wide>(a) + static_cast<wide>(b));
  }
  [[nodiscard]] friend constexpr small_float operator-(small_float a, small_float b) {
    return small_float(static_cast<wide>(a) - static_cast<wide>(b));
  }
  [[nodiscard]] friend constexpr small_float operator*(small_float a, small_float b) {
    return small_float(static_cast<wide>(a) * static_cast<wide>(b));
  }
  [[nodiscard]] friend constexpr small_float operator/(small_float a, small_float b) {
    return small_float(static_cast<wide>(a) / static_cast<wide>(b));
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

  [[nodiscard]] friend constexpr bool isnan(small_float x) { return Format::is_nan(x.code_); }
  [[nodiscard]] friend constexpr bool isinf(small_float x) { return Format::is_infinity(x.code_); }
  [[nodiscard]] friend constexpr bool isfinite(small_float x) { return !isnan(x) && !isinf(x); }
  [[nodiscard]] friend constexpr bool iszero(small_float x) {
    return Format::has_zero && x.magnitude() == 0 && !isnan(x);
  }
  [[nodiscard]] friend constexpr bool isnormal(small_float x) {
    return isfinite(x) && (!Format::has_zero || (x.magnitude() >> Format::mantissa_bits) != 0);
  }
  [[nodiscard]] friend constexpr bool signbit(small_float x) {
    return (x.code_ & Format::sign_code) != 0;
  }
  [[nodiscard]] friend constexpr small_float abs(small_float x) {
    return isnan(x) && !Format::has_negative_zero ? x
                                                  : from_bits(static_cast<storage>(x.magnitude()));
  }
  [[nodiscard]] friend constexpr small_float copysign(small_float x, small_float sign) {
    const small_float size = abs(x);
    if (!Format::has_negative_zero && (iszero(x) || isnan(x))) return x;
    return from_bits(static_cast<storage>(size.code_ | (sign.code_ & Format::sign_code)));
  }
  [[nodiscard]] friend small_float sqrt(small_float x) {
    return small_float(std::sqrt(static_cast<wide>(x)));
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
    if (iszero(from)) return from_bits(static_cast<storage>((to.code_ & Format::sign_code) | 1U));
    const bool outward = (from.order() < to.order()) != signbit(from);
    const std::uint32_t next = outward ? from.magnitude() + 1 : from.magnitude() - 1;
    return from_bits(static_cast<storage>(numeric::detail::with_sign<Format>(signbit(from), next)));
  }

  /// IEEE 754's total order: -NaN < -inf < … < -0 < +0 < … < inf < NaN. The one NaN of an fnuz
  /// format has its sign bit set and comes first.
  [[nodiscard]] friend constexpr bool totally_before(small_float a, small_float b) {
    const auto key = [](small_float x) {
      if (Format::specials == numeric::Specials::fnuz && isnan(x)) return -0x10000;
      return signbit(x) ? -1 - static_cast<std::int32_t>(x.magnitude())
                        : static_cast<std::int32_t>(x.magnitude());
    };
    return key(a) < key(b);
  }

 private:
  [[nodiscard]] constexpr std::uint32_t magnitude() const { return code_ & Format::magnitude_mask; }
  [[nodiscard]] constexpr std::int32_t order() const {
    const auto m = static_cast<std::int32_t>(magnitude());
    return (code_ & Format::sign_code) != 0 ? -m : m;
  }
  [[nodiscard]] static constexpr small_float quiet(small_float x) {
    return from_bits(static_cast<storage>(x.code_ | Format::quiet_bit));
  }
  [[nodiscard]] static constexpr storage fused(small_float a, small_float b, small_float c);

  storage code_;
};

template <class Format>
constexpr auto small_float<Format>::fused(small_float a, small_float b, small_float c) -> storage {
  constexpr auto stored = [](std::uint32_t code) { return static_cast<storage>(code); };
  if (isnan(a)) return quiet(a).code_;
  if (isnan(b)) return quiet(b).code_;
  if (isnan(c)) return quiet(c).code_;
  const bool negative = signbit(a) != signbit(b);
  if (isinf(a) || isinf(b)) {
    if (iszero(a) || iszero(b) || (isinf(c) && signbit(c) != negative))
      return stored(numeric::detail::nan_code<Format>(true));  // negative, as x86 makes it
    return stored(numeric::detail::infinity_code<Format>(negative));
  }
  if (isinf(c)) return c.code_;
  const auto x = numeric::detail::decode<Format>(a.code_);
  const auto y = numeric::detail::decode<Format>(b.code_);
  const auto z = numeric::detail::decode<Format>(c.code_);
  numeric::detail::Exact high{negative, x.significand * y.significand, x.exponent + y.exponent};
  numeric::detail::Exact low = z;
  if (high.significand == 0) {
    if (low.significand == 0)
      return stored(numeric::detail::zero_code<Format>(negative && signbit(c)));
    return c.code_;
  }
  if (low.significand == 0) return stored(numeric::detail::round<Format>(high));
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
  return stored(numeric::detail::round<Format>(high));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG

/// Equal values have equal hashes: +0 and -0 too.
template <class Format>
struct std::hash<halfstep::small_float<Format>> {
  [[nodiscard]] std::size_t operator()(halfstep::small_float<Format> x) const noexcept {
    return std::hash<std::uint16_t>{}(iszero(x) ? std::uint16_t{0} : x.bits());
  }
};

/// Where a format has no infinity, infinity() is what converting one gives; so for quiet_NaN().
template <class Format>
class std::numeric_limits<halfstep::small_float<Format>> {
  using T = halfstep::small_float<Format>;
  static constexpr T code(std::uint32_t bits) {
    return T::from_bits(static_cast<typename T::storage>(bits));
  }
  static constexpr T power_of_two(int exponent) {
    return code(halfstep::numeric::detail::round<Format>({false, 1, exponent}));
  }

 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = Format::is_signed;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = Format::has_infinity;
  static constexpr bool has_quiet_NaN = Format::has_nan;
  static constexpr bool has_signaling_NaN = Format::has_infinity;
  static constexpr std::float_denorm_style has_denorm =
      Format::has_zero ? std::denorm_present : std::denorm_absent;
  static constexpr bool has_denorm_loss = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr bool is_iec559 = Format::has_infinity;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int radix = 2;
  static constexpr int digits = Format::mantissa_bits + 1;
  // log10(2) = 0.30103 to five digits, enough for floor and ceil at these sizes (tests: literals).
  static constexpr int digits10 = (digits - 1) * 30103 / 100000;
  static constexpr int max_digits10 = digits * 30103 / 100000 + 2;
  static constexpr int min_exponent = Format::min_exponent + 1;
  static constexpr int min_exponent10 = -((-Format::min_exponent) * 30103 / 100000);
  static constexpr int max_exponent = Format::max_exponent + 1;
  static constexpr int max_exponent10 = max_exponent * 30103 / 100000;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;

  [[nodiscard]] static constexpr T min() noexcept {
    return code(Format::has_zero ? 1U << Format::mantissa_bits : 0U);
  }
  [[nodiscard]] static constexpr T lowest() noexcept {
    return Format::is_signed ? code(Format::sign_code | Format::max_code) : min();
  }
  [[nodiscard]] static constexpr T max() noexcept { return code(Format::max_code); }
  [[nodiscard]] static constexpr T epsilon() noexcept {
    return power_of_two(-Format::mantissa_bits);
  }
  [[nodiscard]] static constexpr T round_error() noexcept { return power_of_two(-1); }
  [[nodiscard]] static constexpr T infinity() noexcept {
    return code(halfstep::numeric::detail::infinity_code<Format>(false));
  }
  [[nodiscard]] static constexpr T quiet_NaN() noexcept {
    return code(halfstep::numeric::detail::nan_code<Format>(false));
  }
  [[nodiscard]] static constexpr T signaling_NaN() noexcept {
    return has_signaling_NaN ? code(Format::infinity_code | (Format::quiet_bit >> 1)) : quiet_NaN();
  }
  [[nodiscard]] static constexpr T denorm_min() noexcept {
    return Format::has_zero ? code(1) : min();
  }
};
