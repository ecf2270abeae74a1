// SPDX-License-Identifier: MIT
// Elementary functions for double: one sequence of exactly rounded operations each, the same bits
// with every compiler, CPU and optimisation level. They serve oracles, statistics and random
// numbers, and are written for accuracy, not for speed. float: elementary.hpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/numeric/detail/double_double.hpp>
#include <halfstep/numeric/detail/reduce_angle.hpp>

// For all of them: NaN for NaN; a subnormal argument or result counts as zero of its sign, so that
// FTZ and DAZ change nothing; the caller rounds to nearest and does not compile with -ffast-math.
// Largest error measured: 0.53 ulp for exp, exp2, log, log2 and log1p, 0.61 for expm1, tanh and
// pow, 0.76 for sin and cos, 0.96 for erf.

namespace halfstep::inline HALFSTEP_CONFIG::numeric {
namespace detail {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

[[nodiscard]] inline double flush(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return (bits & 0x7FF0'0000'0000'0000) == 0 ? std::bit_cast<double>(bits & 0x8000'0000'0000'0000)
                                             : x;
}
[[nodiscard]] inline double magnitude(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7FFF'FFFF'FFFF'FFFF);
}
[[nodiscard]] inline double with_sign(double size, double sign) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(size) |
                               (std::bit_cast<std::uint64_t>(sign) & 0x8000'0000'0000'0000));
}

/// e^x for |x.high| < 2^11, infinite and zero at the ends.
[[nodiscard]] inline double exp_pair(Pair x) {
  const ExpParts parts = exp_parts(x);
  return scale(one_plus(parts.rest).high, parts.n);
}

/// sin (odd = 0) or cos (odd = 1) of a reduced angle.
[[nodiscard]] inline double sine_or_cosine(Pair r, bool cosine) {
  // 1/3! … 1/19! and 1/4! … 1/18! with their signs; left out is below 2^-62 of the result.
  static constexpr double odd[9] = {-1.0 / 6,
                                    1.0 / 120,
                                    -1.0 / 5040,
                                    1.0 / 362880,
                                    -1.0 / 39916800,
                                    1.0 / 6227020800,
                                    -1.0 / 1307674368000,
                                    1.0 / 355687428096000,
                                    -1.0 / 121645100408832000};
  static constexpr double even[8] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const Pair z = two_product(r.high, r.high);
  if (!cosine) {
    const double cube = core::rounded(z.high * r.high);
    // sin(h + l) = sin h + l cos h, and cos h is 1 - h^2 / 2 as closely as l needs.
    const double low = core::fma(r.low, core::fma(-0.5, z.high, 1.0),
                                 core::rounded(cube * polynomial(z.high, odd)));
    return r.high + low;
  }
  const Pair main = fast_two_sum(1.0, -0.5 * z.high);
  const double fourth = core::rounded(core::rounded(z.high * z.high) * polynomial(z.high, even));
  double low = core::fma(-r.high, r.low, fourth);
  low = core::fma(-0.5, z.low, low);
  return main.high + core::rounded(main.low + low);
}
[[nodiscard]] inline double turn(double x, int quarter) {
  const Angle angle = reduce_angle(x);
  const int quadrant = (angle.quadrant + quarter) & 3;
  const double y = core::rounded(sine_or_cosine(angle.rest, (quadrant & 1) != 0));
  return quadrant >= 2 ? -y : y;
}

}  // namespace detail

/// e^x; +inf above 709.782712893384, +0 below -708.396418532264.
[[nodiscard]] inline double exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 0x1.62e42fefa39efp+9) return detail::infinity;
  if (x < -0x1.6232bdd7abcd2p+9) return 0.0;
  return detail::exp_pair({x, 0.0});
}

/// 2^x; exact for integers; +inf from 1024 on, +0 below -1022.
[[nodiscard]] inline double exp2(double x) {
  if (std::isnan(x)) return x;
  if (x >= 1024.0) return detail::infinity;
  if (x < -1022.0) return 0.0;
  const double n = detail::round_to_integer(x);
  const double part = core::rounded(x - n);
  const detail::Pair r = detail::two_product(part, detail::ln2.high);
  const detail::Pair q = detail::expm1_small({r.high, core::fma(part, detail::ln2.low, r.low)});
  return detail::scale(detail::one_plus(q).high, n);
}

/// e^x - 1, accurate near 0 too; +inf and -1 at the ends.
[[nodiscard]] inline double expm1(double x) {
  x = detail::flush(x);
  if (std::isnan(x) || detail::magnitude(x) < 0x1p-54) return x;
  if (x > 40.0) return exp(x);
  if (x < -40.0) return -1.0;
  const detail::ExpParts parts = detail::exp_parts({x, 0.0});
  if (parts.n == 0.0) return parts.rest.high;
  const detail::Pair e = detail::one_plus(parts.rest);
  const detail::Pair minus = detail::two_sum(detail::scale(e.high, parts.n), -1.0);
  // low * 2^n, where n is small enough for one factor
  const double factor = std::bit_cast<double>(
      static_cast<std::uint64_t>(1023 + static_cast<std::int64_t>(parts.n)) << 52);
  return minus.high + core::fma(e.low, factor, minus.low);
}

/// Natural logarithm; -inf for 0, NaN below.
[[nodiscard]] inline double log(double x) {
  x = detail::flush(x);
  if (std::isnan(x) || x == detail::infinity) return x;
  if (x <= 0.0) return x == 0.0 ? -detail::infinity : detail::not_a_number;
  return detail::log_pair({x, 0.0}).high;
}

/// Exact for powers of two; ends as log's.
[[nodiscard]] inline double log2(double x) {
  x = detail::flush(x);
  if (std::isnan(x) || x == detail::infinity) return x;
  if (x <= 0.0) return x == 0.0 ? -detail::infinity : detail::not_a_number;
  const detail::LogParts parts = detail::log_split({x, 0.0});
  const detail::Pair part = detail::multiply(detail::log_one_plus(parts.f), detail::log2e);
  const detail::Pair sum = detail::two_sum(parts.exponent, part.high);
  return sum.high + core::rounded(sum.low + part.low);
}

/// log(1 + x), accurate near 0 too; -inf for -1, NaN below.
[[nodiscard]] inline double log1p(double x) {
  x = detail::flush(x);
  // Below 2^-54 it is x, and the steps below would underflow on their way there.
  if (std::isnan(x) || detail::magnitude(x) < 0x1p-54 || x == detail::infinity) return x;
  if (x <= -1.0) return x == -1.0 ? -detail::infinity : detail::not_a_number;
  return detail::log_pair(detail::two_sum(1.0, x)).high;
}

/// Of any finite double, however large; NaN for infinities.
[[nodiscard]] inline double sin(double x) {
  x = detail::flush(x);
  if (!std::isfinite(x)) return detail::not_a_number;
  return x == 0.0 ? x : detail::flush(detail::turn(x, 0));
}
[[nodiscard]] inline double cos(double x) {
  if (!std::isfinite(x)) return detail::not_a_number;
  return detail::turn(x, 1);
}

/// Hyperbolic tangent: (e^2a - 1) / (e^2a + 1) of pairs.
[[nodiscard]] inline double tanh(double x) {
  x = detail::flush(x);
  const double a = detail::magnitude(x);
  if (std::isnan(x) || a < 0x1p-28) return x;
  if (a > 20.0) return x < 0.0 ? -1.0 : 1.0;
  const detail::ExpParts parts = detail::exp_parts({2.0 * a, 0.0});
  detail::Pair minus = parts.rest;
  if (parts.n != 0.0) {
    const double factor = std::bit_cast<double>(
        static_cast<std::uint64_t>(1023 + static_cast<std::int64_t>(parts.n)) << 52);
    const detail::Pair e = detail::one_plus(parts.rest);
    minus = detail::two_sum(e.high * factor, -1.0);
    minus = detail::fast_two_sum(minus.high, core::fma(e.low, factor, minus.low));
  }
  detail::Pair plus = detail::two_sum(minus.high, 2.0);
  plus = detail::fast_two_sum(plus.high, core::rounded(plus.low + minus.low));
  return detail::with_sign(detail::divide(minus, plus).high, x);
}

/// The error function: x times a polynomial in x^2 below 1, 1 - exp(-x^2) times a polynomial in
/// (x - 2) / (x + 2) from there on, and 1 from 6 on. Both fitted here to 60 bits and more.
[[nodiscard]] inline double erf(double x) {
  static constexpr double small[13] = {
      0x1.06eba8214db69p-3,  -0x1.812746b0379e6p-2,  0x1.ce2f21a042b20p-4,  -0x1.b82ce31284996p-6,
      0x1.565bcd0db01f0p-8,  -0x1.c02db3d8ea78bp-11, 0x1.f9a321a0d1c4fp-14, -0x1.f4d1df33b814bp-17,
      0x1.b9def15814584p-20, -0x1.5f1d347f66a33p-23, 0x1.f7a3fa66d53d9p-27, -0x1.386a78e48875ap-30,
      0x1.0578ec7ce76dap-34};
  static constexpr double tail[16] = {
      0x1.058671b52c776p-2,   -0x1.b57034efd3f72p-2, 0x1.eeea7dc8a78b4p-3,   -0x1.437f0b68c0c2dp-4,
      0x1.e94715979efc1p-9,   0x1.ca95ed5348353p-8,  -0x1.bc25a47c0f451p-11, -0x1.016b5ce859a99p-10,
      0x1.6d5ef992ce722p-15,  0x1.6da96cfc21178p-13, 0x1.cdcbb13c187adp-16,  -0x1.cead4d30049cdp-16,
      -0x1.d46ad8c01ba35p-17, 0x1.6e20751733e57p-20, 0x1.ed77df296c2a3p-19,  0x1.4f23359f5aee8p-20};
  x = detail::flush(x);
  if (std::isnan(x) || x == 0.0) return x;
  const double a = detail::magnitude(x);
  if (a >= 6.0) return x < 0.0 ? -1.0 : 1.0;
  if (a < 1.0) return core::fma(x, detail::polynomial(core::rounded(a * a), small), x);
  const double w = core::rounded((a - 2.0) / (a + 2.0));
  const detail::Pair square = detail::two_product(a, a);
  const double e = core::rounded(detail::exp_pair({-square.high, -square.low}));
  return detail::with_sign(core::fma(-e, detail::polynomial(w, tail), 1.0), x);
}

namespace detail {
/// 0 for a fraction, 1 for an odd integer, 2 for an even one.
[[nodiscard]] inline int parity(double y) {
  const double size = magnitude(y);
  if (size >= 0x1p53) return 2;
  if (std::trunc(size) != size) return 0;
  return (static_cast<std::int64_t>(size) & 1) != 0 ? 1 : 2;
}
}  // namespace detail

/// x^y with C's special cases: 1 for y = 0 and for x = 1, NaN included; |x| = 0 or infinite and
/// y infinite by their limits, with x's sign if y is an odd integer; NaN for x < 0 and a fraction
/// y.
[[nodiscard]] inline double pow(double x, double y) {
  x = detail::flush(x);
  y = detail::flush(y);
  if (y == 0.0 || x == 1.0) return 1.0;
  if (std::isnan(x) || std::isnan(y)) return detail::not_a_number;
  const double a = detail::magnitude(x);
  if (std::isinf(y)) {
    if (a == 1.0) return 1.0;
    return (a > 1.0) == (y > 0.0) ? detail::infinity : 0.0;
  }
  const int parity = std::signbit(x) ? detail::parity(y) : 2;
  const double sign = parity == 1 ? -1.0 : 1.0;
  if (a == 0.0 || std::isinf(a)) return sign * ((a == 0.0) == (y > 0.0) ? 0.0 : detail::infinity);
  if (parity == 0) return detail::not_a_number;
  const detail::Pair logarithm = detail::log_pair({a, 0.0});
  const double rough = core::rounded(logarithm.high * y);
  if (rough > 710.0) return sign * detail::infinity;
  if (rough < -710.0) return sign * 0.0;
  const detail::Pair exponent = detail::two_product(logarithm.high, y);
  return sign * detail::exp_pair({exponent.high, core::fma(logarithm.low, y, exponent.low)});
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
