// SPDX-License-Identifier: MIT
#include <halfstep/kernels/elementwise.hpp>

#include <cmath>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
using halfstep::kernels::Write;

// Every length to 70, and some that are cut between threads.
std::vector<std::int64_t> lengths() {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 0; n <= 70; ++n)
    all.push_back(n);
  for (const std::int64_t n : {1023, 1025, 33000, 50001})
    all.push_back(n);
  return all;
}

template <class E>
class Elementwise : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Elementwise, Elements);

TYPED_TEST(Elementwise, EachElementIsComputedInTheAccumulatorAndRoundedOnce) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const std::int64_t n : lengths()) {
    Guarded<E> x(values<E>(n, 1)), y(values<E>(n, 2)), d(values<E>(n, 3));
    const A factor = static_cast<A>(0.7);
    std::vector<E> sum, product, scaled;
    for (std::int64_t i = 0; i < n; ++i) {
      const A a = static_cast<A>(x[i]), b = static_cast<A>(y[i]);
      sum.push_back(static_cast<E>(a + b));
      product.push_back(static_cast<E>(a * b));
      scaled.push_back(static_cast<E>(a * factor));
    }
    every_compute([&](const Compute& compute, const std::string& name) {
      Guarded<E> out(n);
      halfstep::kernels::add<E>(compute, x, y, out);
      ASSERT_SAME_BITS(out.copy(), sum) << name;
      halfstep::kernels::multiply<E>(compute, x, y, out);
      ASSERT_SAME_BITS(out.copy(), product) << name;
      halfstep::kernels::scale<E>(compute, x, factor, out);
      ASSERT_SAME_BITS(out.copy(), scaled) << name;
      halfstep::kernels::fill<E>(compute, static_cast<E>(3), out);
      ASSERT_SAME_BITS(out.copy(), std::vector<E>(static_cast<std::size_t>(n), static_cast<E>(3)))
          << name;
    });
  }
}

TYPED_TEST(Elementwise, AnOutputMayBeAnInputAndStartAnywhere) {
  using E = TypeParam;
  const std::int64_t n = 2000;
  const auto x = values<E>(n + 1, 1), y = values<E>(n + 1, 2);
  std::vector<E> expected(x);
  for (std::size_t i = 1; i < x.size(); ++i) {
    using A = accumulator_t<E>;
    expected[i] = static_cast<E>(static_cast<A>(x[i]) + static_cast<A>(y[i]));
  }
  every_compute([&](const Compute& compute, const std::string& name) {
    std::vector<E> out(x);
    const std::span<E> behind = std::span(out).subspan(1);
    halfstep::kernels::add<E>(compute, behind, std::span(y).subspan(1), behind);
    EXPECT_SAME_BITS(out, expected) << name;
  });
}

template <class From, class To>
void check_cast() {
  for (const std::int64_t n : lengths()) {
    Guarded<From> x(values<From>(n, 1, 3.0));
    const auto before = values<To>(n, 2);
    std::vector<To> cast, added;
    for (std::int64_t i = 0; i < n; ++i) {
      using A = accumulator_t<To>;
      const A value = static_cast<A>(static_cast<accumulator_t<From>>(x[i]));
      cast.push_back(static_cast<To>(value));
      added.push_back(static_cast<To>(static_cast<A>(before[static_cast<std::size_t>(i)]) + value));
    }
    every_compute([&](const Compute& compute, const std::string& name) {
      Guarded<To> out(before);
      halfstep::kernels::cast<From, To>(compute, x, out, Write::accumulate);
      ASSERT_SAME_BITS(out.copy(), added) << name;
      halfstep::kernels::cast<From, To>(compute, x, out);
      ASSERT_SAME_BITS(out.copy(), cast) << name;
    });
  }
}
TYPED_TEST(Elementwise, CastsToEachFormatAndAddsInItsAccumulator) {
  check_cast<TypeParam, float>();
  check_cast<TypeParam, bf16>();
  check_cast<TypeParam, fp16>();
  check_cast<TypeParam, double>();
}

// Loads and stores of the 16-bit formats on every path, over every code and float that they can
// see.
template <class Half>
void check_codes() {
  std::vector<Half> codes;
  for (std::uint32_t c = 0; c <= 0xFFFF; ++c)
    codes.push_back(Half::from_bits(static_cast<std::uint16_t>(c)));
  for (const Isa isa : halfstep::core::available_isas()) {
    const Compute compute{.isa = isa};
    std::vector<float> wide(codes.size());
    std::vector<Half> back(codes.size());
    halfstep::kernels::cast<Half, float>(compute, codes, wide);
    halfstep::kernels::cast<float, Half>(compute, wide, back);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float expected = static_cast<float>(codes[i]);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      ASSERT_EQ(back[i].bits(), Half(expected).bits()) << i;
    }
  }
}
TEST(ElementwiseCast, EveryCodeBecomesItsFloatAndComesBack) {
  check_codes<bf16>();
  check_codes<fp16>();
}

template <class Half>
std::int64_t round_all(std::uint64_t step) {
  std::int64_t inputs = 0, mismatches = 0;
  const std::uint64_t chunk = 1 << 16;
  std::vector<float> wide(chunk);
  std::vector<Half> got(chunk);
  for (std::uint64_t first = 0; first < (std::uint64_t{1} << 32); first += chunk * step) {
    for (std::uint64_t i = 0; i < chunk; ++i) {
      wide[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i * step));
    }
    for (const Isa isa : halfstep::core::available_isas()) {
      const Compute compute{.isa = isa};
      halfstep::kernels::cast<float, Half>(compute, wide, got);
      for (std::uint64_t i = 0; i < chunk; ++i)
        mismatches += got[i].bits() != Half(wide[i]).bits();
    }
    inputs += chunk;
  }
  EXPECT_EQ(mismatches, 0);
  return inputs;
}
TEST(ElementwiseCast, FloatsRoundAsTheScalarConversionDoes) {
  EXPECT_GT(round_all<bf16>(601), 7'000'000);
  EXPECT_GT(round_all<fp16>(601), 7'000'000);
}
TEST(NightlyElementwiseCast, AllFloatsRoundAsTheScalarConversionDoes) {
  EXPECT_EQ(round_all<bf16>(1), std::int64_t{1} << 32);
  EXPECT_EQ(round_all<fp16>(1), std::int64_t{1} << 32);
}

TEST(ElementwiseErrors, NameTheSpansThatDiffer) {
  std::vector<float> three(3), four(4);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { halfstep::kernels::add<float>(portable(), three, four, three); }),
            "add: x has 3 elements but y has 4. Were they made for different batches or layers?");
  for (const auto& call : {+[](std::span<float> a, std::span<float> b) {
                             halfstep::kernels::multiply<float>(portable(), a, a, b);
                           },
                           +[](std::span<float> a, std::span<float> b) {
                             halfstep::kernels::scale<float>(portable(), a, 2.0F, b);
                           },
                           +[](std::span<float> a, std::span<float> b) {
                             halfstep::kernels::cast<float, float>(portable(), a, b);
                           }}) {
    const auto text = message_of<ShapeError>([&] { call(three, four); });
    EXPECT_NE(text.find("x has 3 elements but out has 4."), std::string::npos) << text;
  }
}

}  // namespace
