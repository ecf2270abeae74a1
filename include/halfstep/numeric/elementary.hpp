// SPDX-License-Identifier: MIT
// exp, tanh, erf, log, sin, cos, pow and their kin for float, as one sequence of exactly rounded
// operations each, so that every compiler, CPU and optimisation level gives the same bits. libm's
// differ between machines. Needs IEEE arithmetic: under -ffast-math the errors grow. Not for
// arrays: the kernels repeat exp, tanh and erf lane by lane.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/numeric/elementary_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// What the steps below are made of; vector code that repeats them takes the constants from here.
/// Polynomials are given from the constant term up and evaluated by fma from the top.
namespace constants {
inline constexpr float log2e = 0x1.715476p+0F;
inline constexpr float ln2_high = 0x1.62e430p-1F;
inline constexpr float ln2_low = -0x1.05c610p-29F;  ///< ln 2 = ln2_high + ln2_low + 2^-55
inline constexpr float round_magic =
    0x1.8p+23F;  ///< x + m - m is x rounded to an integer, |x| < 2^22
inline constexpr float exp_max = 0x1.62e42ep+6F;  ///< largest x whose exp is finite, 88.72283
inline constexpr float exp_min =
    -0x1.5d589ep+6F;  ///< smallest x whose exp is at least 2^-126, -87.33654
/// (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2; error of exp 3e-9 relative before rounding.
inline constexpr float exp_poly[5] = {0x1.fffffcp-2F, 0x1.55549p-3F, 0x1.55591p-5F, 0x1.123a3cp-7F,
                                      0x1.6a0c4ap-10F};
inline constexpr float tanh_split = 0.625F;
inline constexpr float tanh_max = 10.0F;  ///< tanh rounds to 1 from 9.02 on
/// (tanh(x) / x - 1) / x^2 in x^2, on |x| < tanh_split; error of tanh 4e-9 relative.
inline constexpr float tanh_poly[5] = {-0x1.555532p-2F, 0x1.11072ap-3F, -0x1.b83ca6p-5F,
                                       0x1.522868p-6F, -0x1.75e95p-8F};
inline constexpr float erf_split = 0.84375F;
inline constexpr float erf_max = 4.0F;  ///< erf rounds to 1 from 3.92 on
/// erf(x) / x - 1 in x^2, on |x| < erf_split; error of erf 5e-9 relative.
inline constexpr float erf_poly[6] = {0x1.06eba8p-3F,  -0x1.81271cp-2F, 0x1.ce247cp-4F,
                                      -0x1.b72cd6p-6F, 0x1.4b53d4p-8F,  -0x1.4c8fc4p-11F};
/// log(erfc(x)) on [erf_split, erf_max]; error of erf 2e-9 relative.
inline constexpr float erf_tail_poly[7] = {-0x1.9ba43ap-14F, -0x1.20ca6cp+0F, -0x1.45df6ep-1F,
                                           -0x1.ac51ecp-4F,  0x1.71508ep-6F,  -0x1.99697ap-9F,
                                           0x1.ac6456p-13F};
}  // namespace constants

namespace detail {

/// Subnormal numbers count as zero, so that FTZ and DAZ change nothing.
[[nodiscard]] inline float flush(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7F80'0000U) == 0 ? std::bit_cast<float>(bits & 0x8000'0000U) : x;
}
[[nodiscard]] inline float with_sign(float magnitude, float sign) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) |
                              (std::bit_cast<std::uint32_t>(sign) & 0x8000'0000U));
}
[[nodiscard]] inline float magnitude(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7FFF'FFFFU);
}

/// One rounding of a result computed in double; below 2^-126 it is zero.
[[nodiscard]] inline float to_float(double x) {
  return std::fabs(x) < 0x1p-126 ? (std::signbit(x) ? -0.0F : 0.0F) : static_cast<float>(x);
}

/// c[0] + x (c[1] + x (…)), by fma.
template <int N>
[[nodiscard]] inline float polynomial(float x, const float (&c)[N]) {
  float sum = c[N - 1];
  for (int k = N - 2; k >= 0; --k)
    sum = core::fma(sum, x, c[k]);
  return sum;
}

/// exp without its ends: right for exp_min <= x <= exp_max, NaN for NaN, anything else outside.
[[nodiscard]] inline float exp_inside(float x) {
  const float shifted = core::rounded(core::rounded(x * constants::log2e) + constants::round_magic);
  const float n = core::rounded(shifted - constants::round_magic);
  float r = core::fma(n, -constants::ln2_high, x);
  r = core::fma(n, -constants::ln2_low, r);
  const float p = polynomial(r, constants::exp_poly);
  const float y = core::rounded(core::fma(p, core::rounded(r * r), r)) + 1.0F;
  // shifted's last bits are n. In two factors, because 2^128 is not a float; both products are
  // exact.
  const auto whole = static_cast<std::int32_t>(
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(constants::round_magic));
  const std::int32_t half = whole >> 1;
  const auto power = [](std::int32_t k) {
    return std::bit_cast<float>((static_cast<std::uint32_t>(k) + 127U) << 23);
  };
  return core::rounded(y * power(half)) *
         power(static_cast<std::int32_t>(static_cast<std::uint32_t>(whole) -
                                         static_cast<std::uint32_t>(half)));
}

}  // namespace detail

/// e^x. +inf above exp_max; +0 below exp_min, where the result would be subnormal; NaN for NaN.
/// Steps, for vector code; each sign is one rounded operation, and nothing else is fused:
///   n = round(x * log2e)                      to nearest even
///   r = fma(n, -ln2_high, x);  r = fma(n, -ln2_low, r)
///   p = exp_poly[4];  p = fma(p, r, exp_poly[3]);  …  p = fma(p, r, exp_poly[0])
///   s = r * r;  y = fma(p, s, r);  y = y + 1
///   y = y * 2^(n >> 1) * 2^(n - (n >> 1))     exact: the exponent may be added instead
///   y = x > exp_max ? inf : y;  y = x < exp_min ? 0 : y
/// Error below 1 ulp.
[[nodiscard]] inline float exp(float x) {
  float y = detail::exp_inside(x);
  y = x > constants::exp_max ? std::numeric_limits<float>::infinity() : y;
  return x < constants::exp_min ? 0.0F : y;
}

/// Hyperbolic tangent. Steps:
///   a = |x|;  z = a * a
///   p = tanh_poly[4];  p = fma(p, z, tanh_poly[3]);  …  p = fma(p, z, tanh_poly[0])
///   t = z * p;  small = fma(a, t, a)
///   b = tanh_max < a ? tanh_max : a;  e = exp(b + b), which needs no range ends
///   large = 1 - 2 / (e + 1)
///   the sign of x on (a < tanh_split ? small : large); NaN for NaN
/// A subnormal x counts as zero (under DAZ by itself). Error below 1.4 ulp.
[[nodiscard]] inline float tanh(float x) {
  x = detail::flush(x);
  const float a = detail::magnitude(x);
  const float z = core::rounded(a * a);
  const float t = core::rounded(z * detail::polynomial(z, constants::tanh_poly));
  const float small = core::fma(a, t, a);
  const float b = constants::tanh_max < a ? constants::tanh_max : a;
  const float e = core::rounded(detail::exp_inside(core::rounded(b + b)));
  const float large = 1.0F - core::rounded(2.0F / core::rounded(e + 1.0F));
  return detail::with_sign(a < constants::tanh_split ? small : large, x);
}

/// The error function. Steps:
///   a = |x|;  z = a * a
///   p = erf_poly[5];  p = fma(p, z, erf_poly[4]);  …  p = fma(p, z, erf_poly[0])
///   small = fma(a, p, a)
///   b = erf_max < a ? erf_max : a
///   q = erf_tail_poly[6];  q = fma(q, b, erf_tail_poly[5]);  …  q = fma(q, b, erf_tail_poly[0])
///   large = 1 - exp(q), which needs no range ends
///   the sign of x on (a < erf_split ? small : large); NaN for NaN
/// A subnormal x counts as zero (under DAZ by itself). Error below 1.2 ulp.
[[nodiscard]] inline float erf(float x) {
  x = detail::flush(x);
  const float a = detail::magnitude(x);
  const float z = core::rounded(a * a);
  const float small = core::fma(a, detail::polynomial(z, constants::erf_poly), a);
  const float b = constants::erf_max < a ? constants::erf_max : a;
  const float large =
      1.0F - core::rounded(detail::exp_inside(detail::polynomial(b, constants::erf_tail_poly)));
  return detail::with_sign(a < constants::erf_split ? small : large, x);
}

/// The rest compute in double and round once: error 0.5 ulp and a little. Subnormal arguments and
/// results count as zero of their sign; the ends are those of the double functions.
[[nodiscard]] inline float log(float x) {
  return detail::to_float(log(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float log2(float x) {
  return detail::to_float(log2(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float log1p(float x) {
  return detail::to_float(log1p(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float exp2(float x) {
  return detail::to_float(exp2(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float expm1(float x) {
  return detail::to_float(expm1(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float sin(float x) {
  return detail::to_float(sin(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float cos(float x) {
  return detail::to_float(cos(static_cast<double>(detail::flush(x))));
}
[[nodiscard]] inline float pow(float x, float y) {
  return detail::to_float(
      pow(static_cast<double>(detail::flush(x)), static_cast<double>(detail::flush(y))));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
