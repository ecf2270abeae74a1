// SPDX-License-Identifier: MIT
// Sums and products of doubles with their rounding errors, and e^x and log x to some 64 bits built
// from them: what pow, tanh and the rest need to end within one rounding. Barriers keep compilers
// from simplifying the error terms away.
#pragma once

#include <bit>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail {

/// high + low, unevaluated; |low| at most half an ulp of high where normalised.
struct Pair {
  double high = 0;
  double low = 0;
};

/// a + b exactly.
[[nodiscard]] inline Pair two_sum(double a, double b) {
  const double sum = core::rounded(a + b);
  const double from_b = core::rounded(sum - a);
  const double lost_a = core::rounded(a - core::rounded(sum - from_b));
  const double lost_b = core::rounded(b - from_b);
  return {sum, core::rounded(lost_a + lost_b)};
}
/// a + b exactly, if |a| >= |b| or a is 0.
[[nodiscard]] inline Pair fast_two_sum(double a, double b) {
  const double sum = core::rounded(a + b);
  return {sum, core::rounded(b - core::rounded(sum - a))};
}
/// a * b exactly, short of underflow.
[[nodiscard]] inline Pair two_product(double a, double b) {
  const double product = core::rounded(a * b);
  return {product, core::fma(a, b, -product)};
}
[[nodiscard]] inline Pair multiply(Pair a, Pair b) {
  const Pair product = two_product(a.high, b.high);
  return fast_two_sum(product.high,
                      core::fma(a.high, b.low, core::fma(a.low, b.high, product.low)));
}
/// a / b to about 100 bits.
[[nodiscard]] inline Pair divide(Pair a, Pair b) {
  const double high = core::rounded(a.high / b.high);
  double rest = core::rounded(core::fma(-high, b.high, a.high) + a.low);
  rest = core::fma(-high, b.low, rest);
  return fast_two_sum(high, core::rounded(rest / b.high));
}

template <int N>
[[nodiscard]] inline double polynomial(double x, const double (&c)[N]) {
  double sum = c[N - 1];
  for (int k = N - 2; k >= 0; --k)
    sum = core::fma(sum, x, c[k]);
  return sum;
}

inline constexpr Pair ln2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
inline constexpr Pair log2e{0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
inline constexpr double round_magic = 0x1.8p+52;

/// x rounded to an integer, to nearest even; |x| < 2^51.
[[nodiscard]] inline double round_to_integer(double x) {
  return core::rounded(core::rounded(x + round_magic) - round_magic);
}

/// e^r - 1 to a relative 2^-60, for |r| <= 0.35.
[[nodiscard]] inline Pair expm1_small(Pair r) {
  // 1/3! … 1/14!; what is left out is below 0.35^14 / 15!, 2^-61 of the sum.
  static constexpr double c[12] = {1.0 / 6,         1.0 / 24,         1.0 / 120,
                                   1.0 / 720,       1.0 / 5040,       1.0 / 40320,
                                   1.0 / 362880,    1.0 / 3628800,    1.0 / 39916800,
                                   1.0 / 479001600, 1.0 / 6227020800, 1.0 / 87178291200};
  const Pair square = two_product(r.high, r.high);
  const double cube = core::rounded(square.high * r.high);
  const Pair sum = fast_two_sum(r.high, 0.5 * square.high);
  double low = core::fma(0.5, square.low, core::rounded(cube * polynomial(r.high, c)));
  low = core::fma(r.low, r.high, low);
  low = core::rounded(core::rounded(low + r.low) + sum.low);
  return fast_two_sum(sum.high, low);
}

/// e^x = 2^n (1 + rest).
struct ExpParts {
  double n = 0;
  Pair rest;
};
/// For |x| < 2^11; x.low may be up to a few ulp of x.high.
[[nodiscard]] inline ExpParts exp_parts(Pair x) {
  const double n = round_to_integer(core::rounded(x.high * log2e.high));
  const double exact =
      core::fma(-n, ln2.high, x.high);  // both are multiples of 2^-54, and it is below 0.35
  const double high = core::fma(-n, ln2.low, exact);
  const double low = core::fma(-n, ln2.low, core::rounded(exact - high));
  return {n, expm1_small(fast_two_sum(high, core::rounded(low + x.low)))};
}
/// 1 + x, normalised.
[[nodiscard]] inline Pair one_plus(Pair x) {
  const Pair sum = fast_two_sum(1.0, x.high);
  return fast_two_sum(sum.high, core::rounded(sum.low + x.low));
}

/// y * 2^n for 0.5 < y < 2 and |n| <= 1100: infinite at 2^1024, zero below 2^-1022.
[[nodiscard]] inline double scale(double y, double n) {
  const auto whole = static_cast<std::int64_t>(n);
  if (whole < (y < 1.0 ? -1021 : -1022)) return 0.0;
  const std::int64_t half = whole >> 1;
  const auto power = [](std::int64_t k) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  };
  return core::rounded(y * power(half)) * power(whole - half);
}

/// log(1 + f) to some 66 bits, for sqrt(1/2) - 1 <= f <= sqrt(2) - 1: 2 atanh(s), s = f / (2 + f).
[[nodiscard]] inline Pair log_one_plus(Pair f) {
  // 1/5 … 1/27; s^2 <= 0.0295, so the first one left out is 2^-67 of the sum.
  static constexpr double c[12] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                   1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27};
  constexpr Pair third{0x1.5555555555555p-2, 0x1.5555555555555p-56};
  Pair two_plus = fast_two_sum(2.0, f.high);
  two_plus.low = core::rounded(two_plus.low + f.low);
  const Pair s = divide(f, two_plus);
  const Pair z = multiply(s, s);
  const Pair first = multiply(z, third);
  const double more = core::rounded(core::rounded(z.high * z.high) * polynomial(z.high, c));
  Pair series = fast_two_sum(first.high, more);
  series.low = core::rounded(series.low + first.low);
  const Pair product = multiply(s, series);
  const Pair sum = fast_two_sum(s.high, product.high);
  const double low = core::rounded(sum.low + core::rounded(s.low + product.low));
  const Pair half = fast_two_sum(sum.high, low);
  return {2.0 * half.high, 2.0 * half.low};
}

/// x = 2^exponent * (1 + f), 1 + f between sqrt(1/2) and sqrt(2).
struct LogParts {
  double exponent = 0;
  Pair f;
};
/// For a positive normal x.high.
[[nodiscard]] inline LogParts log_split(Pair x) {
  constexpr std::uint64_t root_half = 0x3FE6'A09E'667F'3BCD;
  const auto bits = std::bit_cast<std::uint64_t>(x.high) - root_half;
  const auto exponent = static_cast<std::int64_t>(bits) >> 52;
  const double mantissa = std::bit_cast<double>((bits & 0xF'FFFF'FFFF'FFFF) + root_half);
  const double factor =
      exponent < -1000 || exponent > 1000
          ? 0.0  // x.low is not used at such sizes
          : std::bit_cast<double>(static_cast<std::uint64_t>(1023 - exponent) << 52);
  return {static_cast<double>(exponent),
          two_sum(core::rounded(mantissa - 1.0), core::rounded(x.low * factor))};
}
/// exponent * ln 2 + part.
[[nodiscard]] inline Pair add_exponent(double exponent, Pair part) {
  const Pair whole = two_product(exponent, ln2.high);
  const Pair sum = two_sum(whole.high, part.high);
  const double low = core::fma(exponent, ln2.low, core::rounded(whole.low + part.low));
  return fast_two_sum(sum.high, core::rounded(sum.low + low));
}
[[nodiscard]] inline Pair log_pair(Pair x) {
  const LogParts parts = log_split(x);
  return add_exponent(parts.exponent, log_one_plus(parts.f));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail
