// SPDX-License-Identifier: MIT
#include <halfstep/numeric/bf16.hpp>

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
#include <numeric/exhaustive.hpp>

using halfstep::bf16;
using halfstep_tests::compare_all_floats;
using halfstep_tests::compare_codes;
using halfstep_tests::compare_floats;
using halfstep_tests::compare_fma;
using halfstep_tests::compare_pairs;
using halfstep_tests::compare_sqrt;
using halfstep_tests::Count;
using halfstep_tests::on_two_threads;
using halfstep_tests::print;

double oracle_bf16_value(std::uint16_t code);
void oracle_bf16_from_floats(const float* in, std::uint16_t* out, std::size_t n);
std::uint16_t oracle_bf16_from_double(double x);
std::uint16_t oracle_bf16_sqrt(std::uint16_t a);
void oracle_bf16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n);
std::uint16_t oracle_bf16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c);

namespace {

bf16 code(std::uint32_t bits) { return halfstep_tests::code<bf16>(bits); }
float f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t from(std::uint32_t float_bits) { return bf16{f32(float_bits)}.bits(); }

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

struct Operation {
  char op;
  bf16 (*run)(bf16, bf16);
};
constexpr Operation operations[] = {{'+', [](bf16 x, bf16 y) { return x + y; }},
                                    {'-', [](bf16 x, bf16 y) { return x - y; }},
                                    {'*', [](bf16 x, bf16 y) { return x * y; }},
                                    {'/', [](bf16 x, bf16 y) { return x / y; }}};
constexpr std::uint64_t all_floats = std::uint64_t{1} << 32;

bf16 from_float(float x) { return bf16{x}; }
bf16 fused(bf16 a, bf16 b, bf16 c) { return fma(a, b, c); }

TEST(Bf16, RoundsEveryFloatAsTheOracle) {
  const Count count = compare_all_floats<bf16>(from_float, oracle_bf16_from_floats);
  print<bf16>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
}

// The same with the oracle asked for each float.
TEST(NightlyBf16, RoundsEveryFloatAsTheOracleDoesEach) {
  const Count count = on_two_threads([](int part) {
    const std::uint64_t half = all_floats / 2;
    const std::uint64_t from = part == 0 ? 0 : half;
    return compare_floats<bf16>(from_float, oracle_bf16_from_floats, from, from + half, 1);
  });
  print<bf16>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
}

TEST(Bf16, ArithmeticRoundsOnceOnASampleOfAllPairs) {
  for (const auto& [op, run] : operations) {
    const Count count = compare_pairs<bf16>(op, run, oracle_bf16_binary, 0, 257);
    print<bf16>(std::string(1, op).c_str(), count);
    EXPECT_EQ(count.mismatches, 0) << op;
    EXPECT_EQ(count.inputs, 256 * 65536);
  }
}

TEST(NightlyBf16, ArithmeticOfEveryPairRoundsOnce) {
  for (const auto& [op, run] : operations) {
    const Count count = on_two_threads([&, o = op, r = run](int part) {
      return compare_pairs<bf16>(o, r, oracle_bf16_binary, static_cast<std::uint32_t>(part), 2);
    });
    print<bf16>(std::string(1, op).c_str(), count);
    EXPECT_EQ(count.mismatches, 0) << op;
    EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
  }
}

TEST(Bf16, SqrtOfEveryCodeRoundsOnce) {
  const Count count = compare_sqrt<bf16>([](bf16 x) { return sqrt(x); }, oracle_bf16_sqrt);
  print<bf16>("sqrt", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, 65536);
}

TEST(Bf16, FmaAgreesWithTheOracleOnTenMillionTriples) {
  const Count count = compare_fma<bf16>(fused, oracle_bf16_fma, 1, 10'000'000);
  print<bf16>("fma", count);
  EXPECT_EQ(count.mismatches, 0);
}

TEST(NightlyBf16, FmaAgreesWithTheOracleOnAThousandMillionTriples) {
  const Count count = on_two_threads([](int part) {
    return compare_fma<bf16>(fused, oracle_bf16_fma, 2 + static_cast<std::uint64_t>(part),
                             500'000'000);
  });
  print<bf16>("fma", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, 1'000'000'000);
}

// One wrong answer among all is one mismatch, in each of the comparisons above.
TEST(Bf16, EachComparisonSeesOneWrongAnswer) {
  const auto flip = [](bf16 x) { return code(x.bits() ^ 1U); };
  const auto wrong_from = [&](float x) {
    return std::bit_cast<std::uint32_t>(x) == 0x3F800003 ? flip(bf16{x}) : bf16{x};
  };
  EXPECT_EQ(compare_all_floats<bf16>(wrong_from, oracle_bf16_from_floats).mismatches, 1);
  EXPECT_EQ(compare_floats<bf16>(wrong_from, oracle_bf16_from_floats, 0x3F000000, 0x40000000, 1)
                .mismatches,
            1);
  const auto wrong_to = [](bf16 x) {
    return x.bits() == 0x0001 ? 0.0F : static_cast<float>(x);  // a subnormal is lost
  };
  EXPECT_EQ((compare_codes<bf16, float>(wrong_to, oracle_bf16_value).mismatches), 1);
  for (const auto& [op, run] : operations) {
    const auto wrong = [&, r = run](bf16 x, bf16 y) {
      return x.bits() == 0x3FC0 && y.bits() == 0x4049 ? flip(r(x, y)) : r(x, y);
    };
    EXPECT_EQ(compare_pairs<bf16>(op, wrong, oracle_bf16_binary, 0x3FC0, 0x10000).mismatches, 1);
  }
  const auto wrong_sqrt = [&](bf16 x) { return x == bf16{2} ? flip(sqrt(x)) : sqrt(x); };
  EXPECT_EQ(compare_sqrt<bf16>(wrong_sqrt, oracle_bf16_sqrt).mismatches, 1);
  // The route that most libraries take, through float, is caught.
  const auto through_float = [](bf16 a, bf16 b, bf16 c) {
    return bf16{static_cast<float>(a) * static_cast<float>(b) + static_cast<float>(c)};
  };
  EXPECT_GT(compare_fma<bf16>(through_float, oracle_bf16_fma, 1, 100'000).mismatches, 0);
}

TEST(Bf16, FmaRoundsOnceWhereDoubleDoesNot) {
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-32}), bf16{258});  // float: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{-0x1p-60}), bf16{258});  // double: 260
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0.0F}), bf16{260});      // the tie itself
  EXPECT_EQ(fma(bf16{7}, bf16{37}, bf16{0x1p-133}), bf16{260});
  EXPECT_EQ(fma(bf16{-7}, bf16{37}, bf16{0x1p-133}), bf16{-258});
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
