// SPDX-License-Identifier: MIT
#include <halfstep/numeric/small_float.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

using halfstep::bf16;
using halfstep::fp16;
using halfstep::numeric::IeeeFormat;
using halfstep::numeric::Overflow;
using halfstep::numeric::Rounding;
namespace detail = halfstep::numeric::detail;

namespace {

using E5M2 = IeeeFormat<5, 2>;

template <class Format>
double value(std::uint32_t code) {
  return detail::widen_to_double<Format>(code);
}

/// Each policy against its definition, on points between all neighbours of a format: x and what is
/// below and above it are compared as doubles, which are exact.
template <class Format>
void expect_policies() {
  using R = Rounding;
  for (std::uint32_t code = 0; code < Format::max_code; ++code) {
    const double low = value<Format>(code), high = value<Format>(code + 1);
    for (const double part : {0.25, 0.5, 0.75}) {
      const double x = low + (high - low) * part;
      const std::uint32_t even = (code & 1) == 0 ? code : code + 1;
      const std::uint32_t nearest = part < 0.5 ? code : part > 0.5 ? code + 1 : even;
      const std::uint32_t s = Format::sign_code;
      ASSERT_EQ((detail::encode<Format, R::nearest_even>(x)), nearest) << x;
      ASSERT_EQ((detail::encode<Format, R::nearest_even>(-x)), s | nearest) << x;
      ASSERT_EQ((detail::encode<Format, R::nearest_away>(x)), part < 0.5 ? code : code + 1) << x;
      ASSERT_EQ((detail::encode<Format, R::toward_zero>(x)), code) << x;
      ASSERT_EQ((detail::encode<Format, R::toward_zero>(-x)), s | code) << x;
      ASSERT_EQ((detail::encode<Format, R::up>(x)), code + 1) << x;
      ASSERT_EQ((detail::encode<Format, R::up>(-x)), s | code) << x;
      ASSERT_EQ((detail::encode<Format, R::down>(x)), code) << x;
      ASSERT_EQ((detail::encode<Format, R::down>(-x)), s | (code + 1)) << x;
      ASSERT_EQ((detail::encode<Format, R::to_odd>(x)), code | 1) << x;
      // Away from zero exactly for the share `part` of the random words.
      const auto threshold = static_cast<std::uint64_t>((1 - part) * 4) << 62;
      ASSERT_EQ((detail::encode<Format, R::stochastic>(x, threshold)), code + 1) << x;
      ASSERT_EQ((detail::encode<Format, R::stochastic>(x, threshold - 1)), code) << x;
    }
    ASSERT_EQ((detail::encode<Format, R::up>(low)), code);
    ASSERT_EQ((detail::encode<Format, R::to_odd>(low)), code);
    ASSERT_EQ((detail::encode<Format, R::stochastic>(low, ~std::uint64_t{0})), code);
  }
}
TEST(SmallFloatRounding, EveryPolicyFollowsItsDefinitionBetweenAllNeighbours) {
  expect_policies<bf16::format>();
  expect_policies<fp16::format>();
  expect_policies<E5M2>();
}

TEST(SmallFloatRounding, OverflowFollowsItsPolicyAndTheRounding) {
  using F = fp16::format;
  EXPECT_EQ((detail::encode<F>(1e6)), 0x7C00U);
  EXPECT_EQ((detail::encode<F, Rounding::nearest_even, Overflow::saturate>(-1e6)), 0xFBFFU);
  EXPECT_EQ((detail::encode<F, Rounding::nearest_even, Overflow::nan>(1e6)), 0x7E00U);
  EXPECT_EQ((detail::encode<F, Rounding::nearest_even, Overflow::saturate>(
                std::numeric_limits<double>::infinity())),
            0x7BFFU);
  EXPECT_EQ((detail::encode<F, Rounding::toward_zero>(1e6)), 0x7BFFU);
  EXPECT_EQ((detail::encode<F, Rounding::to_odd>(1e6)), 0x7BFFU);
  EXPECT_EQ((detail::encode<F, Rounding::up>(-1e6)), 0xFBFFU);
  EXPECT_EQ((detail::encode<F, Rounding::up>(1e6)), 0x7C00U);
  EXPECT_EQ((detail::encode<F, Rounding::down>(1e6)), 0x7BFFU);
  EXPECT_EQ((detail::encode<E5M2>(61440.0)), 0x7CU);
  EXPECT_EQ((detail::encode<E5M2>(61439.0)), 0x7BU);
}

TEST(SmallFloatRounding, TinyValuesRoundByDirection) {
  using F = fp16::format;
  EXPECT_EQ((detail::encode<F>(1e-300)), 0U);
  EXPECT_EQ((detail::encode<F, Rounding::up>(1e-300)), 1U);
  EXPECT_EQ((detail::encode<F, Rounding::down>(-1e-300)), 0x8001U);
  EXPECT_EQ((detail::encode<F, Rounding::to_odd>(1e-300)), 1U);
  EXPECT_EQ((detail::encode<F, Rounding::stochastic>(1e-300, ~std::uint64_t{0})), 0U);
}

// The average over all 65536 top halves of the random word is x itself.
TEST(SmallFloatRounding, StochasticRoundingOfAFloatToBf16IsUnbiasedByEnumeration) {
  for (const float x : {0x1.2345p0F, -0x1.fedcp-3F, 0x1.0001p-126F, 0x1.234p-130F}) {
    double sum = 0;  // exact: 65536 values of 8 bits, two of them
    for (std::uint64_t random = 0; random < 65536; ++random) {
      sum +=
          value<bf16::format>(detail::encode<bf16::format, Rounding::stochastic>(x, random << 48));
    }
    EXPECT_EQ(sum, 65536.0 * static_cast<double>(x));
  }
}

// To odd and then to nearest is one rounding; nearest twice is not.
TEST(SmallFloatRounding, ToOddMakesASecondRoundingHarmless) {
  const double x = 1 + 0x1p-8 + 0x1p-40;
  using Wide = IeeeFormat<8, 20>;
  const auto twice = [](std::uint32_t code) { return bf16{value<Wide>(code)}.bits(); };
  EXPECT_EQ(twice(detail::encode<Wide, Rounding::to_odd>(x)), 0x3F81);
  EXPECT_EQ(twice(detail::encode<Wide, Rounding::nearest_even>(x)), 0x3F80);
}

}  // namespace
