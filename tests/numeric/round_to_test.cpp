// SPDX-License-Identifier: MIT
#include <halfstep/numeric/round_to.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <type_traits>

#include <gtest/gtest.h>

#include <numeric/formats.hpp>

namespace {

using namespace halfstep_tests;
using halfstep::bf16;
using halfstep::fp16;
using halfstep::fp8_e4m3;
using halfstep::fp8_e4m3fnuz;
using halfstep::fp8_e5m2;
using halfstep::fp8_e8m0;
using halfstep::numeric::Overflow;
using halfstep::numeric::round_to;
using R = halfstep::numeric::Rounding;

template <class T>
class RoundTo : public testing::Test {};
TYPED_TEST_SUITE(RoundTo, Types<AllFormats>, NameOfFormat);

/// The code of the negative number of that magnitude; the scales have none.
template <class T>
std::uint32_t minus(std::uint32_t magnitude) {
  if (!T::format::is_signed) return T::format::nan_code;
  if (magnitude == 0 && !T::format::has_negative_zero) return 0;
  return T::format::sign_code | magnitude;
}

// Each policy against its definition, on points between all neighbours of a format: x and what is
// below and above it are doubles, which hold them exactly.
TYPED_TEST(RoundTo, EveryPolicyFollowsItsDefinitionBetweenAllNeighbours) {
  using T = TypeParam;
  int points = 0;
  for (std::uint32_t below = 0; below < T::format::max_code; ++below) {
    const std::uint32_t above = below + 1;
    const double low = static_cast<double>(code<T>(below));
    const double high = static_cast<double>(code<T>(above));
    for (const double part : {0.25, 0.5, 0.75}) {
      ++points;
      const double x = low + (high - low) * part;
      // The significand of every scale is 1: odd, so that a tie goes up and to_odd stays.
      const std::uint32_t even = T::format::has_zero && below % 2 == 0 ? below : above;
      const std::uint32_t odd = T::format::has_zero && below % 2 == 0 ? above : below;
      const std::uint32_t nearest = part < 0.5 ? below : part > 0.5 ? above : even;
      ASSERT_EQ(T{x}.bits(), nearest) << x;
      ASSERT_EQ(round_to<T>(x).bits(), nearest) << x;
      ASSERT_EQ(round_to<T>(-x).bits(), minus<T>(nearest)) << x;
      ASSERT_EQ(round_to<T>(static_cast<long double>(x)).bits(), nearest) << x;
      ASSERT_EQ(round_to<T>(static_cast<float>(x)).bits(), nearest) << x;
      ASSERT_EQ((round_to<T, R::nearest_away>(x)).bits(), part < 0.5 ? below : above) << x;
      ASSERT_EQ((round_to<T, R::toward_zero>(x)).bits(), below) << x;
      ASSERT_EQ((round_to<T, R::toward_zero>(-x)).bits(), minus<T>(below)) << x;
      ASSERT_EQ((round_to<T, R::up>(x)).bits(), above) << x;
      ASSERT_EQ((round_to<T, R::up>(-x)).bits(), minus<T>(below)) << x;
      ASSERT_EQ((round_to<T, R::down>(x)).bits(), below) << x;
      ASSERT_EQ((round_to<T, R::down>(-x)).bits(), minus<T>(above)) << x;
      ASSERT_EQ((round_to<T, R::to_odd>(x)).bits(), odd) << x;
      // Away from zero exactly for the share `part` of the random words.
      const auto threshold = static_cast<std::uint64_t>((1 - part) * 4) << 62;
      ASSERT_EQ((round_to<T, R::stochastic>(x, threshold)).bits(), above) << x;
      ASSERT_EQ((round_to<T, R::stochastic>(x, threshold - 1)).bits(), below) << x;
      ASSERT_EQ((round_to<T, R::stochastic>(-x, threshold)).bits(), minus<T>(above)) << x;
    }
    if (!T::format::has_zero && below == 0) continue;
    // What the format holds stays, whatever the policy and the word.
    ASSERT_EQ((round_to<T, R::up>(low)).bits(), below);
    ASSERT_EQ((round_to<T, R::to_odd>(low)).bits(), below);
    ASSERT_EQ((round_to<T, R::stochastic>(low, ~std::uint64_t{0})).bits(), below);
  }
  EXPECT_EQ(points, 3 * static_cast<int>(T::format::max_code));
}

// A float that keeps `kept` bits in the format and has 16 more: the average over all 65536 top
// halves of the word is the float itself.
TYPED_TEST(RoundTo, StochasticRoundingIsUnbiasedByEnumeration) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  std::int64_t words = 0;
  for (int i = 0; i < 24; ++i) {
    // Within 16 bits of the gap above a code; the first ones among the subnormals.
    const std::uint32_t below = static_cast<std::uint32_t>(i < 4 ? static_cast<std::uint64_t>(i)
                                                                 : random() % T::format::max_code);
    const double low = static_cast<double>(code<T>(below));
    const double gap = static_cast<double>(code<T>(below + 1)) - low;
    const double part = i % 5 == 0 ? 0x1p-16 : static_cast<double>(random() % 65536) * 0x1p-16;
    const double x = low + gap * part;
    double sum = 0, negative = 0;  // exact: at most 65536 times either neighbour
    for (std::uint64_t word = 0; word < 65536; ++word, ++words) {
      sum += static_cast<double>(round_to<T, R::stochastic>(x, word << 48)) - low;
      if constexpr (T::format::is_signed)
        negative += static_cast<double>(round_to<T, R::stochastic>(-x, word << 48)) + low;
    }
    ASSERT_EQ(sum, 65536 * part * gap) << x;
    if (T::format::is_signed) {
      ASSERT_EQ(negative, -sum) << x;
    }
  }
  std::printf("%s: %lld inputs, 0 mismatches, path scalar\n", name_of<T>,
              static_cast<long long>(words));
  EXPECT_EQ(words, 24 * 65536);
}

TYPED_TEST(RoundTo, TheLargestIsExceededAsTheOverflowPolicyAndTheRoundingSay) {
  using T = TypeParam;
  using F = typename T::format;
  using L = std::numeric_limits<T>;
  const std::uint32_t max = F::max_code, inf = L::infinity().bits();
  const std::uint32_t nan = F::has_nan ? F::nan_code : max;
  for (const double x : {1e60, HUGE_VAL}) {
    const bool finite = x < 1e70;
    EXPECT_EQ(round_to<T>(x).bits(), inf);
    EXPECT_EQ((round_to<T, R::nearest_away>(x)).bits(), inf);
    EXPECT_EQ((round_to<T, R::stochastic>(x, 0)).bits(), inf);
    EXPECT_EQ((round_to<T, R::up>(x)).bits(), inf);
    EXPECT_EQ((round_to<T, R::toward_zero>(x)).bits(), finite ? max : inf);
    EXPECT_EQ((round_to<T, R::to_odd>(x)).bits(), finite ? max : inf);
    EXPECT_EQ((round_to<T, R::down>(x)).bits(), finite ? max : inf);
    EXPECT_EQ((round_to<T, R::nearest_even, Overflow::saturate>(x)).bits(), max);
    EXPECT_EQ((round_to<T, R::up, Overflow::saturate>(x)).bits(), max);
    EXPECT_EQ((round_to<T, R::nearest_even, Overflow::nan>(x)).bits(), finite ? nan : inf);
    EXPECT_EQ((round_to<T, R::toward_zero, Overflow::nan>(x)).bits(), finite ? nan : inf);
    if constexpr (F::is_signed) {
      EXPECT_EQ((round_to<T, R::up>(-x)).bits(), finite ? minus<T>(max) : T{-HUGE_VAL}.bits());
      EXPECT_EQ((round_to<T, R::down>(-x)).bits(), T{-HUGE_VAL}.bits());
      EXPECT_EQ((round_to<T, R::nearest_even, Overflow::saturate>(-x)).bits(), minus<T>(max));
    }
  }
}

TYPED_TEST(RoundTo, WhatIsTinyGoesWhereThePolicySays) {
  using T = TypeParam;
  // The scales have no zero: there the smallest is as low as it goes.
  const std::uint32_t smallest = T::format::has_zero ? 1 : 0;
  EXPECT_EQ(round_to<T>(1e-300).bits(), 0);
  EXPECT_EQ((round_to<T, R::up>(1e-300)).bits(), smallest);
  EXPECT_EQ((round_to<T, R::up>(-1e-300)).bits(), minus<T>(0));
  EXPECT_EQ((round_to<T, R::down>(-1e-300)).bits(), minus<T>(1));
  EXPECT_EQ((round_to<T, R::to_odd>(1e-300)).bits(), smallest);
  EXPECT_EQ((round_to<T, R::stochastic>(1e-300, ~std::uint64_t{0})).bits(), 0);  // by under 2^-64
}

// Every source by every policy is one and the same rounding: integers, formats, float, double and
// long double agree where they hold the same number.
TYPED_TEST(RoundTo, EverySourceGivesWhatTheSameNumberGivesAsADouble) {
  using T = TypeParam;
  std::mt19937_64 random(9);
  const auto same = [&]<class From>(From x) {
    const std::uint64_t word = random();
    const double d = static_cast<double>(x);
    ASSERT_EQ((round_to<T, R::stochastic>(x, word)).bits(),
              (round_to<T, R::stochastic>(d, word)).bits());
    ASSERT_EQ((round_to<T, R::down>(x)).bits(), (round_to<T, R::down>(d)).bits());
    ASSERT_EQ((round_to<T, R::to_odd, Overflow::saturate>(x)).bits(),
              (round_to<T, R::to_odd, Overflow::saturate>(d)).bits());
    ASSERT_EQ((round_to<T, R::nearest_away, Overflow::nan>(x)).bits(),
              (round_to<T, R::nearest_away, Overflow::nan>(d)).bits());
  };
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t r = random();
    same(static_cast<std::int32_t>(r));
    same(static_cast<std::int64_t>(r) >> 12 >> (i % 50));
    same(static_cast<std::uint16_t>(r));
    same(static_cast<signed char>(r));
    const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(r >> 32));
    if (std::isnan(f)) continue;
    same(f);
    same(static_cast<long double>(f));
    const auto h = code<fp16>(static_cast<std::uint32_t>(r) & 0xFFFF);
    if (!isnan(h)) same(h);
    const auto b = code<bf16>(static_cast<std::uint32_t>(r) & 0xFFFF);
    if (!isnan(b)) same(b);
  }
}

TEST(RoundToCases, TheReferenceGuardsOfStochasticRounding) {
  const auto bits = [](std::uint32_t x) { return std::bit_cast<float>(x); };
  const std::uint64_t one = std::uint64_t{1} << 48, all = ~std::uint64_t{0};
  EXPECT_EQ((round_to<bf16, R::stochastic>(bits(0x7FFFFFFF), one)).bits(), 0x7FFF);  // not -0
  EXPECT_EQ((round_to<bf16, R::stochastic>(bits(0x7F800001), 0)).bits(), 0x7FC0);    // not inf
  EXPECT_EQ((round_to<bf16, R::stochastic>(bits(0x7F7FFFFF), 0)).bits(), 0x7F7F);
  EXPECT_EQ((round_to<bf16, R::stochastic>(bits(0x7F7FFFFF), one)).bits(), 0x7F80);
  EXPECT_EQ((round_to<bf16, R::stochastic, Overflow::saturate>(bits(0x7F7FFFFF), all)).bits(),
            0x7F7F);
}

// 1.125 * 2^-14 lies half way between two numbers of e5m2: half of the words round it up.
TEST(RoundToCases, StochasticRoundingToE5m2RoundsATieUpForHalfOfTheWords) {
  int up = 0;
  for (std::uint64_t word = 0; word < 65536; ++word)
    up += (round_to<fp8_e5m2, R::stochastic>(0x1.2p-14F, word << 48)).bits() == 0x05 ? 1 : 0;
  EXPECT_EQ(up, 32768);
}

// To odd and then to nearest is one rounding; nearest twice is not.
TEST(RoundToCases, ToOddMakesASecondRoundingHarmless) {
  const double x = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ((bf16{round_to<float, R::to_odd>(x)}.bits()), 0x3F81);
  EXPECT_EQ(bf16{round_to<float>(x)}.bits(), 0x3F80);
}

// float as a target, against the processor's own conversion.
TEST(RoundToCases, ToFloatIsTheProcessorsConversion) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000000; ++i) {
    const std::uint64_t r = random();
    const double x =
        i % 2 == 0 ? std::bit_cast<double>(r)
                   : std::ldexp(static_cast<double>(r >> 11), static_cast<int>(r % 320) - 210);
    if (std::isnan(x)) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(round_to<float>(x)),
              std::bit_cast<std::uint32_t>(static_cast<float>(x)))
        << x;
  }
  EXPECT_EQ((round_to<float, R::up>(1 + 0x1p-40)), 1 + 0x1p-23F);
  EXPECT_EQ((round_to<float, R::toward_zero>(1e300)), std::numeric_limits<float>::max());
}

TEST(RoundToCases, AreConstantExpressionsAndTakeNumbersOnly) {
  static_assert(round_to<fp8_e4m3, R::nearest_even, Overflow::saturate>(1000.0) == fp8_e4m3{448});
  static_assert(round_to<fp16>(1) == fp16{1} && round_to<float>(bf16{3}) == 3.0F);
  static_assert(!halfstep::numeric::roundable<const char*>);
}

}  // namespace
