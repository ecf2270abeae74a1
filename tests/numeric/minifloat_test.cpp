// SPDX-License-Identifier: MIT
// All formats of at most 8 bits, those of fp8_e4m3.hpp and fp8_e5m2.hpp too, against one oracle.
#include <halfstep/numeric/minifloat.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/numeric/round_to.hpp>
#include <numeric/formats.hpp>

double oracle_minifloat_value(const char* name, std::uint8_t code);
std::uint8_t oracle_minifloat_code(const char* name, double x, bool saturate);
std::vector<std::uint32_t> oracle_minifloat_first_floats(const char* name);
std::uint8_t oracle_minifloat_code_at(const char* name, std::size_t index, bool negative);
std::uint8_t oracle_minifloat_nan(const char* name, std::uint32_t bits);
double oracle_binary(char op, double x, double y);
double oracle_fma(double x, double y, double z);
double oracle_sqrt(double x);

namespace {

using namespace halfstep_tests;
using halfstep::fp8_e8m0;
using halfstep::numeric::Overflow;
using halfstep::numeric::round_to;
using halfstep::numeric::Rounding;

struct Count {
  std::int64_t inputs = 0;
  std::int64_t mismatches = 0;
};

template <class T>
void print(const char* what, Count count) {
  std::printf("%s %s: %lld inputs, %lld mismatches, path scalar\n", name_of<T>, what,
              static_cast<long long>(count.inputs), static_cast<long long>(count.mismatches));
}

/// Every `stride`-th float, and the floats around each one at which the code changes, through
/// `convert`. The oracle says where the codes change, so a float costs a conversion and a compare.
template <class T, class Convert>
Count compare_floats(Convert convert, std::uint32_t stride) {
  const auto first = oracle_minifloat_first_floats(name_of<T>);
  Count count;
  const auto check = [&](std::uint32_t bits, std::uint8_t expected) {
    ++count.inputs;
    count.mismatches += convert(std::bit_cast<float>(bits)).bits() != expected ? 1 : 0;
  };
  for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
    const bool negative = sign != 0;
    const std::uint32_t zero = T::format::has_zero ? 0 : 1;  // the scales' zero is a NaN
    if (zero == 1) check(sign, 0xFF);
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::uint32_t from = i == 0 ? zero : first[i];
      const std::uint32_t end = i + 1 < first.size() ? first[i + 1] : 0x7F80'0001;
      const std::uint8_t expected = oracle_minifloat_code_at(name_of<T>, i, negative);
      for (std::uint32_t bits = from; bits < end; bits += stride)
        check(sign | bits, expected);
      if (stride > 1) check(sign | (end - 1), expected);
    }
    for (std::uint32_t bits = 0x7F80'0001; bits < 0x8000'0000; bits += stride)
      check(sign | bits, oracle_minifloat_nan(name_of<T>, sign | bits));
  }
  return count;
}

template <class T>
constexpr auto to = [](auto x) { return T{x}; };

template <class T>
class Minifloat : public testing::Test {};
template <class T>
class NightlyMinifloat : public testing::Test {};
TYPED_TEST_SUITE(Minifloat, Types<SmallFormats>, NameOfFormat);
TYPED_TEST_SUITE(NightlyMinifloat, Types<SmallFormats>, NameOfFormat);
template <class T>
class Fp8 : public testing::Test {};
using Fp8Formats = testing::Types<halfstep::fp8_e4m3, halfstep::fp8_e5m2>;
TYPED_TEST_SUITE(Fp8, Fp8Formats, NameOfFormat);

TYPED_TEST(Minifloat, RoundsASampleOfAllFloatsAndEveryEdgeAsTheOracle) {
  const Count count = compare_floats<TypeParam>(to<TypeParam>, 199);
  print<TypeParam>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_GT(count.inputs, 21'000'000);
}

template <class T>
void expect_every_float_rounds() {
  const Count count = compare_floats<T>(to<T>, 1);
  print<T>("from float", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
}
TYPED_TEST(Fp8, RoundsEveryFloatAsTheOracle) { expect_every_float_rounds<TypeParam>(); }
TYPED_TEST(NightlyMinifloat, RoundsEveryFloatAsTheOracle) {
  expect_every_float_rounds<TypeParam>();
}

// The comparison is not blind: one wrong code, of one float beside an edge, is one mismatch.
TYPED_TEST(Minifloat, AConversionThatIsWrongForOneFloatIsCaught) {
  const auto first = oracle_minifloat_first_floats(name_of<TypeParam>);
  const std::uint32_t victim = first[2];
  const auto corrupt = [victim](float x) {
    const TypeParam right{x};
    return std::bit_cast<std::uint32_t>(x) == victim ? code<TypeParam>(right.bits() ^ 1U) : right;
  };
  EXPECT_EQ(compare_floats<TypeParam>(corrupt, 199).mismatches, 1);
}

TYPED_TEST(Minifloat, EveryCodeWidensToItsValueAndComesBack) {
  Count count;
  for (std::uint32_t bits = 0; bits < codes<TypeParam>; ++bits, ++count.inputs) {
    const auto x = code<TypeParam>(bits);
    const double value = oracle_minifloat_value(name_of<TypeParam>, x.bits());
    ASSERT_EQ(isnan(x), std::isnan(value)) << bits;
    ASSERT_EQ(isinf(x), std::isinf(value)) << bits;
    ASSERT_EQ(isfinite(x), std::isfinite(value)) << bits;
    ASSERT_EQ(iszero(x), value == 0) << bits;
    ASSERT_EQ(signbit(x), (bits & TypeParam::format::sign_code) != 0) << bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(x)) && std::isnan(static_cast<double>(x)));
      ASSERT_TRUE(isnan(TypeParam{static_cast<float>(x)}));
      ASSERT_TRUE(std::isnan(static_cast<long double>(x)));
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), value) << bits;
    ASSERT_EQ(std::signbit(static_cast<double>(x)), signbit(x)) << bits;
    ASSERT_EQ(static_cast<double>(static_cast<float>(x)), value) << bits;
    ASSERT_EQ(static_cast<long double>(x), value) << bits;
    ASSERT_EQ(static_cast<bool>(x), value != 0) << bits;
    if (std::fabs(value) < 1e9) {
      ASSERT_EQ(static_cast<int>(x), static_cast<int>(value)) << bits;
    }
    ASSERT_EQ(TypeParam{static_cast<float>(x)}.bits(), bits);
    ASSERT_EQ(TypeParam{static_cast<double>(x)}.bits(), bits);
    ASSERT_EQ(TypeParam{static_cast<long double>(x)}.bits(), bits);
  }
  print<TypeParam>("to float", count);
  ASSERT_EQ(count.inputs, 1 << TypeParam::format::bits);
}

/// Every middle between neighbours, the doubles beside it, and random ones of all sizes.
template <class T>
std::vector<double> interesting_doubles() {
  std::vector<double> xs{0.0, 1e300, HUGE_VAL, 0x1p-1074, std::nan("")};
  const std::uint32_t top = T::format::max_code;
  for (std::uint32_t bits = 0; bits <= top; ++bits) {
    const double low = static_cast<double>(code<T>(bits));
    const double high = bits == top ? 2 * low - static_cast<double>(code<T>(bits - 1))
                                    : static_cast<double>(code<T>(bits + 1));
    const double middle = (low + high) / 2;
    for (const double x : {low, high, middle}) {
      xs.push_back(x);
      xs.push_back(std::nextafter(x, HUGE_VAL));
      xs.push_back(std::nextafter(x, 0.0));
    }
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 200000; ++i) {
    xs.push_back(std::bit_cast<double>(random() >> 1));
    xs.push_back(
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 64) - 85));
  }
  const std::size_t n = xs.size();
  for (std::size_t i = 0; i < n; ++i)
    xs.push_back(-xs[i]);
  return xs;
}

TYPED_TEST(Minifloat, RoundsDoubleAndLongDoubleOnceAndSaturatesWhereAsked) {
  Count count;
  const auto one_nan = [](TypeParam x) {
    return isnan(x) ? (x.bits() & TypeParam::format::sign_code) | TypeParam::format::nan_code
                    : std::uint32_t{x.bits()};
  };
  for (const double x : interesting_doubles<TypeParam>()) {
    ++count.inputs;
    ASSERT_EQ(one_nan(TypeParam{x}), oracle_minifloat_code(name_of<TypeParam>, x, false)) << x;
    ASSERT_EQ(one_nan(round_to<TypeParam, Rounding::nearest_even, Overflow::saturate>(x)),
              oracle_minifloat_code(name_of<TypeParam>, x, true))
        << x;
    ASSERT_EQ(one_nan(TypeParam{static_cast<long double>(x)}),
              oracle_minifloat_code(name_of<TypeParam>, x, false))
        << x;
  }
  // Beside each middle by less than a double can say: by way of double these would be ties.
  for (std::uint32_t bits = 0; bits < TypeParam::format::max_code; ++bits, ++count.inputs) {
    const auto middle = (static_cast<long double>(code<TypeParam>(bits)) +
                         static_cast<long double>(code<TypeParam>(bits + 1))) /
                        2;
    ASSERT_EQ(TypeParam{middle * (1 - 0x1p-60L)}.bits(), bits);
    ASSERT_EQ(TypeParam{middle * (1 + 0x1p-60L)}.bits(), bits + 1);
  }
  print<TypeParam>("from double and long double", count);
  EXPECT_EQ(count.inputs, std::ssize(interesting_doubles<TypeParam>()) +
                              static_cast<std::int64_t>(TypeParam::format::max_code));
}

TYPED_TEST(Minifloat, RoundsEveryIntegerTypeOnce) {
  const auto expected = [](double x) {
    return oracle_minifloat_code(name_of<TypeParam>, x, false);
  };
  for (int i = -70000; i <= 70000; ++i) {
    ASSERT_EQ(TypeParam{i}.bits(), expected(i)) << i;
    ASSERT_EQ(TypeParam{static_cast<std::int16_t>(i)}.bits(),
              expected(static_cast<std::int16_t>(i)));
    ASSERT_EQ(TypeParam{static_cast<std::uint16_t>(i)}.bits(),
              expected(static_cast<std::uint16_t>(i)));
    ASSERT_EQ(TypeParam{static_cast<std::int8_t>(i)}.bits(), expected(static_cast<std::int8_t>(i)));
    ASSERT_EQ(TypeParam{static_cast<std::uint8_t>(i)}.bits(),
              expected(static_cast<std::uint8_t>(i)));
  }
  EXPECT_EQ(TypeParam{true}.bits(), expected(1));
  EXPECT_EQ(TypeParam{false}.bits(), expected(0));
  EXPECT_EQ(TypeParam{std::numeric_limits<std::int64_t>::min()}.bits(), expected(-0x1p63));
  EXPECT_EQ(TypeParam{std::numeric_limits<std::uint64_t>::max()}.bits(), expected(0x1p64));
  // A tie of the powers of two and one less, beyond what double holds.
  EXPECT_EQ(TypeParam{(std::uint64_t{3} << 62) - 1}.bits(), expected(0x1.7ffffffffffffp63));
}

// To each of these formats from each code of every format, the larger ones too.
template <class To, class From>
void expect_every_code_rounds() {
  for (std::uint32_t bits = 0; bits < codes<From>; ++bits) {
    const From x = code<From>(bits);
    if (isnan(x)) {
      ASSERT_EQ(isnan(To{x}), To::format::has_nan);
      continue;
    }
    ASSERT_EQ(To{x}.bits(), oracle_minifloat_code(name_of<To>, static_cast<double>(x), false))
        << name_of<From> << ' ' << bits;
  }
}
template <class To, class... From>
void expect_all_round(Formats<From...>) {
  (expect_every_code_rounds<To, From>(), ...);
}
TYPED_TEST(Minifloat, RoundsEveryCodeOfEveryFormatOnce) {
  expect_all_round<TypeParam>(SmallFormats{});
  expect_all_round<TypeParam>(Formats<halfstep::bf16, halfstep::fp16>{});
}

/// A NaN of an operation has the sign that the hardware gives it, which is no part of the promise.
template <class T>
std::uint32_t any_nan(T x) {
  return isnan(x) ? 0x100U : x.bits();
}
template <class T>
std::uint32_t oracle(double x) {
  if (std::isnan(x)) return T::format::has_nan ? 0x100U : 0xFFFFU;
  const T expected = code<T>(oracle_minifloat_code(name_of<T>, x, false));
  return any_nan(expected);
}

template <class T>
std::vector<double> values() {
  std::vector<double> all;
  for (std::uint32_t a = 0; a < codes<T>; ++a)
    all.push_back(oracle_minifloat_value(name_of<T>, code<T>(a).bits()));
  return all;
}

/// Whether `found` is what an operation gives whose exact result, or correctly rounded double, is
/// `exact`. Where there is no NaN, an invalid operation gives a zero.
template <class T>
bool right(T found, double exact) {
  if (std::isnan(exact) && !T::format::has_nan) return iszero(found);
  return any_nan(found) == oracle<T>(exact);
}

constexpr char operations[] = {'+', '-', '*', '/'};
constexpr auto arithmetic = [](char op, auto x, auto y) {
  return op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
};

template <class T, class Operation>
Count compare_arithmetic(Operation operation) {
  Count count;
  const auto value = values<T>();
  for (std::uint32_t a = 0; a < codes<T>; ++a) {
    for (std::uint32_t b = 0; b < codes<T>; ++b) {
      for (const char op : operations) {
        ++count.inputs;
        const T found = operation(op, code<T>(a), code<T>(b));
        count.mismatches += right(found, oracle_binary(op, value[a], value[b])) ? 0 : 1;
      }
    }
  }
  return count;
}

template <class T, class Operation>
Count compare_fma(Operation operation, std::uint32_t end) {
  Count count;
  const auto value = values<T>();
  for (std::uint32_t a = 0; a < end; ++a) {
    for (std::uint32_t b = 0; b < codes<T>; ++b) {
      for (std::uint32_t c = 0; c < codes<T>; ++c) {
        ++count.inputs;
        const T found = operation(code<T>(a), code<T>(b), code<T>(c));
        count.mismatches += right(found, oracle_fma(value[a], value[b], value[c])) ? 0 : 1;
      }
    }
  }
  return count;
}

template <class T, class Operation>
Count compare_sqrt(Operation operation) {
  Count count;
  const auto value = values<T>();
  for (std::uint32_t a = 0; a < codes<T>; ++a, ++count.inputs)
    count.mismatches += right(T{operation(code<T>(a))}, oracle_sqrt(value[a])) ? 0 : 1;
  return count;
}

TYPED_TEST(Minifloat, ArithmeticOfEveryPairRoundsOnce) {
  const Count count = compare_arithmetic<TypeParam>(arithmetic);
  print<TypeParam>("+ - * /", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{4} * codes<TypeParam> * codes<TypeParam>);
}

TYPED_TEST(Minifloat, SqrtOfEveryCodeRoundsOnce) {
  const Count count = compare_sqrt<TypeParam>([](TypeParam x) { return sqrt(x); });
  print<TypeParam>("sqrt", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, 1 << TypeParam::format::bits);
}

TYPED_TEST(Minifloat, FmaOfEveryTripleRoundsOnce) {
  const auto fused = [](TypeParam x, TypeParam y, TypeParam z) { return fma(x, y, z); };
  const Count count = compare_fma<TypeParam>(fused, codes<TypeParam>);
  print<TypeParam>("fma", count);
  EXPECT_EQ(count.mismatches, 0);
  EXPECT_EQ(count.inputs, std::int64_t{1} << (3 * TypeParam::format::bits));
}

TYPED_TEST(Minifloat, AnOperationThatIsWrongOnceIsCaught) {
  const auto flip = [](TypeParam x) { return code<TypeParam>(x.bits() ^ 1U); };
  const TypeParam one{1}, two{2};
  const auto wrong = [&](char op, TypeParam x, TypeParam y) {
    const TypeParam z = arithmetic(op, x, y);
    return op == '*' && x == two && y == one ? flip(z) : z;
  };
  EXPECT_EQ(compare_arithmetic<TypeParam>(wrong).mismatches, 1);
  const auto wrong_sqrt = [&](TypeParam x) { return x == one ? flip(sqrt(x)) : sqrt(x); };
  EXPECT_EQ(compare_sqrt<TypeParam>(wrong_sqrt).mismatches, 1);
  const auto wrong_fma = [&](TypeParam x, TypeParam y, TypeParam z) {
    const bool here = x.bits() == 1 && y == two && z == one;
    return here ? flip(fma(x, y, z)) : fma(x, y, z);
  };
  EXPECT_EQ(compare_fma<TypeParam>(wrong_fma, 2).mismatches, 1);
}

TYPED_TEST(Minifloat, ComparesAsTheValuesDo) {
  const auto value = values<TypeParam>();
  for (std::uint32_t a = 0; a < codes<TypeParam>; ++a) {
    for (std::uint32_t b = 0; b < codes<TypeParam>; ++b) {
      const auto x = code<TypeParam>(a), y = code<TypeParam>(b);
      ASSERT_EQ(x == y, value[a] == value[b]);
      ASSERT_EQ(x <=> y, value[a] <=> value[b]);
      ASSERT_EQ(x < y, value[a] < value[b]);
      ASSERT_EQ(x >= y, value[a] >= value[b]);
    }
  }
}

TYPED_TEST(Minifloat, NextafterWalksThroughAllValuesAndSignsKeepTheirMeaning) {
  using L = std::numeric_limits<TypeParam>;
  const TypeParam end = L::has_infinity ? L::infinity() : L::max();
  TypeParam x = L::lowest();
  if constexpr (L::has_infinity) x = -L::infinity();
  int steps = 0;
  for (; x != end; ++steps) {
    const TypeParam next = nextafter(x, end);
    ASSERT_TRUE(x < next && !isnan(next)) << steps;
    // Back again; from above zero to -0 where there is one, which equals +0.
    ASSERT_EQ(nextafter(next, x), x) << steps;
    ASSERT_TRUE(totally_before(x, next));
    x = next;
  }
  // All codes but NaNs, and one zero.
  int values = 0;
  for (std::uint32_t bits = 0; bits < codes<TypeParam>; ++bits)
    values += isnan(code<TypeParam>(bits)) ? 0 : 1;
  EXPECT_EQ(steps, values - 1 - (TypeParam::format::has_negative_zero ? 1 : 0));
  for (std::uint32_t bits = 0; bits < codes<TypeParam>; ++bits) {
    const auto y = code<TypeParam>(bits);
    if (isnan(y)) {
      ASSERT_TRUE(isnan(abs(y)) && isnan(copysign(y, TypeParam{1})) && isnan(nextafter(y, end)) &&
                  isnan(nextafter(end, y)));
      continue;
    }
    ASSERT_EQ(static_cast<double>(abs(y)), std::fabs(static_cast<double>(y)));
    if constexpr (TypeParam::format::is_signed) {
      ASSERT_EQ(static_cast<double>(-y), -static_cast<double>(y));
      ASSERT_EQ(static_cast<double>(copysign(y, TypeParam{-1})),
                -std::fabs(static_cast<double>(y)));
      ASSERT_FALSE(isnan(-y) || isnan(copysign(y, TypeParam{-1})));
    }
    ASSERT_EQ(isnormal(y), isfinite(y) && abs(y) >= L::min());
  }
}

template <class T, int digits10, int max_digits10, int min_exponent, int max_exponent,
          int min_exponent10, int max_exponent10>
constexpr bool exponents_are = [] {
  using L = std::numeric_limits<T>;
  return L::digits == T::format::mantissa_bits + 1 && L::digits10 == digits10 &&
         L::max_digits10 == max_digits10 && L::min_exponent == min_exponent &&
         L::max_exponent == max_exponent && L::min_exponent10 == min_exponent10 &&
         L::max_exponent10 == max_exponent10;
}();
template <class T>
constexpr bool codes_are(unsigned min, unsigned lowest, unsigned max, unsigned denorm_min,
                         unsigned epsilon, unsigned half, unsigned infinity, unsigned nan,
                         unsigned signaling) {
  using L = std::numeric_limits<T>;
  return L::min().bits() == min && L::lowest().bits() == lowest && L::max().bits() == max &&
         L::denorm_min().bits() == denorm_min && L::epsilon().bits() == epsilon &&
         L::round_error().bits() == half && L::infinity().bits() == infinity &&
         L::quiet_NaN().bits() == nan && L::signaling_NaN().bits() == signaling;
}
using namespace halfstep;
static_assert(exponents_are<fp8_e4m3, 0, 3, -5, 9, -1, 2>);
static_assert(exponents_are<fp8_e5m2, 0, 2, -13, 16, -4, 4>);
static_assert(exponents_are<fp8_e4m3fnuz, 0, 3, -6, 8, -2, 2>);
static_assert(exponents_are<fp8_e5m2fnuz, 0, 2, -14, 16, -4, 4>);
static_assert(exponents_are<fp8_e4m3b11fnuz, 0, 3, -9, 5, -3, 1>);
static_assert(exponents_are<fp8_e4m3_ieee, 0, 3, -5, 8, -1, 2>);
static_assert(exponents_are<fp8_e3m4, 1, 3, -1, 4, 0, 1>);
static_assert(exponents_are<fp8_e8m0, 0, 2, -126, 128, -38, 38>);
static_assert(exponents_are<fp6_e2m3, 0, 3, 1, 3, 0, 0>);
static_assert(exponents_are<fp6_e3m2, 0, 2, -1, 5, 0, 1>);
static_assert(exponents_are<fp4_e2m1, 0, 2, 1, 3, 0, 0>);
static_assert(codes_are<fp8_e4m3>(0x08, 0xFE, 0x7E, 0x01, 0x20, 0x30, 0x7F, 0x7F, 0x7F));
static_assert(codes_are<fp8_e5m2>(0x04, 0xFB, 0x7B, 0x01, 0x34, 0x38, 0x7C, 0x7E, 0x7D));
static_assert(codes_are<fp8_e4m3fnuz>(0x08, 0xFF, 0x7F, 0x01, 0x28, 0x38, 0x80, 0x80, 0x80));
static_assert(codes_are<fp8_e5m2fnuz>(0x04, 0xFF, 0x7F, 0x01, 0x38, 0x3C, 0x80, 0x80, 0x80));
static_assert(codes_are<fp8_e4m3b11fnuz>(0x08, 0xFF, 0x7F, 0x01, 0x40, 0x50, 0x80, 0x80, 0x80));
static_assert(codes_are<fp8_e4m3_ieee>(0x08, 0xF7, 0x77, 0x01, 0x20, 0x30, 0x78, 0x7C, 0x7A));
static_assert(codes_are<fp8_e3m4>(0x10, 0xEF, 0x6F, 0x01, 0x04, 0x20, 0x70, 0x78, 0x74));
static_assert(codes_are<fp8_e8m0>(0x00, 0x00, 0xFE, 0x00, 0x7F, 0x7E, 0xFF, 0xFF, 0xFF));
static_assert(codes_are<fp6_e2m3>(0x08, 0x3F, 0x1F, 0x01, 0x01, 0x04, 0x1F, 0x20, 0x20));
static_assert(codes_are<fp6_e3m2>(0x04, 0x3F, 0x1F, 0x01, 0x04, 0x08, 0x1F, 0x20, 0x20));
static_assert(codes_are<fp4_e2m1>(0x2, 0xF, 0x7, 0x1, 0x1, 0x1, 0x7, 0x8, 0x8));

TEST(MinifloatCases, InfinityInTheFnuzFormatsIsTheirNaNAndMinusZeroDoesNotExist) {
  EXPECT_EQ(fp8_e4m3fnuz{HUGE_VALF}.bits(), 0x80);
  EXPECT_EQ(fp8_e5m2fnuz{-HUGE_VALF}.bits(), 0x80);
  EXPECT_EQ((round_to<fp8_e4m3fnuz, Rounding::nearest_even, Overflow::saturate>(-HUGE_VAL)).bits(),
            0xFF);
  EXPECT_EQ(fp8_e4m3fnuz{-0.0F}.bits(), 0x00);
  EXPECT_EQ((-fp8_e4m3fnuz{0.0F}).bits(), 0x00);
  EXPECT_EQ(fp8_e5m2fnuz{-0x1p-40F}.bits(), 0x00);
  EXPECT_EQ(fp8_e4m3fnuz{248.0F}.bits(), 0x80);
  EXPECT_EQ(fp8_e4m3fnuz{247.9F}.bits(), 0x7F);
  EXPECT_EQ(fp8_e4m3b11fnuz{31.0F}.bits(), 0x80);
  EXPECT_EQ(fp8_e4m3b11fnuz{30.9F}.bits(), 0x7F);
}

TEST(MinifloatCases, TheReferenceValuesAndTies) {
  EXPECT_EQ(fp8_e4m3_ieee{248.0F}.bits(), 0x78);
  EXPECT_EQ(fp8_e4m3_ieee{247.9F}.bits(), 0x77);
  EXPECT_EQ(fp8_e3m4{15.75F}.bits(), 0x70);
  EXPECT_EQ(fp8_e3m4{15.7F}.bits(), 0x6F);
  EXPECT_EQ(fp6_e2m3{7.75F}, fp6_e2m3{7.5F});
  EXPECT_EQ(fp6_e3m2{30.0F}, fp6_e3m2{28.0F});
  EXPECT_EQ(fp4_e2m1{7.0F}, fp4_e2m1{6.0F});
  EXPECT_EQ(fp4_e2m1{-1e30F}.bits(), 0xF);
  EXPECT_EQ(static_cast<float>(code<fp8_e8m0>(0x00)), 0x1p-127F);
  EXPECT_TRUE(std::isnan(static_cast<float>(code<fp8_e8m0>(0xFF))));
  EXPECT_EQ(fp8_e8m0{std::bit_cast<float>(0x00400000)}.bits(), 0);
  EXPECT_EQ((round_to<fp8_e8m0, Rounding::up>(std::bit_cast<float>(0x00400000))).bits(), 0);
  EXPECT_EQ((round_to<fp8_e8m0, Rounding::up>(std::bit_cast<float>(0x00400001))).bits(), 1);
  EXPECT_EQ(fp8_e8m0{3.0F}, fp8_e8m0{4.0F});  // a tie goes up
  EXPECT_TRUE(isnan(fp8_e8m0{0.0F}) && isnan(fp8_e8m0{-1.0F}));
}

TEST(MinifloatCases, HalfsBecomeTheReferenceCodes) {
  const auto half = [](std::uint32_t bits) { return code<fp16>(bits); };
  EXPECT_EQ(fp8_e5m2{half(0x7C01)}.bits(), 0x7E);
  EXPECT_EQ(fp8_e5m2{half(0xFC01)}.bits(), 0xFE);
  EXPECT_EQ(fp8_e5m2{half(0x7C00)}.bits(), 0x7C);
  EXPECT_EQ(fp8_e4m3_ieee{half(0x7C00)}.bits(), 0x78);
  EXPECT_EQ(fp8_e3m4{half(0x7C00)}.bits(), 0x70);
  EXPECT_EQ((round_to<fp8_e4m3, Rounding::nearest_even, Overflow::saturate>(fp16{0x1.dfcp+8})),
            fp8_e4m3{448});
  EXPECT_EQ(fp8_e4m3{code<fp8_e5m2>(0x1F)}.bits(), 0x04);
  EXPECT_EQ((round_to<fp8_e4m3, Rounding::toward_zero>(code<fp8_e5m2>(0x1F))).bits(), 0x03);
  EXPECT_EQ(fp8_e5m2{0x0.A8p-14F}, fp8_e5m2{0x0.Cp-14F});
}

}  // namespace
