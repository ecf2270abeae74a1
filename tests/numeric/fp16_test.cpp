// SPDX-License-Identifier: MIT
// The reference's numbers; every code, float and pair is in sixteen_bits_test.cpp.
#include <halfstep/numeric/fp16.hpp>

#include <bit>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>
#include <halfstep/numeric/bf16.hpp>

using halfstep::bf16;
using halfstep::fp16;

namespace {

fp16 code(std::uint32_t bits) { return fp16::from_bits(static_cast<std::uint16_t>(bits)); }
std::uint32_t from(std::uint32_t float_bits) {
  return fp16{std::bit_cast<float>(float_bits)}.bits();
}

TEST(Fp16, SubnormalsWidenByValue) {
  EXPECT_EQ(static_cast<float>(code(0x0001)), 0x1p-24F);
  EXPECT_EQ(static_cast<double>(code(0x8001)), -0x1p-24);
}

TEST(Fp16, RoundsTheReferenceVectors) {
  EXPECT_EQ(from(0x34200000), 0x0002U);
  EXPECT_EQ(from(0x34200001), 0x0003U);
  EXPECT_EQ(from(0x34600000), 0x0004U);
  EXPECT_EQ(from(0x38400000), 0x0300U);
  EXPECT_EQ(from(0x38800000), 0x0400U);
  EXPECT_EQ(from(0x387FFFFF), 0x0400U);
  EXPECT_EQ(fp16{0x1.ff8p-15F}.bits(), 0x03FF);
  EXPECT_EQ(from(0x40001000), 0x4000U);
  EXPECT_EQ(fp16{520.25F}.bits(), 0x6010);
  EXPECT_EQ(fp16{65535.0F}.bits(), 0x7C00);
  EXPECT_EQ(fp16{65520.0F}.bits(), 0x7C00);
  EXPECT_EQ(from(0x477FEFFF), 0x7BFFU);  // 65519.996
  EXPECT_EQ(fp16{0x1.8p-24F}.bits(), 0x0002);
  EXPECT_EQ(fp16{0x1p-25F}.bits(), 0x0000);
  EXPECT_EQ(from(0x33000001), 0x0001U);  // the next float above 2^-25
}

TEST(Fp16, NaNStaysNaNWithItsSignAndTopPayload) {
  EXPECT_EQ(from(0x7F800001), 0x7E00U);
  EXPECT_EQ(from(0x7FFFFFFF), 0x7FFFU);
  EXPECT_EQ(from(0xFF800001), 0xFE00U);
  EXPECT_EQ(from(0x7FC12345), 0x7E09U);
}

TEST(Fp16, RoundsDoubleOnce) {
  EXPECT_EQ(fp16{1 + 0x1p-11 + 0x1p-22}.bits(), 0x3C01);  // through float: 3C00, and so on
  EXPECT_EQ(fp16{1 + 0x1p-11 + 0x1p-40}.bits(), 0x3C01);
  EXPECT_EQ(fp16{0x1p-14 - 0x1p-25 - 0x1p-65}.bits(), 0x03FF);
  EXPECT_EQ(fp16{static_cast<double>(0x1FFDFFFFFF) * 0x1p-26}.bits(), 0x67FF);
  EXPECT_EQ(fp16{std::bit_cast<double>(0x3E60000000000001)}.bits(), 0x0001);
  EXPECT_EQ(fp16{1.00048828125000022204}.bits(), 0x3C01);
  EXPECT_EQ(fp16{1 + 0x1p-11L + 0x1p-60L}.bits(), 0x3C01);
}

TEST(Fp16, RoundsIntegersOnce) {
  EXPECT_EQ(fp16{2049}, fp16{2048});  // ties
  EXPECT_EQ(fp16{-2051}, fp16{-2052});
  EXPECT_EQ(fp16{65519}.bits(), 0x7BFF);
  EXPECT_TRUE(isinf(fp16{65520}));
  EXPECT_TRUE(isinf(fp16{std::numeric_limits<std::uint64_t>::max()}));
}

TEST(Fp16, FmaRoundsOnceWhereFloatDoesNot) {
  EXPECT_EQ(fma(fp16{3}, fp16{683}, fp16{0x1p-24}), fp16{2050});  // float: 2048
  EXPECT_EQ(fma(code(0x520B), code(0x00E9), code(0x2FF6)).bits(), 0x3001);
  EXPECT_EQ(fma(fp16{320}, fp16{128.25}, fp16{0x1p-24}).bits(), 0x7903);
  EXPECT_EQ(fma(code(0x3AA0), code(0xD260), code(0x0012)).bits(), 0xD147);
}

TEST(Fp16, LimitsAreThoseOfTheLayout) {
  using L = std::numeric_limits<fp16>;
  static_assert(L::is_specialized && L::is_iec559 && L::is_bounded &&
                L::has_denorm == std::denorm_present);
  static_assert(L::digits == 11 && L::digits10 == 3 && L::max_digits10 == 5);
  static_assert(L::min_exponent == -13 && L::max_exponent == 16 && L::min_exponent10 == -4 &&
                L::max_exponent10 == 4);
  static_assert(L::epsilon().bits() == 0x1400 && L::round_error().bits() == 0x3800);
  static_assert(L::min().bits() == 0x0400 && L::lowest().bits() == 0xFBFF &&
                L::max().bits() == 0x7BFF);
  static_assert(L::denorm_min().bits() == 0x0001 && L::infinity().bits() == 0x7C00);
  static_assert(L::quiet_NaN().bits() == 0x7E00 && L::signaling_NaN().bits() == 0x7D00);
}

TEST(Fp16, NextafterStepsOneCodeAndAcrossZero) {
  EXPECT_EQ(nextafter(fp16{0}, fp16{1}).bits(), 0x0001);
  EXPECT_EQ(nextafter(code(0x8001), fp16{1}).bits(), 0x8000);
  EXPECT_EQ(nextafter(code(0x7BFF), code(0x7C00)).bits(), 0x7C00);
}

TEST(Fp16, BecomesBf16WithOneRounding) {
  EXPECT_EQ(bf16{fp16{1.0F + 0x1p-10F}}.bits(), 0x3F80);
  EXPECT_EQ(fp16{bf16{0x1p-24F}}.bits(), 0x0001);
  EXPECT_EQ(fp16{bf16{0x1p100F}}.bits(), 0x7C00);
}

// fp16's subnormals are normal floats: FTZ and DAZ leave its arithmetic alone as well.
TEST(Fp16, FlushingChangesNothing) {
  volatile std::uint16_t smallest = 1;
  volatile std::uint16_t sum = 0, product = 0;
  const unsigned saved = halfstep::core::read_mxcsr();
  halfstep::core::write_mxcsr(halfstep::core::kernel_mxcsr);
  sum = (code(smallest) + code(smallest)).bits();
  product = (code(smallest) * fp16{3}).bits();
  halfstep::core::write_mxcsr(saved);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(product, 3);
}

}  // namespace
