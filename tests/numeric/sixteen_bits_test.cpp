// SPDX-License-Identifier: MIT
// bf16 and fp16: every code, float and pair against an oracle. The reference's own numbers are in
// bf16_test.cpp and fp16_test.cpp.
#include <halfstep/numeric/small_float.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <numeric/exhaustive.hpp>

#define HALFSTEP_ORACLE(format)                                                           \
  double oracle_##format##_value(std::uint16_t code);                                     \
  void oracle_##format##_from_floats(const float* in, std::uint16_t* out, std::size_t n); \
  std::uint16_t oracle_##format##_from_double(double x);                                  \
  std::uint16_t oracle_##format##_from_long_double(long double x);                        \
  std::uint16_t oracle_##format##_sqrt(std::uint16_t a);                                  \
  void oracle_##format##_binary(char op, std::uint16_t a, const std::uint16_t* b,         \
                                std::uint16_t* out, std::size_t n);                       \
  std::uint16_t oracle_##format##_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c); \
  template <>                                                                             \
  struct Oracle<halfstep::format> {                                                       \
    static constexpr auto value = oracle_##format##_value;                                \
    static constexpr auto from_floats = oracle_##format##_from_floats;                    \
    static constexpr auto from_double = oracle_##format##_from_double;                    \
    static constexpr auto from_long_double = oracle_##format##_from_long_double;          \
    static constexpr auto sqrt = oracle_##format##_sqrt;                                  \
    static constexpr auto binary = oracle_##format##_binary;                              \
    static constexpr auto fma = oracle_##format##_fma;                                    \
  };
template <class T>
struct Oracle;
HALFSTEP_ORACLE(bf16)
HALFSTEP_ORACLE(fp16)
#undef HALFSTEP_ORACLE

namespace {

using namespace halfstep_tests;

constexpr std::int64_t all_floats = std::int64_t{1} << 32;
constexpr std::int64_t all_pairs = std::int64_t{1} << 32;

template <class T>
class SixteenBits : public testing::Test {};
template <class T>
class NightlySixteenBits : public testing::Test {};
using Sixteen = testing::Types<halfstep::bf16, halfstep::fp16>;
TYPED_TEST_SUITE(SixteenBits, Sixteen, NameOfFormat);
TYPED_TEST_SUITE(NightlySixteenBits, Sixteen, NameOfFormat);

template <class To>
constexpr auto to = [](auto x) { return static_cast<To>(x); };
template <class T, class Wide>
constexpr auto through = [](T x) { return T{static_cast<Wide>(x)}; };
constexpr char operations[] = {'+', '-', '*', '/'};
template <class T>
auto arithmetic(char op) {
  return [op](T x, T y) {
    return op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
  };
}
constexpr auto fused = [](auto a, auto b, auto c) { return fma(a, b, c); };
constexpr auto root = [](auto x) { return sqrt(x); };

TYPED_TEST(SixteenBits, EveryCodeWidensToItsValueAndComesBack) {
  using T = TypeParam;
  constexpr auto value = Oracle<T>::value;
  expect_none_wrong<T>("to float", compare_codes<T, float>(to<float>, value), 65536);
  expect_none_wrong<T>("to double", compare_codes<T, double>(to<double>, value), 65536);
  expect_none_wrong<T>("to long double", compare_codes<T, long double>(to<long double>, value),
                       65536);
  expect_none_wrong<T>("by float", compare_round_trips<T>(through<T, float>), 65536);
  expect_none_wrong<T>("by double", compare_round_trips<T>(through<T, double>), 65536);
  expect_none_wrong<T>("by long double", compare_round_trips<T>(through<T, long double>), 65536);
}

TYPED_TEST(SixteenBits, RoundsEveryFloatAsTheOracle) {
  expect_none_wrong<TypeParam>(
      "from float", compare_all_floats<TypeParam>(to<TypeParam>, Oracle<TypeParam>::from_floats),
      all_floats);
}
// The same with the oracle asked for each float.
TYPED_TEST(NightlySixteenBits, RoundsEveryFloatAsTheOracleDoesEach) {
  const Count count = on_two_threads([](int part) {
    constexpr std::uint64_t half = all_floats / 2;
    const std::uint64_t from = part == 0 ? 0 : half;
    return compare_floats<TypeParam>(to<TypeParam>, Oracle<TypeParam>::from_floats, from,
                                     from + half, 1);
  });
  expect_none_wrong<TypeParam>("from float", count, all_floats);
}

// Random neighbours' middles and what lies beside them, by less than a double can say too.
TYPED_TEST(SixteenBits, RoundsDoubleAndLongDoubleOnce) {
  using T = TypeParam;
  using Judge = Oracle<T>;
  std::mt19937_64 random(1);
  const std::uint32_t infinity = std::numeric_limits<T>::infinity().bits();
  const double beyond = std::ldexp(1.0, std::numeric_limits<T>::max_exponent);
  Count count;
  for (int i = 0; i < 1'000'000; ++i, count.inputs += 3) {
    const auto low = static_cast<std::uint16_t>(random() % infinity);
    const double x = Judge::value(low);
    const double next =
        low + 1U == infinity ? beyond : Judge::value(static_cast<std::uint16_t>(low + 1));
    double y = x + (next - x) / 2;
    if (i % 3 == 1) y = std::nextafter(y, HUGE_VAL);
    if (i % 3 == 2) y = std::nextafter(y, 0.0);
    const long double z = static_cast<long double>(y) * (1 + 0x1p-60L);
    count.mismatches += T{y}.bits() != Judge::from_double(y) ? 1 : 0;
    count.mismatches += T{-y}.bits() != Judge::from_double(-y) ? 1 : 0;
    count.mismatches += T{z}.bits() != Judge::from_long_double(z) ? 1 : 0;
  }
  expect_none_wrong<T>("from double and long double", count, 3'000'000);
}

TYPED_TEST(SixteenBits, RoundsIntegersOnce) {
  using T = TypeParam;
  for (std::int64_t i = -70000; i <= 70000; ++i)
    ASSERT_EQ(T{i}.bits(), Oracle<T>::from_double(static_cast<double>(i))) << i;
  for (std::int32_t i = 0; i < (1 << 25); i += 77)
    ASSERT_EQ(T{i}.bits(), Oracle<T>::from_double(i)) << i;
}

/// Every code of From to T, by its value, which double holds.
template <class T, class From>
void expect_every_code_rounds() {
  Count count;
  for (std::uint32_t bits = 0; bits < codes<From>; ++bits, ++count.inputs) {
    const From x = code<From>(bits);
    const T found{x};
    const std::uint16_t expected = Oracle<T>::from_double(static_cast<double>(x));
    count.mismatches += isnan(x) == isnan(found) && agree(found, expected) ? 0 : 1;
  }
  expect_none_wrong<T>(name_of<From>, count, codes<From>);
}
template <class T, class... From>
void expect_all_round(Formats<From...>) {
  (expect_every_code_rounds<T, From>(), ...);
}
TYPED_TEST(SixteenBits, RoundsEveryCodeOfEveryFormatOnce) {
  expect_all_round<TypeParam>(AllFormats{});
}

TYPED_TEST(SixteenBits, BecomesAnIntegerByCuttingOffTheFraction) {
  for (std::uint32_t bits = 0; bits < codes<TypeParam>; ++bits) {
    const auto x = code<TypeParam>(bits);
    const double value = Oracle<TypeParam>::value(x.bits());
    if (!(std::fabs(value) < 0x1p62)) continue;
    ASSERT_EQ(static_cast<std::int64_t>(x), static_cast<std::int64_t>(value)) << bits;
    ASSERT_EQ(static_cast<bool>(x), value != 0) << bits;
  }
}

TYPED_TEST(SixteenBits, ArithmeticRoundsOnceOnASampleOfAllPairs) {
  using T = TypeParam;
  for (const char op : operations) {
    expect_none_wrong<T>(std::string(1, op).c_str(),
                         compare_pairs<T>(op, arithmetic<T>(op), Oracle<T>::binary, 0, 257),
                         256 * 65536);
  }
}
TYPED_TEST(NightlySixteenBits, ArithmeticOfEveryPairRoundsOnce) {
  using T = TypeParam;
  for (const char op : operations) {
    const Count count = on_two_threads([op](int part) {
      return compare_pairs<T>(op, arithmetic<T>(op), Oracle<T>::binary,
                              static_cast<std::uint32_t>(part), 2);
    });
    expect_none_wrong<T>(std::string(1, op).c_str(), count, all_pairs);
  }
}

TYPED_TEST(SixteenBits, SqrtOfEveryCodeRoundsOnce) {
  expect_none_wrong<TypeParam>("sqrt", compare_sqrt<TypeParam>(root, Oracle<TypeParam>::sqrt),
                               65536);
}

TYPED_TEST(SixteenBits, FmaAgreesWithTheOracleOnTenMillionTriples) {
  using T = TypeParam;
  expect_none_wrong<T>("fma", compare_fma<T>(fused, Oracle<T>::fma, 1, 10'000'000), 10'000'000);
}
TYPED_TEST(NightlySixteenBits, FmaAgreesWithTheOracleOnAThousandMillionTriples) {
  using T = TypeParam;
  const Count count = on_two_threads([](int part) {
    return compare_fma<T>(fused, Oracle<T>::fma, 2 + static_cast<std::uint64_t>(part), 500'000'000);
  });
  expect_none_wrong<T>("fma", count, 1'000'000'000);
}

// One wrong answer among all is one mismatch, in each of the comparisons above.
TYPED_TEST(SixteenBits, EachComparisonSeesOneWrongAnswer) {
  using T = TypeParam;
  using Judge = Oracle<T>;
  const T two{2}, smallest = code<T>(1);
  const auto flip = [](T x) { return code<T>(x.bits() ^ 1U); };

  const auto wrong_from = [&](float x) { return x == 0x1.000006p127F ? flip(T{x}) : T{x}; };
  const std::uint32_t least = 0x7F00'0000;
  EXPECT_EQ(compare_all_floats<T>(wrong_from, Judge::from_floats, least).mismatches, 1);
  EXPECT_EQ(compare_floats<T>(wrong_from, Judge::from_floats, least, least + 4096, 1).mismatches,
            1);

  const auto wrong_to = [&](T x) { return x == smallest ? 0.0F : static_cast<float>(x); };
  EXPECT_EQ((compare_codes<T, float>(wrong_to, Judge::value).mismatches), 1);
  const auto loses_a_sign = [](T x) { return x == T{0} ? 0.0F : static_cast<float>(x); };
  EXPECT_EQ((compare_codes<T, float>(loses_a_sign, Judge::value).mismatches), 1);
  EXPECT_EQ(compare_round_trips<T>([&](T x) { return T{wrong_to(x)}; }).mismatches, 1);

  for (const char op : operations) {
    const auto wrong = [&, right = arithmetic<T>(op)](T x, T y) {
      return x == T{1.5F} && y == T{3.140625F} ? flip(right(x, y)) : right(x, y);
    };
    EXPECT_EQ(compare_pairs<T>(op, wrong, Judge::binary, T{1.5F}.bits(), 0x10000).mismatches, 1);
  }
  const auto wrong_root = [&](T x) { return x == two ? flip(sqrt(x)) : sqrt(x); };
  EXPECT_EQ(compare_sqrt<T>(wrong_root, Judge::sqrt).mismatches, 1);

  int number = 0;
  const auto wrong_once = [&](T a, T b, T c) {
    const T right = fma(a, b, c);
    return !isnan(right) && ++number == 50'000 ? flip(right) : right;
  };
  EXPECT_EQ(compare_fma<T>(wrong_once, Judge::fma, 1, 100'000).mismatches, 1);
  // The route that most libraries take is caught too.
  const auto through_float = [](T a, T b, T c) {
    return T{static_cast<float>(a) * static_cast<float>(b) + static_cast<float>(c)};
  };
  EXPECT_GT(compare_fma<T>(through_float, Judge::fma, 1, 100'000).mismatches, 0);
}

TYPED_TEST(SixteenBits, ComparesAsTheValuesDoNaNIncluded) {
  using T = TypeParam;
  constexpr std::uint32_t sign = T::format::sign_code, infinity = T::format::infinity_code;
  std::vector<std::uint32_t> some{1,
                                  sign,
                                  sign | 1,
                                  infinity - 1,
                                  infinity,
                                  sign | infinity,
                                  T::format::nan_code,
                                  sign | T::format::nan_code};
  for (std::uint32_t bits = 0; bits < codes<T>; bits += 61)
    some.push_back(bits);
  for (const std::uint32_t a : some) {
    const T x = code<T>(a);
    const double dx = Oracle<T>::value(x.bits());
    for (const std::uint32_t b : some) {
      const T y = code<T>(b);
      const double dy = Oracle<T>::value(y.bits());
      ASSERT_EQ(x == y, dx == dy);
      ASSERT_EQ(x != y, dx != dy);
      ASSERT_EQ(x < y, dx < dy);
      ASSERT_EQ(x <= y, dx <= dy);
      ASSERT_EQ(x > y, dx > dy);
      ASSERT_EQ(x <=> y, dx <=> dy);
    }
  }
}

// From the lowest to the highest, the zeros one step, and back.
TYPED_TEST(SixteenBits, NextafterWalksThroughAllValues) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  std::uint32_t steps = 0;
  for (T x = -infinity; x != infinity; ++steps) {
    const T next = nextafter(x, infinity);
    ASSERT_TRUE(x < next) << steps;
    ASSERT_EQ(nextafter(next, x), x) << steps;
    x = next;
  }
  EXPECT_EQ(steps, 2U * T::format::infinity_code);
  EXPECT_EQ(nextafter(T{0.0F}, T{-1.0F}).bits(), T::format::sign_code | 1U);
  EXPECT_EQ(nextafter(T{1.0F}, T{1.0F}), T{1.0F});
  EXPECT_TRUE(isnan(nextafter(std::numeric_limits<T>::quiet_NaN(), T{1.0F})));
}

}  // namespace
