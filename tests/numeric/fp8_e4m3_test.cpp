// SPDX-License-Identifier: MIT
// The reference's numbers; every code, float and pair is in minifloat_test.cpp.
#include <halfstep/numeric/fp8_e4m3.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <halfstep/numeric/round_to.hpp>

using halfstep::fp8_e4m3;
using halfstep::numeric::Overflow;
using halfstep::numeric::round_to;
using halfstep::numeric::Rounding;

namespace {

TEST(Fp8E4m3, Holds448AndRoundsTheTieAt464DownAndMoreToNaN) {
  EXPECT_EQ(fp8_e4m3{448.0F}.bits(), 0x7E);
  EXPECT_EQ(static_cast<float>(fp8_e4m3::from_bits(0x7E)), 448.0F);
  EXPECT_EQ(fp8_e4m3{464.0F}, fp8_e4m3{448.0F});
  for (const float beyond : {std::nextafter(464.0F, 1e9F), 465.0F, 1000.0F, HUGE_VALF}) {
    EXPECT_EQ(fp8_e4m3{beyond}.bits(), 0x7F) << beyond;
    EXPECT_EQ(fp8_e4m3{-beyond}.bits(), 0xFF) << beyond;
    EXPECT_EQ((round_to<fp8_e4m3, Rounding::nearest_even, Overflow::saturate>(beyond)),
              fp8_e4m3{448.0F});
    EXPECT_EQ((round_to<fp8_e4m3, Rounding::nearest_even, Overflow::saturate>(-beyond)),
              fp8_e4m3{-448.0F});
  }
}

TEST(Fp8E4m3, KeepsTheTopBinadeApart) {
  EXPECT_EQ(fp8_e4m3{256.0F}.bits(), 0x78);
  EXPECT_EQ(fp8_e4m3{288.0F}.bits(), 0x79);
  EXPECT_EQ(fp8_e4m3{480.0F - 32.0F}.bits(), 0x7E);
  EXPECT_EQ((round_to<fp8_e4m3, Rounding::nearest_even, Overflow::saturate>(256.0F)).bits(), 0x78);
}

TEST(Fp8E4m3, ReadsBothItsNaNsAsNaN) {
  EXPECT_TRUE(std::isnan(static_cast<float>(fp8_e4m3::from_bits(0xFF))));
  EXPECT_TRUE(std::isnan(static_cast<float>(fp8_e4m3::from_bits(0x7F))));
  EXPECT_TRUE(isnan(fp8_e4m3{std::numeric_limits<double>::quiet_NaN()}));
  EXPECT_EQ(fp8_e4m3{-std::numeric_limits<float>::quiet_NaN()}.bits(), 0xFF);
}

TEST(Fp8E4m3, HasSubnormalsDownTo2ToTheMinus9) {
  EXPECT_EQ(static_cast<float>(fp8_e4m3::from_bits(0x08)), 0x1p-6F);
  EXPECT_EQ(static_cast<float>(fp8_e4m3::from_bits(0x01)), 0x1p-9F);
  EXPECT_EQ(fp8_e4m3{0x1p-10F}.bits(), 0x00);  // a tie with 0
  EXPECT_EQ(fp8_e4m3{std::nextafter(0x1p-10F, 1.0F)}.bits(), 0x01);
  EXPECT_EQ(fp8_e4m3{0x1.8p-9F}.bits(), 0x02);
}

TEST(Fp8E4m3, RoundsDoubleOnce) {
  EXPECT_EQ(fp8_e4m3{1 + 0x1p-4 + 0x1p-40}.bits(), 0x39);  // through float: the tie, 0x38
  EXPECT_EQ(fp8_e4m3{1 + 0x1p-4L + 0x1p-60L}.bits(), 0x39);
  EXPECT_EQ(fp8_e4m3{1 + 0x1p-4}.bits(), 0x38);
}

TEST(Fp8E4m3, LimitsAreThoseOfTheReference) {
  using L = std::numeric_limits<fp8_e4m3>;
  static_assert(L::digits == 4 && L::digits10 == 0 && L::max_digits10 == 3);
  static_assert(L::min_exponent == -5 && L::max_exponent == 9 && L::min_exponent10 == -1 &&
                L::max_exponent10 == 2);
  static_assert(L::epsilon() == fp8_e4m3{0.125F} && L::round_error() == fp8_e4m3{0.5F});
  static_assert(L::min().bits() == 0x08 && L::lowest().bits() == 0xFE && L::max().bits() == 0x7E &&
                L::denorm_min().bits() == 0x01 && L::quiet_NaN().bits() == 0x7F);
  static_assert(!L::has_infinity && L::has_quiet_NaN && !L::has_signaling_NaN &&
                L::has_denorm == std::denorm_present && !L::is_iec559 && L::is_bounded);
}

}  // namespace
