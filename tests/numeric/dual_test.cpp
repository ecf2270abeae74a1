// SPDX-License-Identifier: MIT
#include <halfstep/numeric/dual.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

using halfstep::dual;
namespace numeric = halfstep::numeric;

namespace {

/// The tangent against a central difference in long double of libm's function.
template <class Ours, class Theirs>
void check(const char* name, Ours ours, Theirs theirs, double low, double high) {
  for (int i = 0; i <= 40; ++i) {
    const double x = low + (high - low) * i / 40;
    const auto y = ours(dual<double>(x, 3.0));
    const long double h = 1e-6L;
    const long double slope =
        (theirs(static_cast<long double>(x) + h) - theirs(static_cast<long double>(x) - h)) /
        (2 * h);
    const auto value = static_cast<double>(theirs(static_cast<long double>(x)));
    EXPECT_NEAR(y.value, value, 1e-14 * (1 + std::fabs(value))) << name << ' ' << x;
    EXPECT_NEAR(y.tangent, static_cast<double>(3 * slope),
                1e-9 * (1 + std::fabs(static_cast<double>(slope))))
        << name << ' ' << x;
  }
}

TEST(Dual, EveryFunctionHasTheTangentOfADifference) {
  using L = long double;
  using D = dual<double>;
  check(
      "exp", [](D x) { return exp(x); }, [](L x) { return std::exp(x); }, -3, 3);
  check(
      "expm1", [](D x) { return expm1(x); }, [](L x) { return std::expm1(x); }, -3, 3);
  check(
      "log", [](D x) { return log(x); }, [](L x) { return std::log(x); }, 0.1, 5);
  check(
      "log1p", [](D x) { return log1p(x); }, [](L x) { return std::log1p(x); }, -0.5, 5);
  check(
      "sqrt", [](D x) { return sqrt(x); }, [](L x) { return std::sqrt(x); }, 0.1, 5);
  check(
      "tanh", [](D x) { return tanh(x); }, [](L x) { return std::tanh(x); }, -3, 3);
  check(
      "erf", [](D x) { return erf(x); }, [](L x) { return std::erf(x); }, -3, 3);
  check(
      "sin", [](D x) { return sin(x); }, [](L x) { return std::sin(x); }, -5, 5);
  check(
      "cos", [](D x) { return cos(x); }, [](L x) { return std::cos(x); }, -5, 5);
  check(
      "pow", [](D x) { return pow(x, 2.5); }, [](L x) { return std::pow(x, 2.5L); }, 0.1, 4);
  check(
      "abs", [](D x) { return abs(x); }, [](L x) { return std::fabs(x); }, 0.1, 4);
  check(
      "quotient", [](D x) { return (x * x + D(1)) / (x - D(7)); },
      [](L x) { return (x * x + 1) / (x - 7); }, -3, 3);
}

TEST(Dual, ArithmeticIsConstexprAndFollowsTheRules) {
  constexpr dual<double> a(2, 1), b(3, 5);
  static_assert((a * b).value == 6 && (a * b).tangent == 2 * 5 + 1 * 3);
  static_assert((a + b).tangent == 6 && (a - b).tangent == -4 && (-a).tangent == -1);
  static_assert((b / a).value == 1.5 && (b / a).tangent == (5 - 1.5) / 2);
  static_assert((a * 4.0).tangent == 4 && (1.0 + a).tangent == 1);
  static_assert(a < b && a == dual<double>(2, 9) && max(a, b).tangent == 5 &&
                min(a, b).tangent == 1);
  static_assert(abs(-a).value == 2 && abs(-a).tangent == 1 && abs(dual<double>(0, 1)).tangent == 0);
}

TEST(Dual, ValuesHaveThePlainBits) {
  for (int i = -50; i <= 50; ++i) {
    const float x = static_cast<float>(i) * 0.137F;
    const auto same = [](float dual_value, float plain) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(dual_value), std::bit_cast<std::uint32_t>(plain));
    };
    same(exp(dual<float>(x, 1)).value, numeric::exp(x));
    same(tanh(dual<float>(x, 1)).value, numeric::tanh(x));
    same(erf(dual<float>(x, 1)).value, numeric::erf(x));
    same((dual<float>(x, 1) * dual<float>(0.3F, 2)).value, x * 0.3F);
  }
}

}  // namespace
