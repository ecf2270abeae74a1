// SPDX-License-Identifier: MIT
#include <halfstep/numeric/normal.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/isa.hpp>

namespace numeric = halfstep::numeric;

namespace {

// Moments of a million draws, against five standard errors of each.
TEST(Normal, HasTheMomentsOfTheNormalDistribution) {
  constexpr int n = 1000000;
  double sum[5] = {}, lag = 0, last = 0;
  for (int i = 0; i < n; ++i) {
    const double x = numeric::normal(1, 2, static_cast<std::uint64_t>(i));
    double power = x;
    for (int k = 1; k <= 4; ++k, power *= x)
      sum[k] += power;
    lag += x * last;
    last = x;
  }
  EXPECT_NEAR(sum[1] / n, 0, 5 * std::sqrt(1.0 / n));
  EXPECT_NEAR(sum[2] / n, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(sum[3] / n, 0, 5 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sum[4] / n, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_NEAR(lag / n, 0, 5 * std::sqrt(1.0 / n));
}

TEST(Normal, FillsItsCellsAndTailsAsErfSays) {
  constexpr int n = 1000000;
  int beyond[5] = {};
  for (int i = 0; i < n; ++i) {
    const float x = numeric::normal(3, 4, static_cast<std::uint64_t>(i));
    for (int k = 0; k < 5; ++k)
      beyond[k] += x > static_cast<float>(k) ? 1 : 0;
  }
  for (int k = 0; k < 5; ++k) {
    const double share = std::erfc(k / std::sqrt(2.0)) / 2;
    EXPECT_NEAR(beyond[k], share * n, 5 * std::sqrt(share * n) + 1) << k;
  }
}

TEST(Normal, IsAFunctionOfSeedStreamAndElement) {
  EXPECT_EQ(numeric::normal(1, 2, 3), numeric::normal(1, 2, 3));
  EXPECT_NE(numeric::normal(1, 2, 3), numeric::normal(2, 2, 3));
  EXPECT_NE(numeric::normal(1, 2, 3), numeric::normal(1, 3, 3));
  EXPECT_NE(numeric::normal(1, 2, 3), numeric::normal(1, 2, 2));
}

TEST(Normal, FillsArraysWithTheBitsOfEachDrawOnEveryPathFromAnyElementOn) {
  for (const auto isa : halfstep::core::available_isas()) {
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0} - 5000}) {
      std::vector<float> out(1001);
      numeric::fill_normal(isa, 5, 6, first, out);
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], numeric::normal(5, 6, first + i))
            << to_string(isa) << ' ' << first << ' ' << i;
    }
  }
}

// The definition once more, with libm in long double.
TEST(Normal, IsBoxAndMullersPairOfOneBlock) {
  for (std::uint64_t block = 0; block < 1000; ++block) {
    const auto w = halfstep::core::random_words4(7, 8, block);
    const long double u =
        (static_cast<long double>((std::uint64_t{w[1]} << 32) | w[0]) + 1) * 0x1p-64L;
    const long double turn =
        static_cast<long double>(((std::uint64_t{w[3]} << 32) | w[2]) >> 11) * 0x1p-53L;
    const long double radius = std::sqrt(-2 * std::log(u)),
                      angle = 2 * 3.14159265358979323846264L * turn;
    EXPECT_NEAR(numeric::normal(7, 8, 2 * block), static_cast<float>(radius * std::cos(angle)),
                1e-6);
    EXPECT_NEAR(numeric::normal(7, 8, 2 * block + 1), static_cast<float>(radius * std::sin(angle)),
                1e-6);
  }
}

}  // namespace
