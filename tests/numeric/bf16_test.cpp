// SPDX-License-Identifier: MIT
// The reference's numbers; every code, float and pair is in sixteen_bits_test.cpp.
#include <halfstep/numeric/bf16.hpp>

#include <bit>
#include <compare>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>

using halfstep::bf16;

namespace {

bf16 code(std::uint32_t bits) { return bf16::from_bits(static_cast<std::uint16_t>(bits)); }
float f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t from(std::uint32_t float_bits) { return bf16{f32(float_bits)}.bits(); }

TEST(Bf16, RoundsTheReferenceVectors) {
  EXPECT_EQ(from(0x3F848000), 0x3F84U);
  EXPECT_EQ(from(0x3F848010), 0x3F85U);
  EXPECT_EQ(from(0x3F850000), 0x3F85U);
  EXPECT_EQ(from(0x3F858000), 0x3F86U);
  EXPECT_EQ(from(0x3FFF8000), 0x4000U);
  EXPECT_EQ(from(0x3E89CCD5), 0x3E8AU);
  EXPECT_EQ(bf16{0.2691408770292272}, bf16{0.26953125});
  EXPECT_EQ(from(0x007FFFFF), 0x0080U);
  EXPECT_EQ(from(0x00018000), 0x0002U);
  EXPECT_EQ(from(0x00010000), 0x0001U);
  EXPECT_EQ(from(0x00400000), 0x0040U);
  EXPECT_EQ(from(0x00008000), 0x0000U);
  EXPECT_EQ(from(0x00008001), 0x0001U);
}

TEST(Bf16, ExactHalvesGoToTheEvenNeighbour) {
  EXPECT_EQ(from(0x3F808000), 0x3F80U);  // 1 + 2^-8: both ends as near, 0x3F80 is even
  EXPECT_EQ(from(0x3F818000), 0x3F82U);  // and here the even one is above
}

TEST(Bf16, OverflowsToInfinityFromHalfAnUlpAboveTheLargest) {
  EXPECT_EQ(from(0x7F7F7FFF), 0x7F7FU);
  EXPECT_EQ(from(0x7F7F8000), 0x7F80U);
  EXPECT_EQ(bf16{std::numeric_limits<float>::max()}.bits(), 0x7F80);
  EXPECT_EQ(bf16{-1e300}.bits(), 0xFF80);
}

TEST(Bf16, NaNStaysNaNWithItsSignAndTopPayload) {
  EXPECT_EQ(from(0x7F800001), 0x7FC0U);  // not infinity
  EXPECT_EQ(from(0x7FFFFFFF), 0x7FFFU);  // not -0
  EXPECT_EQ(from(0xFF800001), 0xFFC0U);
  EXPECT_EQ(from(0x7FC12345), 0x7FC1U);
  EXPECT_EQ(bf16{std::bit_cast<double>(0x7FF0000000000001)}.bits(), 0x7FC0);
  EXPECT_EQ(bf16{std::bit_cast<double>(0xFFF8000000000000)}.bits(), 0xFFC0);
  EXPECT_TRUE(isnan(bf16{std::numeric_limits<long double>::quiet_NaN()}));
}

TEST(Bf16, RoundsDoubleOnce) {
  EXPECT_EQ(bf16{1 + 0x1p-8 + 0x1p-40}.bits(), 0x3F81);    // through float: 0x3F80
  EXPECT_EQ(bf16{1 + 0x1p-8L + 0x1p-60L}.bits(), 0x3F81);  // through double: 0x3F80
}

TEST(Bf16, RoundsIntegersOnce) {
  EXPECT_EQ(bf16{16842753}.bits(), 0x4B81);  // through float: 0x4B80
  EXPECT_EQ(bf16{-16842753LL}.bits(), 0xCB81);
  EXPECT_EQ(bf16{std::numeric_limits<std::int64_t>::min()}.bits(), 0xDF00);
  EXPECT_EQ(bf16{std::numeric_limits<std::uint64_t>::max()}.bits(), 0x5F80);
  EXPECT_EQ(bf16{std::uint64_t{0x8080000000000001}}.bits(), 0x5F01);  // a tie, and one more
  EXPECT_EQ(bf16{std::uint64_t{0x8080000000000000}}.bits(), 0x5F00);
  EXPECT_EQ(bf16{static_cast<signed char>(-3)}, bf16{-3.0F});
  EXPECT_EQ(bf16{true}, bf16{1.0F});
}

TEST(Bf16, FmaRoundsOnceWhereDoubleDoesNot) {
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-32}), bf16{258});  // float: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-60}), bf16{258});  // double: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0.0F}), bf16{260});      // the tie itself
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0x1p-133}), bf16{260});
  EXPECT_EQ(fma(bf16{-7}, bf16{37}, bf16{0x1p-133}), bf16{-258});
}

TEST(Bf16, TheTotalOrderHasNaNsAtItsEndsAndMinusZeroBeforeZero) {
  EXPECT_TRUE(totally_before(code(0x8000), code(0x0000)));
  EXPECT_TRUE(totally_before(code(0x7F80), code(0x7FC0)));
  EXPECT_TRUE(totally_before(code(0xFFC0), code(0xFF80)));
}

TEST(Bf16, NextafterStepsOneCodeAndAcrossZero) {
  EXPECT_EQ(nextafter(bf16{0.0F}, bf16{1.0F}).bits(), 0x0001);
  EXPECT_EQ(nextafter(code(0x0001), bf16{-1.0F}).bits(), 0x0000);
  EXPECT_EQ(nextafter(code(0x7F7F), code(0x7F80)).bits(), 0x7F80);
  EXPECT_EQ(nextafter(bf16{-1.0F}, bf16{0.0F}).bits(), 0xBF7F);
}

TEST(Bf16, LimitsAreThoseOfTheLayout) {
  using L = std::numeric_limits<bf16>;
  static_assert(L::is_specialized && L::is_iec559 && L::is_bounded &&
                L::has_denorm == std::denorm_present);
  static_assert(L::digits == 8 && L::digits10 == 2 && L::max_digits10 == 4);
  static_assert(L::min_exponent == -125 && L::max_exponent == 128 && L::min_exponent10 == -37 &&
                L::max_exponent10 == 38);
  static_assert(L::epsilon().bits() == 0x3C00 && L::round_error().bits() == 0x3F00);
  static_assert(L::min().bits() == 0x0080 && L::lowest().bits() == 0xFF7F &&
                L::max().bits() == 0x7F7F);
  static_assert(L::denorm_min().bits() == 0x0001 && L::infinity().bits() == 0x7F80);
  static_assert(L::quiet_NaN().bits() == 0x7FC0 && L::signaling_NaN().bits() == 0x7FA0);
  static_assert(isnan(L::signaling_NaN()));
}

TEST(Bf16, ConstantExpressionsGiveTheSame) {
  static_assert(bf16{1.5F}.bits() == 0x3FC0 && (bf16{1} + bf16{2}) == bf16{3} &&
                fma(bf16{7}, bf16{37}, bf16{-0x1p-60}) == bf16{258});
  static_assert((bf16{1} <=> std::numeric_limits<bf16>::quiet_NaN()) ==
                std::partial_ordering::unordered);
  static_assert(!std::is_convertible_v<float, bf16> && !std::is_convertible_v<bf16, float> &&
                !std::is_convertible_v<int, bf16>);
  static_assert(static_cast<int>(bf16{-3.5F}) == -3 && static_cast<bool>(bf16{0.5F}) &&
                !static_cast<bool>(bf16{-0.0F}));
  static_assert(signbit(-bf16{0.0F}) && abs(bf16{-2}) == bf16{2} &&
                copysign(bf16{2}, bf16{-0.0F}) == bf16{-2});
}

// Conversions, comparisons and fma are integer code: no environment changes them. Arithmetic on
// subnormals is float's, and the same environment does: the difference shows that it was set.
TEST(Bf16, ConversionsIgnoreRoundingModeAndFlushing) {
  // Volatile in and out: compilers fold, and move arithmetic across a write of MXCSR.
  volatile float tie = 1.0F + 0x1.01p-8F;
  volatile double subnormal = 0x1p-130;
  volatile float float_subnormal = 0x1p-130F;
  volatile std::uint16_t smallest = 1;
  volatile std::uint16_t from_float = 0, from_double = 0, from_subnormal = 0, fused = 0, sum = 0;
  volatile bool ordered = false;
  volatile double wide = 0;
  const unsigned saved = halfstep::core::read_mxcsr();
  for (const unsigned mode : {0x1F80U, 0x3F80U, 0x5F80U, 0x7F80U, 0x9FC0U}) {
    halfstep::core::write_mxcsr(mode);
    from_float = bf16{static_cast<float>(tie)}.bits();
    from_double = bf16{static_cast<double>(subnormal)}.bits();
    from_subnormal = bf16{static_cast<float>(float_subnormal)}.bits();
    ordered = code(smallest) < code(2) && code(smallest) != code(0);
    wide = static_cast<double>(code(smallest));
    fused = fma(code(smallest), bf16{1}, code(smallest)).bits();
    sum = (code(smallest) + code(smallest)).bits();
    halfstep::core::write_mxcsr(saved);
    EXPECT_EQ(from_float, 0x3F81) << mode;
    EXPECT_EQ(from_double, 0x0008) << mode;
    EXPECT_EQ(from_subnormal, 0x0008) << mode;
    EXPECT_TRUE(ordered) << mode;
    EXPECT_EQ(wide, 0x1p-133) << mode;
    EXPECT_EQ(fused, 2) << mode;
    EXPECT_EQ(sum, mode == 0x9FC0U ? 0 : 2) << mode;
  }
}

}  // namespace
