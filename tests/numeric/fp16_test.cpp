// SPDX-License-Identifier: MIT
#include <halfstep/numeric/fp16.hpp>

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
#include <halfstep/numeric/bf16.hpp>

using halfstep::bf16;
using halfstep::fp16;

double oracle_fp16_value(std::uint16_t code);
std::uint16_t oracle_fp16_from_float(float x);
std::uint16_t oracle_fp16_from_double(double x);
std::uint16_t oracle_fp16_from_long_double(long double x);
std::uint16_t oracle_fp16_from_i64(std::int64_t x);
std::uint16_t oracle_fp16_sqrt(std::uint16_t a);
void oracle_fp16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n);
std::uint16_t oracle_fp16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c);

namespace {

fp16 code(std::uint32_t bits) { return fp16::from_bits(static_cast<std::uint16_t>(bits)); }
std::uint32_t from(std::uint32_t float_bits) {
  return fp16{std::bit_cast<float>(float_bits)}.bits();
}
/// All NaNs count as one.
std::uint16_t one_nan(std::uint16_t bits) { return (bits & 0x7FFF) > 0x7C00 ? 0x7E00 : bits; }

std::vector<std::uint16_t> structured_codes() {
  std::vector<std::uint16_t> codes;
  for (const std::uint32_t sign : {0x0000U, 0x8000U}) {
    for (const std::uint32_t field :
         {0U, 1U, 2U, 4U, 5U, 10U, 14U, 15U, 16U, 20U, 25U, 26U, 29U, 30U, 31U}) {
      for (const std::uint32_t fraction : {0U, 1U, 2U, 0x1FFU, 0x200U, 0x3FEU, 0x3FFU}) {
        codes.push_back(static_cast<std::uint16_t>(sign | (field << 10) | fraction));
      }
    }
  }
  return codes;
}

TEST(Fp16, EveryCodeSurvivesARoundTripThroughFloatAndDouble) {
  int inputs = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits, ++inputs) {
    const fp16 x = code(bits);
    if (isnan(x)) {
      ASSERT_EQ(fp16{static_cast<float>(x)}.bits(), bits | 0x200U);
      ASSERT_TRUE(isnan(fp16{static_cast<double>(x)}));
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), oracle_fp16_value(x.bits())) << std::hex << bits;
    ASSERT_EQ(static_cast<double>(static_cast<float>(x)), oracle_fp16_value(x.bits()))
        << std::hex << bits;
    ASSERT_EQ(fp16{static_cast<float>(x)}.bits(), bits);
    ASSERT_EQ(fp16{static_cast<double>(x)}.bits(), bits);
    ASSERT_EQ(fp16{static_cast<long double>(x)}.bits(), bits);
  }
  std::printf("%d inputs, 0 mismatches, path scalar\n", inputs);
  ASSERT_EQ(inputs, 65536);
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
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const double x = oracle_fp16_value(static_cast<std::uint16_t>(random() % 0x7C00));
    const double next =
        x < 65504 ? oracle_fp16_value(static_cast<std::uint16_t>(fp16{x}.bits() + 1)) : 65536;
    double y = x + (next - x) / 2;
    if (i % 3 == 1) y = std::nextafter(y, 1e9);
    if (i % 3 == 2) y = std::nextafter(y, 0.0);
    ASSERT_EQ(fp16{y}.bits(), oracle_fp16_from_double(y)) << std::hexfloat << y;
    ASSERT_EQ(fp16{-y}.bits(), oracle_fp16_from_double(-y)) << std::hexfloat << y;
    const long double z = static_cast<long double>(y) * (1 + 0x1p-60L);
    ASSERT_EQ(fp16{z}.bits(), oracle_fp16_from_long_double(z)) << std::hexfloat << y;
  }
}

TEST(Fp16, RoundsFloatAsTheOracleOnASample) {
  std::int64_t inputs = 0;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += 251, ++inputs) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(fp16{x}.bits(), oracle_fp16_from_float(x)) << std::hex << bits;
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
}

TEST(NightlyFp16, RoundsEveryFloatAsTheOracle) {
  std::int64_t inputs = 0;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFF; ++bits, ++inputs) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(fp16{x}.bits(), oracle_fp16_from_float(x)) << std::hex << bits;
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
  ASSERT_EQ(inputs, std::int64_t{1} << 32);
}

TEST(Fp16, RoundsIntegersOnce) {
  for (std::int64_t i = -70000; i <= 70000; ++i)
    ASSERT_EQ(fp16{i}.bits(), oracle_fp16_from_i64(i)) << i;
  EXPECT_TRUE(isinf(fp16{std::numeric_limits<std::uint64_t>::max()}));
}

TEST(Fp16, ArithmeticRoundsOnceAgainstTheOracle) {
  const auto others = structured_codes();
  std::vector<std::uint16_t> expected(others.size());
  std::int64_t inputs = 0;
  for (const char op : {'+', '-', '*', '/'}) {
    for (std::uint32_t a = 0; a <= 0xFFFF; a += 5) {
      oracle_fp16_binary(op, static_cast<std::uint16_t>(a), others.data(), expected.data(),
                         others.size());
      for (std::size_t i = 0; i < others.size(); ++i, ++inputs) {
        const fp16 x = code(a), y = fp16::from_bits(others[i]);
        const fp16 z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
        ASSERT_EQ(one_nan(z.bits()), one_nan(expected[i]))
            << std::hex << a << ' ' << op << ' ' << others[i];
      }
    }
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
}

TEST(Fp16, SqrtOfEveryCodeRoundsOnce) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    ASSERT_EQ(one_nan(sqrt(code(bits)).bits()),
              one_nan(oracle_fp16_sqrt(static_cast<std::uint16_t>(bits))));
  }
}

TEST(Fp16, FmaRoundsOnceWhereFloatDoesNot) {
  EXPECT_EQ(fma(fp16{3}, fp16{683}, fp16{0x1p-24}), fp16{2050});  // float: 2048
  EXPECT_EQ(fma(code(0x520B), code(0x00E9), code(0x2FF6)).bits(), 0x3001);
  EXPECT_EQ(fma(fp16{320}, fp16{128.25}, fp16{0x1p-24}).bits(), 0x7903);
  EXPECT_EQ(fma(code(0x3AA0), code(0xD260), code(0x0012)).bits(), 0xD147);
}

TEST(Fp16, FmaAgreesWithTheOracle) {
  const auto codes = structured_codes();
  std::int64_t inputs = 0;
  const auto check = [&inputs](std::uint16_t a, std::uint16_t b, std::uint16_t c) {
    ++inputs;
    const fp16 z = fma(fp16::from_bits(a), fp16::from_bits(b), fp16::from_bits(c));
    ASSERT_EQ(one_nan(z.bits()), one_nan(oracle_fp16_fma(a, b, c)))
        << std::hex << a << ' ' << b << ' ' << c;
  };
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    for (std::size_t j = 0; j < codes.size(); j += 3) {
      for (std::size_t k = 0; k < codes.size(); k += 3)
        check(codes[i], codes[j], codes[k]);
    }
  }
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000000; ++i) {
    const std::uint64_t r = random();
    check(static_cast<std::uint16_t>(r), static_cast<std::uint16_t>(r >> 16),
          static_cast<std::uint16_t>(r >> 32));
  }
  std::printf("%lld inputs, 0 mismatches, path scalar\n", static_cast<long long>(inputs));
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

TEST(Fp16, EqualValuesHaveEqualHashes) {
  EXPECT_EQ(std::hash<fp16>{}(code(0)), std::hash<fp16>{}(code(0x8000)));
  EXPECT_NE(std::hash<fp16>{}(fp16{1}), std::hash<fp16>{}(fp16{2}));
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
