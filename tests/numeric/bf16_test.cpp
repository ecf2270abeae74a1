// SPDX-License-Identifier: MIT
#include <halfstep/numeric/bf16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>

using halfstep::bf16;

double oracle_bf16_value(std::uint16_t code);
std::uint16_t oracle_bf16_from_double(double x);
std::uint16_t oracle_bf16_sqrt(std::uint16_t a);
void oracle_bf16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n);
std::uint16_t oracle_bf16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c);

namespace {

bf16 code(std::uint32_t bits) { return bf16::from_bits(static_cast<std::uint16_t>(bits)); }
float f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t from(std::uint32_t float_bits) { return bf16{f32(float_bits)}.bits(); }
/// All NaNs count as one.
std::uint16_t one_nan(std::uint16_t bits) { return (bits & 0x7FFF) > 0x7F80 ? 0x7FC0 : bits; }

/// Values at the edges of every exponent, and some inside.
std::vector<std::uint16_t> structured_codes() {
  std::vector<std::uint16_t> codes;
  for (const std::uint32_t sign : {0x0000U, 0x8000U}) {
    for (const std::uint32_t field :
         {0U, 1U, 2U, 60U, 63U, 64U, 119U, 126U, 127U, 128U, 135U, 190U, 191U, 253U, 254U, 255U}) {
      for (const std::uint32_t fraction : {0U, 1U, 2U, 0x3FU, 0x40U, 0x7EU, 0x7FU}) {
        codes.push_back(static_cast<std::uint16_t>(sign | (field << 7) | fraction));
      }
    }
  }
  return codes;
}

TEST(Bf16, EveryCodeSurvivesARoundTripThroughFloatAndDouble) {
  int inputs = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits, ++inputs) {
    const bf16 x = code(bits);
    if (isnan(x)) {
      // Quietened on the way back, payload and sign kept.
      ASSERT_EQ(bf16{static_cast<float>(x)}.bits(), bits | 0x40U);
      ASSERT_TRUE(isnan(bf16{static_cast<double>(x)}));
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), oracle_bf16_value(x.bits())) << std::hex << bits;
    ASSERT_EQ(static_cast<double>(static_cast<float>(x)), oracle_bf16_value(x.bits()))
        << std::hex << bits;
    ASSERT_EQ(bf16{static_cast<float>(x)}.bits(), bits);
    ASSERT_EQ(bf16{static_cast<double>(x)}.bits(), bits);
    ASSERT_EQ(bf16{static_cast<long double>(x)}.bits(), bits);
  }
  std::printf("%d inputs, 0 mismatches, path scalar\n", inputs);
  ASSERT_EQ(inputs, 65536);
}

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
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    // Random codes, pushed to or beside the middle between two values.
    const double x = oracle_bf16_value(static_cast<std::uint16_t>(random() % 0x7F80));
    const double next = oracle_bf16_value(static_cast<std::uint16_t>(bf16{x}.bits() + 1));
    double middle = x + (std::isinf(next) ? 0x1p119 : (next - x) / 2);
    const auto nudge = static_cast<int>(random() % 3);
    if (nudge == 1) middle = std::nextafter(middle, 1e300);
    if (nudge == 2) middle = std::nextafter(middle, 0.0);
    ASSERT_EQ(bf16{middle}.bits(), oracle_bf16_from_double(middle)) << std::hexfloat << middle;
    ASSERT_EQ(bf16{-middle}.bits(), oracle_bf16_from_double(-middle)) << std::hexfloat << middle;
  }
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
  for (std::int32_t i = 0; i < (1 << 25); i += 77) {
    ASSERT_EQ(bf16{i}.bits(), oracle_bf16_from_double(i)) << i;
  }
}

TEST(Bf16, ArithmeticRoundsOnceAgainstTheOracle) {
  const auto others = structured_codes();
  std::vector<std::uint16_t> expected(others.size());
  std::int64_t inputs = 0;
  for (const char op : {'+', '-', '*', '/'}) {
    for (std::uint32_t a = 0; a <= 0xFFFF; a += 3) {
      oracle_bf16_binary(op, static_cast<std::uint16_t>(a), others.data(), expected.data(),
                         others.size());
      for (std::size_t i = 0; i < others.size(); ++i, ++inputs) {
        const bf16 x = code(a), y = bf16::from_bits(others[i]);
        const bf16 z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
        ASSERT_EQ(one_nan(z.bits()), expected[i]) << std::hex << a << ' ' << op << ' ' << others[i];
      }
    }
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
}

TEST(Bf16, SqrtOfEveryCodeRoundsOnce) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    ASSERT_EQ(one_nan(sqrt(code(bits)).bits()), oracle_bf16_sqrt(static_cast<std::uint16_t>(bits)))
        << std::hex << bits;
  }
}

TEST(Bf16, FmaRoundsOnceWhereDoubleDoesNot) {
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-32}), bf16{258});  // float: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-60}), bf16{258});  // double: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0.0F}), bf16{260});      // the tie itself
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0x1p-133}), bf16{260});
  EXPECT_EQ(fma(bf16{-7}, bf16{37}, bf16{0x1p-133}), bf16{-258});
}

TEST(Bf16, FmaAgreesWithTheOracle) {
  const auto codes = structured_codes();
  std::mt19937_64 random(2);
  std::int64_t inputs = 0;
  const auto check = [&inputs](std::uint16_t a, std::uint16_t b, std::uint16_t c) {
    ++inputs;
    const bf16 z = fma(bf16::from_bits(a), bf16::from_bits(b), bf16::from_bits(c));
    ASSERT_EQ(one_nan(z.bits()), one_nan(oracle_bf16_fma(a, b, c)))
        << std::hex << a << ' ' << b << ' ' << c;
  };
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    for (std::size_t j = 0; j < codes.size(); j += 3) {
      for (std::size_t k = 0; k < codes.size(); k += 3)
        check(codes[i], codes[j], codes[k]);
    }
  }
  for (int i = 0; i < 2000000; ++i) {
    const std::uint64_t r = random();
    // c near the product or far below it, where ties are broken.
    const auto a = static_cast<std::uint16_t>(r), b = static_cast<std::uint16_t>(r >> 16);
    const auto c =
        i % 2 == 0
            ? static_cast<std::uint16_t>(r >> 32)
            : (bf16::from_bits(a) * bf16::from_bits(b) * code(0x3F80 - ((r >> 48) & 0xF80))).bits();
    check(a, b, static_cast<std::uint16_t>(c ^ ((r >> 47) & 0x8000)));
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
}

TEST(Bf16, ComparesAsFloatsDoNaNIncluded) {
  const auto codes = structured_codes();
  for (const std::uint16_t a : codes) {
    for (const std::uint16_t b : codes) {
      const bf16 x = bf16::from_bits(a), y = bf16::from_bits(b);
      const double dx = oracle_bf16_value(a), dy = oracle_bf16_value(b);
      ASSERT_EQ(x == y, dx == dy);
      ASSERT_EQ(x != y, dx != dy);
      ASSERT_EQ(x < y, dx < dy);
      ASSERT_EQ(x <= y, dx <= dy);
      ASSERT_EQ(x > y, dx > dy);
      ASSERT_EQ(x <=> y, dx <=> dy);
    }
  }
  static_assert(std::is_same_v<decltype(bf16{} <=> bf16{}), std::partial_ordering>);
  EXPECT_TRUE(totally_before(code(0x8000), code(0x0000)));
  EXPECT_TRUE(totally_before(code(0x7F80), code(0x7FC0)));
  EXPECT_TRUE(totally_before(code(0xFFC0), code(0xFF80)));
}

TEST(Bf16, EqualValuesHaveEqualHashes) {
  EXPECT_EQ(std::hash<bf16>{}(code(0)), std::hash<bf16>{}(code(0x8000)));
  EXPECT_NE(std::hash<bf16>{}(bf16{1}), std::hash<bf16>{}(bf16{2}));
}

TEST(Bf16, NextafterStepsOneCodeAndAcrossZero) {
  EXPECT_EQ(nextafter(bf16{0.0F}, bf16{1.0F}).bits(), 0x0001);
  EXPECT_EQ(nextafter(bf16{0.0F}, bf16{-1.0F}).bits(), 0x8001);
  EXPECT_EQ(nextafter(code(0x0001), bf16{-1.0F}).bits(), 0x0000);
  EXPECT_EQ(nextafter(code(0x7F7F), code(0x7F80)).bits(), 0x7F80);
  EXPECT_EQ(nextafter(bf16{1.0F}, bf16{1.0F}), bf16{1.0F});
  EXPECT_EQ(nextafter(bf16{-1.0F}, bf16{0.0F}).bits(), 0xBF7F);
  EXPECT_TRUE(isnan(nextafter(code(0x7FC0), bf16{1.0F})));
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
