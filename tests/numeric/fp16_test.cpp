// SPDX-License-Identifier: MIT
#include <halfstep/numeric/fp16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <numeric/exhaustive.hpp>

using halfstep::bf16;
using halfstep::fp16;
using halfstep_tests::compare_all_floats;
using halfstep_tests::compare_codes;
using halfstep_tests::compare_floats;
using halfstep_tests::compare_fma;
using halfstep_tests::compare_pairs;
using halfstep_tests::compare_sqrt;
using halfstep_tests::Count;
using halfstep_tests::on_two_threads;
using halfstep_tests::print;

double oracle_fp16_value(std::uint16_t code);
void oracle_fp16_from_floats(const float* in, std::uint16_t* out, std::size_t n);
std::uint16_t oracle_fp16_from_double(double x);
std::uint16_t oracle_fp16_from_long_double(long double x);
std::uint16_t oracle_fp16_from_i64(std::int64_t x);
std::uint16_t oracle_fp16_sqrt(std::uint16_t a);
void oracle_fp16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n);
std::uint16_t oracle_fp16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c);

namespace {

fp16 code(std::uint32_t bits) { return halfstep_tests::code<fp16>(bits); }
std::uint32_t from(std::uint32_t float_bits) {
  return fp16{std::bit_cast<float>(float_bits)}.bits();
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

TEST(Fp16, RoundsIntegersOnce) {
  for (std::int64_t i = -70000; i <= 70000; ++i)
    ASSERT_EQ(fp16{i}.bits(), oracle_fp16_from_i64(i)) << i;
  EXPECT_TRUE(isinf(fp16{std::numeric_limits<std::uint64_t>::max()}));
}

struct Operation {
  char op;
  fp16 (*run)(fp16, fp16);
};
constexpr Operation operations[] = {{'+', [](fp16 x, fp16 y) { return x + y; }},
                                    {'-', [](fp16 x, fp16 y) { return x - y; }},
                                    {'*', [](fp16 x, fp16 y) { return x * y; }},
                                    {'/', [](fp16 x, fp16 y) { return x / y; }}};
constexpr std::uint64_t all_floats = std::uint64_t{1} << 32;

fp16 from_float(float x) { return fp16{x}; }
fp16 fused(fp16 a, fp16 b, fp16 c) { return fma(a, b, c); }

TEST(Fp16, RoundsEveryFloatAsTheOracle) {
  const Count count = compare_all_floats<fp16>(from_float, oracle_fp16_from_floats);
  print<fp16>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
}

// The same with the oracle asked for each float.
TEST(NightlyFp16, RoundsEveryFloatAsTheOracleDoesEach) {
  const Count count = on_two_threads([](int part) {
    const std::uint64_t half = all_floats / 2;
    const std::uint64_t from = part == 0 ? 0 : half;
    return compare_floats<fp16>(from_float, oracle_fp16_from_floats, from, from + half, 1);
  });
  print<fp16>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
}

TEST(Fp16, ArithmeticRoundsOnceOnASampleOfAllPairs) {
  for (const auto& [op, run] : operations) {
    const Count count = compare_pairs<fp16>(op, run, oracle_fp16_binary, 0, 257);
    print<fp16>(std::string(1, op).c_str(), count);
    EXPECT_EQ(count.mismatches, 0) << op;
    EXPECT_EQ(count.inputs, 256 * 65536);
  }
}

TEST(NightlyFp16, ArithmeticOfEveryPairRoundsOnce) {
  for (const auto& [op, run] : operations) {
    const Count count = on_two_threads([&, o = op, r = run](int part) {
      return compare_pairs<fp16>(o, r, oracle_fp16_binary, static_cast<std::uint32_t>(part), 2);
    });
    print<fp16>(std::string(1, op).c_str(), count);
    EXPECT_EQ(count.mismatches, 0) << op;
    EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
  }
}

TEST(Fp16, SqrtOfEveryCodeRoundsOnce) {
  const Count count = compare_sqrt<fp16>([](fp16 x) { return sqrt(x); }, oracle_fp16_sqrt);
  print<fp16>("sqrt", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, 65536);
}

TEST(Fp16, FmaAgreesWithTheOracleOnTenMillionTriples) {
  const Count count = compare_fma<fp16>(fused, oracle_fp16_fma, 1, 10'000'000);
  print<fp16>("fma", count);
  EXPECT_EQ(count.mismatches, 0);
}

TEST(NightlyFp16, FmaAgreesWithTheOracleOnAThousandMillionTriples) {
  const Count count = on_two_threads([](int part) {
    return compare_fma<fp16>(fused, oracle_fp16_fma, 2 + static_cast<std::uint64_t>(part),
                             500'000'000);
  });
  print<fp16>("fma", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, 1'000'000'000);
}

// One wrong answer among all is one mismatch, in each of the comparisons above.
TEST(Fp16, EachComparisonSeesOneWrongAnswer) {
  const auto flip = [](fp16 x) { return code(x.bits() ^ 1U); };
  const auto wrong_from = [&](float x) {
    return std::bit_cast<std::uint32_t>(x) == 0x3F800003 ? flip(fp16{x}) : fp16{x};
  };
  EXPECT_EQ(compare_all_floats<fp16>(wrong_from, oracle_fp16_from_floats).mismatches, 1);
  EXPECT_EQ(compare_floats<fp16>(wrong_from, oracle_fp16_from_floats, 0x3F000000, 0x40000000, 1)
                .mismatches,
            1);
  const auto wrong_to = [](fp16 x) {
    return x.bits() == 0x0001 ? 0.0F : static_cast<float>(x);  // a subnormal is lost
  };
  EXPECT_EQ((compare_codes<fp16, float>(wrong_to, oracle_fp16_value).mismatches), 1);
  for (const auto& [op, run] : operations) {
    const auto wrong = [&, r = run](fp16 x, fp16 y) {
      return x.bits() == 0x3E00 && y.bits() == 0x4249 ? flip(r(x, y)) : r(x, y);
    };
    EXPECT_EQ(compare_pairs<fp16>(op, wrong, oracle_fp16_binary, 0x3E00, 0x10000).mismatches, 1);
  }
  const auto wrong_sqrt = [&](fp16 x) { return x == fp16{2} ? flip(sqrt(x)) : sqrt(x); };
  EXPECT_EQ(compare_sqrt<fp16>(wrong_sqrt, oracle_fp16_sqrt).mismatches, 1);
  // The route that most libraries take, through float, is caught.
  const auto through_float = [](fp16 a, fp16 b, fp16 c) {
    return fp16{static_cast<float>(a) * static_cast<float>(b) + static_cast<float>(c)};
  };
  EXPECT_GT(compare_fma<fp16>(through_float, oracle_fp16_fma, 1, 100'000).mismatches, 0);
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
