// SPDX-License-Identifier: MIT
#include <halfstep/numeric/elementary.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>

namespace numeric = halfstep::numeric;

double oracle_error_float(int function, float x, float y, float got);
double oracle_error_double(int function, double x, double y, double got);

namespace {

constexpr float float_infinity = std::numeric_limits<float>::infinity();
constexpr double infinity = std::numeric_limits<double>::infinity();

enum Function { exp, tanh, erf, log, sin, cos, exp2, expm1, log1p, log2, pow };
constexpr const char* names[] = {"exp",  "tanh",  "erf",   "log",  "sin", "cos",
                                 "exp2", "expm1", "log1p", "log2", "pow"};

template <class T>
T call(int function, T x, T y = T{}) {
  switch (function) {
    case exp:
      return numeric::exp(x);
    case tanh:
      return numeric::tanh(x);
    case erf:
      return numeric::erf(x);
    case log:
      return numeric::log(x);
    case sin:
      return numeric::sin(x);
    case cos:
      return numeric::cos(x);
    case exp2:
      return numeric::exp2(x);
    case expm1:
      return numeric::expm1(x);
    case log1p:
      return numeric::log1p(x);
    case log2:
      return numeric::log2(x);
    default:
      return numeric::pow(x, y);
  }
}
double error_of(int function, float x, float y, float got) {
  return oracle_error_float(function, x, y, got);
}
double error_of(int function, double x, double y, double got) {
  return oracle_error_double(function, x, y, got);
}

/// The largest error over `count` draws from [low, high), and as many over all magnitudes in it.
template <class T>
void measure(int function, double low, double high, double bound, int count = 25000) {
  std::mt19937_64 random(static_cast<unsigned>(function));
  double worst = 0;
  T at = 0;
  for (int i = 0; i < count; ++i) {
    const double part = static_cast<double>(random() >> 11) * 0x1p-53;
    auto x = static_cast<T>(low + (high - low) * part);
    if (i % 4 == 3)
      x = static_cast<T>(static_cast<double>(x) *
                         std::ldexp(1.0, -static_cast<int>(random() % 60)));
    const double error = error_of(function, x, T{}, call(function, x));
    if (!(error <= worst)) {
      worst = error;
      at = x;
    }
  }
  std::printf("%-5s %s [%g, %g): %.3f ulp\n", names[function], sizeof(T) == 4 ? "float " : "double",
              low, high, worst);
  EXPECT_LE(worst, bound) << names[function] << std::hexfloat << " at " << at;
}

TEST(Elementary, FloatErrorsStayBelowTheirBounds) {
  measure<float>(exp, -90, 90, 1.0);
  measure<float>(tanh, -12, 12, 1.4);
  measure<float>(tanh, -1, 1, 1.4);
  measure<float>(erf, -5, 5, 1.2);
  measure<float>(erf, -1, 1, 1.2);
  for (const int f : {int{log}, int{log2}})
    measure<float>(f, 0, 4, 0.501), measure<float>(f, 0, 3e38, 0.501);
  for (const int f : {int{sin}, int{cos}})
    measure<float>(f, -20, 20, 0.501), measure<float>(f, -3e38, 3e38, 0.501, 20000);
  measure<float>(exp2, -130, 130, 0.501);
  measure<float>(expm1, -20, 90, 0.501);
  measure<float>(log1p, -1, 2, 0.501);
}

TEST(Elementary, DoubleErrorsStayBelowTheirBounds) {
  measure<double>(exp, -715, 715, 0.55);
  measure<double>(exp, -1, 1, 0.55);
  measure<double>(tanh, -22, 22, 0.6);
  measure<double>(tanh, -1, 1, 0.6);
  measure<double>(erf, -6.5, 6.5, 1.0);
  measure<double>(erf, -1.5, 1.5, 1.0);
  for (const int f : {int{log}, int{log2}}) {
    measure<double>(f, 0, 4, 0.51);
    measure<double>(f, 0.98, 1.02, 0.51);
    measure<double>(f, 0, 1e300, 0.51);
  }
  for (const int f : {int{sin}, int{cos}}) {
    measure<double>(f, -1, 1, 0.8);
    measure<double>(f, -100, 100, 0.8);
    measure<double>(f, -0x1p21, 0x1p21, 0.8);
    measure<double>(f, -1e300, 1e300, 0.8, 20000);
  }
  measure<double>(exp2, -1030, 1030, 0.55);
  measure<double>(expm1, -45, 45, 0.65);
  measure<double>(expm1, -1, 1, 0.65);
  measure<double>(log1p, -1, 2, 0.51);
  measure<double>(log1p, 0, 1e20, 0.51);
}

TEST(Elementary, PowErrorsStayBelowTheirBound) {
  std::mt19937_64 random(5);
  const auto part = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  double worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = i % 2 == 0 ? 0.5 + 1.5 * part()
                                : std::ldexp(1 + part(), static_cast<int>(random() % 120) - 60);
    const double y = (i % 2 == 0 ? 2000 : 40) * (part() - 0.5);
    const double error = oracle_error_double(pow, x, y, numeric::pow(x, y));
    ASSERT_LE(error, 0.65) << std::hexfloat << x << ' ' << y;
    worst = error > worst ? error : worst;
    const auto fx = static_cast<float>(x), fy = static_cast<float>(y);
    ASSERT_LE(oracle_error_float(pow, fx, fy, numeric::pow(fx, fy)), 0.501)
        << std::hexfloat << fx << ' ' << fy;
  }
  std::printf("pow   double: %.3f ulp\n", worst);
  // AdamW's bias corrections.
  for (int step = 1; step < 5000; ++step) {
    ASSERT_LE(oracle_error_double(pow, 0.999, step, numeric::pow(0.999, static_cast<double>(step))),
              0.65);
  }
}

// The worst-known near miss: 6381956970095103 * 2^797 is 2^-62 of pi / 2 away from a multiple of
// it.
TEST(Elementary, AnglesAreReducedWhereTheyAreHardest) {
  const double x = std::ldexp(6381956970095103.0, 797);
  EXPECT_LE(oracle_error_double(cos, x, 0, numeric::cos(x)), 0.8);
  EXPECT_LE(oracle_error_double(sin, x, 0, numeric::sin(x)), 0.8);
  for (int n = 1; n < 3000; ++n) {
    const double near = n * 0x1.921fb54442d18p+0;
    ASSERT_LE(oracle_error_double(sin, near, 0, numeric::sin(near)), 0.8) << n;
    ASSERT_LE(oracle_error_double(cos, near, 0, numeric::cos(near)), 0.8) << n;
  }
}

TEST(Elementary, RangeEndsAreWhereTheHeaderSays) {
  const float max = numeric::constants::exp_max, min = numeric::constants::exp_min;
  EXPECT_TRUE(std::isfinite(numeric::exp(max)));
  EXPECT_EQ(numeric::exp(std::nextafter(max, 100.0F)), float_infinity);
  EXPECT_GE(numeric::exp(min), 0x1p-126F);
  EXPECT_EQ(numeric::exp(std::nextafter(min, -100.0F)), 0.0F);
  EXPECT_TRUE(std::isfinite(numeric::exp(0x1.62e42fefa39efp+9)));
  EXPECT_EQ(numeric::exp(std::nextafter(0x1.62e42fefa39efp+9, 1000.0)), infinity);
  EXPECT_GE(numeric::exp(-0x1.6232bdd7abcd2p+9), 0x1p-1022);
  EXPECT_EQ(numeric::exp(std::nextafter(-0x1.6232bdd7abcd2p+9, -1000.0)), 0.0);
  EXPECT_EQ(numeric::exp2(1023.0), 0x1p1023);
  EXPECT_EQ(numeric::exp2(1024.0), infinity);
  EXPECT_EQ(numeric::exp2(-1022.0), 0x1p-1022);
  EXPECT_EQ(numeric::exp2(-1022.5), 0.0);
  EXPECT_EQ(numeric::log2(0x1p-1022), -1022.0);
  EXPECT_EQ(numeric::expm1(-100.0), -1.0);
  EXPECT_EQ(numeric::log1p(-1.0), -infinity);
  EXPECT_EQ(numeric::exp(0.0F), 1.0F);
  EXPECT_EQ(numeric::log(1.0), 0.0);
}

template <class T>
void expect_special_values() {
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for (int f = exp; f <= log2; ++f)
    EXPECT_TRUE(std::isnan(call(f, nan))) << names[f];
  EXPECT_EQ(numeric::exp(inf), inf);
  EXPECT_EQ(numeric::exp(-inf), T{0});
  EXPECT_EQ(numeric::tanh(inf), T{1});
  EXPECT_EQ(numeric::tanh(-inf), T{-1});
  EXPECT_EQ(numeric::erf(inf), T{1});
  EXPECT_EQ(numeric::erf(-inf), T{-1});
  EXPECT_EQ(numeric::log(T{0}), -inf);
  EXPECT_EQ(numeric::log(inf), inf);
  EXPECT_TRUE(std::isnan(numeric::log(T{-1})));
  EXPECT_TRUE(std::isnan(numeric::sin(inf)));
  EXPECT_TRUE(std::isnan(numeric::cos(-inf)));
  EXPECT_TRUE(std::signbit(numeric::tanh(T{-0.0})) && std::signbit(numeric::erf(T{-0.0})) &&
              std::signbit(numeric::sin(T{-0.0})));
  EXPECT_EQ(numeric::pow(nan, T{0}), T{1});
  EXPECT_EQ(numeric::pow(T{1}, nan), T{1});
  EXPECT_EQ(numeric::pow(T{-2}, T{3}), T{-8});
  EXPECT_EQ(numeric::pow(T{-2}, T{4}), T{16});
  EXPECT_TRUE(std::isnan(numeric::pow(T{-2}, T{0.5})));
  EXPECT_EQ(numeric::pow(T{-0.0}, T{-3}), -inf);
  EXPECT_EQ(numeric::pow(T{-0.0}, T{-2}), inf);
  EXPECT_EQ(numeric::pow(-inf, T{3}), -inf);
  EXPECT_EQ(numeric::pow(T{0.5}, inf), T{0});
  EXPECT_EQ(numeric::pow(T{0.5}, -inf), inf);
  EXPECT_EQ(numeric::pow(T{-1}, inf), T{1});
  EXPECT_EQ(numeric::pow(T{10}, T{400}), inf);
}
TEST(Elementary, SpecialValuesAreThoseOfC) {
  expect_special_values<float>();
  expect_special_values<double>();
}

// Subnormal arguments and results count as zero, so the kernels' environment changes no bit. (The
// product at the end shows that the environment was there.)
TEST(Elementary, FlushingSubnormalsChangesNothing) {
  std::mt19937_64 random(3);
  const unsigned saved = halfstep::core::read_mxcsr();
  volatile float smallest = 0x1p-126F;
  for (int i = 0; i < 30000; ++i) {
    const auto r = random();
    volatile float x =
        std::bit_cast<float>(static_cast<std::uint32_t>(i % 4 == 0 ? r % 0x0180'0000 : r));
    volatile double d =
        i % 4 == 0 ? std::bit_cast<double>(r >> (64 - 54)) : std::bit_cast<double>(r);
    for (int f = exp; f <= pow; ++f) {
      const float plain = call(f, static_cast<float>(x), 1.5F);
      const double plain_double = call(f, static_cast<double>(d), 1.5);
      halfstep::core::write_mxcsr(halfstep::core::kernel_mxcsr);
      volatile float flushed = call(f, static_cast<float>(x), 1.5F);
      volatile double flushed_double = call(f, static_cast<double>(d), 1.5);
      halfstep::core::write_mxcsr(saved);
      if (!std::isnan(plain)) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(plain),
                  std::bit_cast<std::uint32_t>(static_cast<float>(flushed)))
            << names[f] << std::hexfloat << ' ' << x;
      }
      if (!std::isnan(plain_double)) {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(plain_double),
                  std::bit_cast<std::uint64_t>(static_cast<double>(flushed_double)))
            << names[f] << std::hexfloat << ' ' << d;
      }
    }
  }
  halfstep::core::write_mxcsr(halfstep::core::kernel_mxcsr);
  volatile float half = smallest * 0.5F;
  halfstep::core::write_mxcsr(saved);
  EXPECT_EQ(half, 0.0F);
}

TEST(NightlyElementary, ExpTanhAndErfOfEveryFloatStayBelowTheirBounds) {
  double worst[3] = {};
  std::int64_t inputs = 0;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; ++bits, ++inputs) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double want[3] = {std::exp(static_cast<double>(x)), std::tanh(static_cast<double>(x)),
                            std::erf(static_cast<double>(x))};
    for (int f = 0; f < 3; ++f) {
      const float got = call(f, x);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(got));
      } else if (std::fabs(want[f]) < 0x1p-126 || std::fabs(x) < 0x1p-126F) {
        if (f == exp) continue;
        ASSERT_LE(std::fabs(got), 0x1p-126F) << std::hexfloat << x;
      } else if (want[f] >= 0x1.ffffffp127) {
        ASSERT_EQ(got, float_infinity) << std::hexfloat << x;
      } else {
        int exponent = 0;
        (void)std::frexp(want[f], &exponent);
        const double error =
            std::ldexp(std::fabs(static_cast<double>(got) - want[f]), 24 - exponent);
        if (!(error <= worst[f])) worst[f] = error;
      }
    }
  }
  std::printf("%lld inputs, worst exp %.4f tanh %.4f erf %.4f ulp\n",
              static_cast<long long>(inputs), worst[0], worst[1], worst[2]);
  EXPECT_LE(worst[0], 1.0);
  EXPECT_LE(worst[1], 1.4);
  EXPECT_LE(worst[2], 1.2);
  EXPECT_EQ(inputs, std::int64_t{1} << 32);
}

}  // namespace
