// SPDX-License-Identifier: MIT
#include <halfstep/core/fma.hpp>

#include <cstdint>
#include <random>

#include <gtest/gtest.h>

namespace {
// Not inlined: a compiler that saw how the caller makes c could find a * b there and not fuse.
[[gnu::noinline]] float product_then_sum(float a, float b, float c) {
  return halfstep::core::rounded(a * b) + c;
}

using halfstep::core::fma;
using halfstep::core::rounded;

TEST(Fma, RoundsOnceInFloat) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last term is lost if the product is rounded.
  const float a = rounded(0x1.001p0F), c = rounded(-0x1.002p0F);
  EXPECT_EQ(fma(a, a, c), 0x1p-24F);
  EXPECT_EQ(product_then_sum(a, a, c), 0.0F);
}
TEST(Fma, RoundsOnceInDouble) {
  const double a = rounded(0x1.0000001p0), c = rounded(-0x1.0000002p0);
  EXPECT_EQ(fma(a, a, c), 0x1p-56);
  EXPECT_EQ(rounded(a * a) + c, 0.0);
}
TEST(Rounded, KeepsEveryProductFromTheSumAfterIt) {
  // In double the product of two floats is exact and the sum of the rounded one too, or nearly: so
  // an answer with the exact product would differ in most of these.
  std::mt19937 random(1);
  int differ = 0;
  for (int i = 0; i < 100000; ++i) {
    const float a = static_cast<float>(random()), b = static_cast<float>(random());
    const float c = -static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
    const float twice = product_then_sum(a, b, c);
    ASSERT_EQ(twice, 0.0F) << a << " " << b;
    differ += fma(a, b, c) != twice ? 1 : 0;
  }
  EXPECT_GT(differ, 90000);
}
TEST(Rounded, IsAConstantExpression) {
  static_assert(rounded(1.5F) == 1.5F);
  static_assert(rounded(-0.25) == -0.25);
}
}  // namespace
