// SPDX-License-Identifier: MIT
// The reference's numbers; every code, float and pair is in minifloat_test.cpp.
#include <halfstep/numeric/fp8_e5m2.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/round_to.hpp>

using halfstep::fp16;
using halfstep::fp8_e5m2;
using halfstep::numeric::Overflow;
using halfstep::numeric::round_to;
using halfstep::numeric::Rounding;

namespace {

TEST(Fp8E5m2, IsTheUpperHalfOfAnFp16) {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    const auto x = fp8_e5m2::from_bits(static_cast<std::uint8_t>(bits));
    if (isnan(x)) continue;
    EXPECT_EQ(fp16{x}.bits(), bits << 8);
  }
}

TEST(Fp8E5m2, Holds57344AndIsInfiniteFrom61440On) {
  EXPECT_EQ(fp8_e5m2{57344.0F}.bits(), 0x7B);
  EXPECT_EQ(fp8_e5m2{std::nextafter(61440.0F, 0.0F)}.bits(), 0x7B);
  EXPECT_EQ(fp8_e5m2{61440.0F}.bits(), 0x7C);
  EXPECT_EQ(fp8_e5m2{-61440.0F}.bits(), 0xFC);
  EXPECT_EQ(fp8_e5m2{1000000}.bits(), 0x7C);
  EXPECT_EQ((round_to<fp8_e5m2, Rounding::nearest_even, Overflow::saturate>(HUGE_VALF)).bits(),
            0x7B);
  EXPECT_EQ((round_to<fp8_e5m2, Rounding::nearest_even, Overflow::nan>(1e9F)).bits(), 0x7E);
}

TEST(Fp8E5m2, HasSubnormalsDownTo2ToTheMinus16) {
  EXPECT_EQ(static_cast<float>(fp8_e5m2::from_bits(0x04)), 0x1p-14F);
  EXPECT_EQ(static_cast<float>(fp8_e5m2::from_bits(0x01)), 0x1p-16F);
  EXPECT_EQ(fp8_e5m2{0x1p-17F}.bits(), 0x00);  // a tie with 0
  EXPECT_EQ(fp8_e5m2{std::nextafter(0x1p-17F, 1.0F)}.bits(), 0x01);
}

TEST(Fp8E5m2, NaNIsQuietWithItsSignAndTopPayload) {
  EXPECT_EQ(fp8_e5m2{fp16::from_bits(0x7C01)}.bits(), 0x7E);
  EXPECT_EQ(fp8_e5m2{fp16::from_bits(0xFC01)}.bits(), 0xFE);
  EXPECT_EQ(fp8_e5m2{fp16::from_bits(0x7FFF)}.bits(), 0x7F);
  for (const int bits : {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}) {
    EXPECT_TRUE(
        std::isnan(static_cast<float>(fp8_e5m2::from_bits(static_cast<std::uint8_t>(bits)))));
  }
}

TEST(Fp8E5m2, RoundsDoubleOnce) {
  EXPECT_EQ(fp8_e5m2{1 + 0x1p-3 + 0x1p-40}.bits(), 0x3D);  // through float: the tie, 0x3C
  EXPECT_EQ(fp8_e5m2{1 + 0x1p-3L + 0x1p-60L}.bits(), 0x3D);
  EXPECT_EQ(fp8_e5m2{1 + 0x1p-3}.bits(), 0x3C);
}

TEST(Fp8E5m2, LimitsAreThoseOfTheReference) {
  using L = std::numeric_limits<fp8_e5m2>;
  static_assert(L::digits == 3 && L::digits10 == 0 && L::max_digits10 == 2);
  static_assert(L::min_exponent == -13 && L::max_exponent == 16 && L::min_exponent10 == -4 &&
                L::max_exponent10 == 4);
  static_assert(L::epsilon() == fp8_e5m2{0.25F} && L::round_error() == fp8_e5m2{0.5F});
  static_assert(L::min().bits() == 0x04 && L::lowest().bits() == 0xFB && L::max().bits() == 0x7B &&
                L::denorm_min().bits() == 0x01 && L::infinity().bits() == 0x7C);
  static_assert(L::quiet_NaN().bits() == 0x7E && L::signaling_NaN().bits() == 0x7D &&
                isnan(L::signaling_NaN()));
  static_assert(L::has_infinity && L::has_denorm == std::denorm_present && L::is_iec559 &&
                L::is_bounded);
}

}  // namespace
