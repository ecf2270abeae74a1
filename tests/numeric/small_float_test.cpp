// SPDX-License-Identifier: MIT
// What holds for the scalar of every format alike; each format's own numbers are in its own test.
#include <halfstep/numeric/small_float.hpp>

#include <bit>
#include <cfenv>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include <halfstep/core/float_environment.hpp>
#include <numeric/integer_coded.hpp>

namespace {

__extension__ using Wide = __int128;
template <class T, class Integer>
concept encodes = requires(Integer x) {
  halfstep::numeric::detail::encode_integer<typename T::format>(x);
};

using namespace halfstep_tests;

std::map<std::string, std::uint64_t> hashes() {
  std::map<std::string, std::uint64_t> all;
  hash_formats(
      20000, [&](const char* name, std::uint64_t hash) { all[name] = hash; }, AllFormats{});
  return all;
}

/// A product that rounds and one that is subnormal: what an environment does to arithmetic.
float arithmetic() {
  volatile float third = 1.0F / 3.0F, tenth = 0.1F, small = 0x1p-130F;
  volatile float product = third * tenth;
  volatile float quarter = small * 0.25F;
  return product + 0x1p120F * quarter;
}

// Conversions, comparison, classification, fma, printing and parsing are the same in every
// environment; that arithmetic is not shows that the environment was set.
TEST(SmallFloatEnvironment, NeitherRoundingModeNorFlushingChangesWhatIsIntegerCode) {
  const auto expected = hashes();
  EXPECT_EQ(expected.size(), 13U);
  const unsigned saved = halfstep::core::read_mxcsr();
  const float usual = arithmetic();
  int changed = 0;
  for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const auto found = hashes();
    const float other = arithmetic();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(found, expected) << mode;
    changed += other != usual ? 1 : 0;
  }
  for (const unsigned mxcsr : {0x1F80U | 0x8000U, 0x1F80U | 0x0040U, 0x9FC0U, 0xFFC0U}) {
    halfstep::core::write_mxcsr(mxcsr);
    const auto found = hashes();
    const float other = arithmetic();
    halfstep::core::write_mxcsr(saved);
    EXPECT_EQ(found, expected) << std::hex << mxcsr;
    changed += other != usual ? 1 : 0;
  }
  EXPECT_GE(changed, 5);  // up rounds this product as nearest does
}

template <class T>
class SmallFloat : public testing::Test {};
TYPED_TEST_SUITE(SmallFloat, Types<AllFormats>, NameOfFormat);

TYPED_TEST(SmallFloat, IsItsBitsAndNothingElse) {
  using T = TypeParam;
  static_assert(sizeof(T) == (T::format::bits > 8 ? 2 : 1) && std::is_trivial_v<T> &&
                std::is_standard_layout_v<T>);
  static_assert(!std::is_convertible_v<float, T> && !std::is_convertible_v<T, float> &&
                !std::is_convertible_v<int, T> && !std::is_convertible_v<T, bool>);
  static_assert(std::is_same_v<decltype(T{} <=> T{}), std::partial_ordering>);
  // An integer beyond 64 bits would be cut: it does not compile, whatever a mode takes it for.
  static_assert(encodes<T, std::uint64_t> && !encodes<T, Wide> &&
                !std::is_constructible_v<T, Wide>);
  static_assert(T{1} + T{1} == T{2} && T{4} / T{2} == T{2} && fma(T{1}, T{1}, T{1}) == T{2});
  static_assert(nextafter(T{1}, T{2}) > T{1} && abs(T{2}) == T{2} && isnormal(T{2}));
  EXPECT_EQ(code<T>(0xFFFFFFFF).bits(), codes<T> - 1);
}

/// 2^exponent
constexpr double power(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}
/// 10^exponent, to less than the distance of any power of two that it is compared with.
constexpr double ten(int exponent) {
  double x = 1;
  for (int i = 0; i < exponent; ++i)
    x *= 10;
  for (int i = 0; i > exponent; --i)
    x /= 10;
  return x;
}
/// Each field of numeric_limits by what it means for the bits, without literals; those are in the
/// formats' own tests.
template <class T>
constexpr bool limits_follow_the_layout() {
  using L = std::numeric_limits<T>;
  using F = typename T::format;
  const auto value = [](T x) { return static_cast<double>(x); };
  const T max = L::max(), min = L::min(), tiny = L::denorm_min();
  bool ok = L::is_specialized && L::radix == 2 && L::digits == F::mantissa_bits + 1;
  // Nothing finite is larger than max; -max is the lowest, where there are signs.
  ok = ok && isfinite(max) && value(max) < power(L::max_exponent) &&
       value(max) >= power(L::max_exponent - 1);
  const T beyond = code<T>(max.bits() + 1U);
  ok = ok && (!isfinite(beyond) || signbit(beyond) || F::is_nan(beyond.bits()));
  ok = ok && value(L::lowest()) == (L::is_signed ? -value(max) : value(min));
  ok = ok && value(min) == power(L::min_exponent - 1) && isnormal(min);
  if constexpr (F::has_zero) {
    ok = ok && !isnormal(code<T>(min.bits() - 1U)) && tiny.bits() == 1 && !isnormal(tiny);
    ok = ok && nextafter(T{0}, T{1}).bits() == tiny.bits() && L::has_denorm == std::denorm_present;
  } else {
    ok = ok && min.bits() == 0 && tiny == min && L::has_denorm == std::denorm_absent;
  }
  ok = ok && value(nextafter(T{1}, max)) - 1 == value(L::epsilon());
  ok = ok && value(L::round_error()) == 0.5 && L::round_style == std::round_to_nearest;
  ok = ok && L::has_infinity == isinf(L::infinity()) && L::has_quiet_NaN == isnan(L::quiet_NaN());
  ok = ok && (!L::has_infinity || value(L::infinity()) == std::numeric_limits<double>::infinity());
  if constexpr (L::has_signaling_NaN) {
    ok = ok && isnan(L::signaling_NaN()) && (L::signaling_NaN().bits() & F::quiet_bit) == 0 &&
         (L::quiet_NaN().bits() & F::quiet_bit) != 0;
  }
  ok = ok && L::is_iec559 == L::has_infinity && L::is_bounded && !L::is_modulo && !L::traps;
  // Decimal digits that survive the format, and that survive through it; and the powers of ten
  // that are normal numbers.
  ok =
      ok && ten(L::digits10) <= power(L::digits - 1) && ten(L::digits10 + 1) > power(L::digits - 1);
  ok = ok && ten(L::max_digits10 - 1) > power(L::digits) &&
       ten(L::max_digits10 - 2) <= power(L::digits);
  ok = ok && ten(L::max_exponent10) <= value(max) && ten(L::max_exponent10 + 1) > value(max);
  return ok && ten(L::min_exponent10) >= value(min) && ten(L::min_exponent10 - 1) < value(min);
}
TYPED_TEST(SmallFloat, LimitsFollowTheLayout) {
  static_assert(limits_follow_the_layout<TypeParam>());
}

TYPED_TEST(SmallFloat, EqualValuesHaveEqualHashesAndOthersDiffer) {
  using T = TypeParam;
  const std::hash<T> hash;
  EXPECT_NE(hash(T{1}), hash(T{2}));
  if constexpr (T::format::has_negative_zero) {
    EXPECT_EQ(hash(T{0.0F}), hash(T{-0.0F}));
    EXPECT_NE(T{0.0F}.bits(), T{-0.0F}.bits());
  }
}

// A NaN equals nothing and is ordered with nothing, but has its place in the total order.
TYPED_TEST(SmallFloat, NaNIsUnorderedAndTheTotalOrderHasAPlaceForEveryCode) {
  using T = TypeParam;
  if constexpr (T::format::has_nan) {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    EXPECT_FALSE(nan == nan || nan < T{1} || nan >= T{1});
    EXPECT_TRUE((nan <=> T{1}) == std::partial_ordering::unordered);
  }
  // Codes in the order of their signed magnitudes: each stands before the next.
  T last{};
  bool first = true;
  const auto visit = [&](std::uint32_t bits) {
    const T x = code<T>(bits);
    if (!first) {
      ASSERT_TRUE(totally_before(last, x)) << bits;
      ASSERT_FALSE(totally_before(x, last)) << bits;
    }
    last = x;
    first = false;
  };
  const std::uint32_t sign = T::format::sign_code, mask = T::format::magnitude_mask;
  const bool one_nan = T::format::specials == halfstep::numeric::Specials::fnuz;
  if (one_nan) visit(sign);
  if (sign != 0) {
    for (std::uint32_t size = mask + 1; size-- > (one_nan ? 1U : 0U);)
      visit(sign | size);
  }
  for (std::uint32_t size = 0; size <= mask; ++size)
    visit(size);
}

}  // namespace
