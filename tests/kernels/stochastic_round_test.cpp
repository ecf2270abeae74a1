// SPDX-License-Identifier: MIT
#include <halfstep/kernels/stochastic_round.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>

#include <halfstep/core/random.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::fp8_e4m3;
using halfstep::fp8_e5m2;
using halfstep::ShapeError;
using halfstep::kernels::stochastic_round;
using halfstep::kernels::StochasticDraw;
using halfstep::numeric::Overflow;
using halfstep::numeric::round_to;
using halfstep::numeric::Rounding;
namespace core = halfstep::core;

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

template <class T>
class StochasticRound : public testing::Test {};
using Formats = testing::Types<bf16, fp16, fp8_e4m3, fp8_e5m2>;
TYPED_TEST_SUITE(StochasticRound, Formats);

template <class T>
std::vector<T> rounded(const Compute& compute, const std::vector<float>& in,
                       const StochasticDraw& draw) {
  std::vector<T> out(in.size());
  stochastic_round<T>(compute, in, out, draw);
  return out;
}

/// Every binade of float with both signs, zeros, infinities, NaNs, and what lies at the formats'
/// ends.
std::vector<float> floats(std::size_t n) {
  std::vector<float> out;
  for (std::uint32_t i = 0; i < n; ++i) {
    out.push_back(i % 31 == 7   ? float_of(0x7F80'0000U + i % 3)
                  : i % 31 == 9 ? float_of(0x477F'E000U + i * 5)  // about 65504
                                : float_of(i * 2654435769U));
  }
  return out;
}

// The definition: each element by itself, in the scalar's integers.
template <class T, Overflow O>
std::vector<T> one_by_one(const std::vector<float>& in, const StochasticDraw& draw) {
  std::vector<T> out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint64_t word = core::random_bits(draw.seed, draw.stream, draw.first() + i);
    out.push_back(round_to<T, Rounding::stochastic, O>(in[i], word << 32));
  }
  return out;
}
TYPED_TEST(StochasticRound, IsTheScalarsWithEachElementsWordOnEveryPathAndThreadCount) {
  using T = TypeParam;
  for (const std::int64_t n : {0, 1, 5, 63, 64, 65, 200, 70'001}) {
    const auto in = floats(static_cast<std::size_t>(n));
    Guarded<float> guarded(in);
    for (const std::uint64_t index : {0U, 1U, 6U, 37U}) {
      StochasticDraw draw{.seed = 5, .stream = 77, .step = 3, .elements = 100'000, .index = index};
      const auto to_infinity = one_by_one<T, Overflow::infinity>(in, draw);
      const auto saturated = one_by_one<T, Overflow::saturate>(in, draw);
      const auto to_nan = one_by_one<T, Overflow::nan>(in, draw);
      every_compute([&](const Compute& compute, const std::string& name) {
        Guarded<T> out(n);
        draw.overflow = Overflow::infinity;
        stochastic_round<T>(compute, guarded, out, draw);
        EXPECT_SAME_BITS(out.copy(), to_infinity) << name;
        draw.overflow = Overflow::saturate;
        stochastic_round<T>(compute, guarded, out, draw);
        EXPECT_SAME_BITS(out.copy(), saturated) << name;
        draw.overflow = Overflow::nan;
        stochastic_round<T>(compute, guarded, out, draw);
        EXPECT_SAME_BITS(out.copy(), to_nan) << name;
      });
    }
  }
}

// What one process rounds in one call, others round in pieces that start and end anywhere; a run
// that resumes at a step draws that step's numbers and no others.
TYPED_TEST(StochasticRound, DoesNotDependOnHowTheTensorIsCutAndDependsOnAllElse) {
  using T = TypeParam;
  const std::size_t n = 5000;
  const auto in = values<float>(n, 1);
  const StochasticDraw draw{
      .seed = 1, .stream = core::stream("blocks.3.up.weight", "round"), .step = 9, .elements = n};
  const auto whole = rounded<T>(widest(), in, draw);
  std::vector<T> pieces(n);
  for (std::size_t begin = 0, length = 1; begin < n; begin += length, length = length * 2 + 1) {
    length = std::min(length, n - begin);
    StochasticDraw shard = draw;
    shard.index = begin;
    stochastic_round<T>(widest(), std::span(in).subspan(begin, length),
                        std::span(pieces).subspan(begin, length), shard);
  }
  EXPECT_SAME_BITS(pieces, whole);

  for (int which = 0; which < 4; ++which) {
    StochasticDraw other = draw;
    if (which == 0) other.seed = 2;
    if (which == 1) other.stream = core::stream("blocks.3.down.weight", "round");
    if (which == 2) other.step = 10;
    if (which == 3) other.stream = core::stream("blocks.3.up.weight", "decay");
    const auto changed = rounded<T>(widest(), in, other);
    int differ = 0;
    for (std::size_t i = 0; i < n; ++i)
      differ += changed[i].bits() == whole[i].bits() ? 0 : 1;
    EXPECT_GT(differ, 1000) << which;
  }
}
// Element numbers are 64 bits wide: a double would take 2^53 + 1 for 2^53, and some beyond 2^32
// steps of a large tensor are there.
TYPED_TEST(StochasticRound, ElementsBeyondWhatADoubleCountsHaveNumbersOfTheirOwn) {
  using T = TypeParam;
  constexpr std::uint64_t far = std::uint64_t{1} << 53;
  const auto in = std::vector<float>(1001, 1.2345678F);
  StochasticDraw draw{.seed = 4, .stream = 5, .elements = 2 * far, .index = far};
  const auto at = rounded<T>(widest(), in, draw);
  EXPECT_SAME_BITS(at, (one_by_one<T, Overflow::infinity>(in, draw)));
  draw.index = far + 1;
  const auto next = rounded<T>(widest(), in, draw);
  EXPECT_NE(difference(next, at), "");
  EXPECT_SAME_BITS(std::vector<T>(next.begin(), next.end() - 1),
                   std::vector<T>(at.begin() + 1, at.end()));
  // By way of the step too.
  const StochasticDraw later{.seed = 4, .stream = 5, .step = far / 1024, .elements = 1024};
  EXPECT_SAME_BITS(rounded<T>(widest(), in, later), at);
}
// Two shards that drew by their own offsets would repeat numbers.
TYPED_TEST(StochasticRound, AShardThatForgotItsPlaceRoundsOtherwise) {
  using T = TypeParam;
  const auto in = values<float>(1000, 1);
  StochasticDraw draw{.elements = 2000, .index = 1000};
  const auto right = rounded<T>(widest(), in, draw);
  draw.index = 0;
  EXPECT_NE(difference(rounded<T>(widest(), in, draw), right), "");
}

TYPED_TEST(StochasticRound, KeepsWhatTheFormatHoldsAndWhatIsNotFinite) {
  using T = TypeParam;
  std::vector<float> in;
  for (std::uint32_t code = 0; code < 1U << T::format::bits; ++code)
    in.push_back(static_cast<float>(T::from_bits(static_cast<typename T::storage>(code))));
  every_compute([&](const Compute& compute, const std::string& name) {
    const auto out = rounded<T>(compute, in, {.elements = in.size()});
    for (std::size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i].bits(), T{in[i]}.bits()) << name << ' ' << i;
  });
}

/// The sum of `count` roundings as integers: every result is a multiple of 2^unit.
struct Sum {
  std::int64_t units = 0;
  std::int64_t away = 0;
};
template <class T>
Sum sum_over(float x, std::uint64_t count, int unit, int top, std::uint64_t stuck = 0) {
  Sum sum;
  const auto nearer = round_to<T, Rounding::toward_zero>(x);
  for (std::uint64_t number = 0; number < count; ++number) {
    const auto y = round_to<T, Rounding::stochastic>(x, (number | stuck) << top);
    sum.units += static_cast<std::int64_t>(std::ldexp(static_cast<double>(y), -unit));
    sum.away += y.bits() != nearer.bits() ? 1 : 0;
  }
  return sum;
}
/// Over all 65536 random words: is the mean the number itself, and does each word round away from
/// zero that the bits cut off say? `stuck` bits are set in every word.
struct Enumerated {
  std::int64_t words = 0, numbers = 0, mismatches = 0;
};
Enumerated enumerate_bf16(std::uint64_t stuck) {
  Enumerated all;
  // Sixteen patterns of the bits that are cut off, none and all among them, in normal, subnormal
  // and negative numbers, beside a power of two and at the end of the range.
  for (const std::uint32_t upper : {0x0000U, 0x0001U, 0x007FU, 0x0080U, 0x3F7FU, 0x3F80U, 0x3F9DU,
                                    0x4049U, 0x7F7EU, 0x8001U, 0xC049U}) {
    for (std::uint32_t lower = 0; lower < 65536; lower += 0x1111) {
      const float x = float_of(upper << 16 | lower);
      const int unit = x == 0.0F ? -149 : std::max(std::ilogb(x), -126) - 23;  // x's last place
      const Sum sum = sum_over<bf16>(x, 65536, unit, 48, stuck);
      const auto exact =
          65536 * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x), -unit));
      all.mismatches += sum.units == exact && sum.away == lower ? 0 : 1;
      all.words += 65536;
      ++all.numbers;
    }
  }
  return all;
}
TEST(StochasticRoundOf, EveryNumberOfBf16AveragesExactly) {
  const Enumerated all = enumerate_bf16(0);
  std::printf("%lld inputs, %lld mismatches, path scalar\n", static_cast<long long>(all.words),
              static_cast<long long>(all.mismatches));
  EXPECT_EQ(all.numbers, 11 * 16);
  EXPECT_EQ(all.words, all.numbers * 65536);
  EXPECT_EQ(all.mismatches, 0);
  EXPECT_GT(enumerate_bf16(1).mismatches, 0);  // random numbers all odd
}
// As wide as 16 bits can be for formats that cut off no more of their normal numbers; and they do
// not suffice for subnormals, which is why 32 are drawn.
TEST(StochasticRoundOf, NormalNumbersOfNarrowFormatsAverageExactlyOver16BitsOr20) {
  const float x = 1.2345678F;
  EXPECT_EQ(sum_over<fp16>(x, 65536, -23, 48).units,
            65536 * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x), 23)));
  EXPECT_EQ(sum_over<fp8_e4m3>(x, 1 << 20, -23, 44).units,
            (1 << 20) * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x), 23)));
  EXPECT_EQ(sum_over<fp8_e5m2>(x, 1 << 21, -23, 43).units,
            (1 << 21) * static_cast<std::int64_t>(std::ldexp(static_cast<double>(x), 23)));
  // fp16, 2^-26: a quarter of the smallest number. A float beside it needs all 32 bits.
  EXPECT_EQ(sum_over<fp16>(0x1p-26F, 65536, -24, 48).away, 16384);
  EXPECT_EQ(sum_over<fp16>(0x1.00001p-26F, 65536, -24, 48).away, 16384);  // by 16 bits: too few
}
/// Of the 2^32 numbers that are drawn, those that round x away from zero: more of them do the
/// larger they are, so the first is found by halving.
template <class T>
std::uint64_t away_of_32_bits(float x) {
  const auto nearer = round_to<T, Rounding::toward_zero>(x);
  std::uint64_t low = 0, high = std::uint64_t{1} << 32;  // first that rounds away
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    const bool away = round_to<T, Rounding::stochastic>(x, middle << 32).bits() != nearer.bits();
    (away ? high : low) = away ? middle : middle + 1;
  }
  return (std::uint64_t{1} << 32) - low;
}
template <class T>
void expect_exact_chances(int smallest) {
  int checked = 0, biased = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const float x = std::ldexp(1.0F + static_cast<float>(i * 419U % 8'388'608U) * 0x1p-23F,
                               smallest - 20 + static_cast<int>(i % 36));
    const double lower = static_cast<double>(round_to<T, Rounding::toward_zero>(x));
    const double upper = static_cast<double>(round_to<T, Rounding::up>(x));
    if (lower == upper) continue;
    const double want = (static_cast<double>(x) - lower) / (upper - lower) * 0x1p32;
    const auto away = static_cast<double>(away_of_32_bits<T>(x));
    if (x >= std::ldexp(1.0F, smallest - 9)) {
      ASSERT_EQ(away, want) << x;
      ++checked;
    } else {
      ASSERT_LE(away, want) << x;
      ASSERT_GT(away, want - 1) << x;
      ++biased;
    }
  }
  EXPECT_GT(checked, 10'000);
  EXPECT_GT(biased, 4'000);
}
TEST(StochasticRoundOf, NormalAndSubnormalNumbersHaveExactChancesAndTheSmallestTheStatedBias) {
  expect_exact_chances<fp16>(-24);
  expect_exact_chances<fp8_e4m3>(-9);
  expect_exact_chances<fp8_e5m2>(-16);
}

// A report of another library: practically always down. 1.125 * 2^-14 lies halfway between 2^-14
// and 1.25 * 2^-14.
TEST(StochasticRoundOf, AFloatInTheMiddleOfTwoFp8GoesUpHalfOfTheTime) {
  EXPECT_EQ(away_of_32_bits<fp8_e5m2>(0x1.2p-14F), std::uint64_t{1} << 31);
  const auto out = rounded<fp8_e5m2>(widest(), std::vector<float>(100'000, 0x1.2p-14F),
                                     {.seed = 3, .elements = 100'000});
  int up = 0;
  for (const fp8_e5m2 y : out)
    up += y.bits() == 0x05 ? 1 : 0;
  EXPECT_NEAR(up, 50'000, 800);  // five standard deviations
}

// Added to the code's own bits the random number would make -0 of the first, an infinity of the
// others.
TEST(StochasticRoundOf, NaNsStayNaNsAndTheLargestStaysFiniteWhereAsked) {
  const float largest = float_of(0x7F7F'FFFFU);
  const std::vector<float> in{float_of(0x7FFF'FFFFU), float_of(0x7F80'0001U), largest, -largest};
  int infinite = 0;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const auto out = rounded<bf16>(widest(), in, {.step = step, .elements = 4});
    EXPECT_EQ(out[0].bits(), 0x7FFF);
    EXPECT_EQ(out[1].bits(), 0x7FC0);
    infinite += isinf(out[2]) ? 1 : 0;
    const auto kept =
        rounded<bf16>(widest(), in, {.step = step, .elements = 4, .overflow = Overflow::saturate});
    EXPECT_EQ(kept[2].bits(), 0x7F7F);
    EXPECT_EQ(kept[3].bits(), 0xFF7F);
  }
  EXPECT_GT(infinite, 150);
}

// A weight of 1 that loses 0.001 in each of 500 steps: to nearest it stays 1.
TEST(StochasticRoundOf, SmallUpdatesAreNotLost) {
  bf16 nearest{1.0F};
  std::vector<bf16> weights(1000, bf16{1.0F});
  std::vector<float> moved(weights.size());
  for (std::uint64_t step = 0; step < 500; ++step) {
    nearest = bf16{static_cast<float>(nearest) - 1e-3F};
    for (std::size_t i = 0; i < weights.size(); ++i)
      moved[i] = static_cast<float>(weights[i]) - 1e-3F;
    stochastic_round<bf16>(widest(), moved, weights, {.step = step, .elements = weights.size()});
  }
  double mean = 0;
  for (const bf16 weight : weights)
    mean += static_cast<double>(weight) / static_cast<double>(weights.size());
  EXPECT_EQ(nearest.bits(), 0x3F80);
  EXPECT_NEAR(mean, 0.5,
              0.008);  // the reference's deviation, 0.038, over the root of 1000, six times
}

// A report of another library: one seed for many parameters.
TEST(StochasticRoundOf, ParametersDrawFromStreamsOfTheirOwn) {
  const std::vector<float> in(4096, 1.001F);
  std::vector<std::vector<bf16>> all;
  for (const char* name : {"a.weight", "b.weight", "a.bias"}) {
    all.push_back(
        rounded<bf16>(widest(), in, {.stream = core::stream(name, "round"), .elements = 4096}));
    for (std::size_t other = 0; other + 1 < all.size(); ++other)
      EXPECT_NE(difference(all.back(), all[other]), "");
  }
}

TEST(StochasticRoundErrors, SayWhatDoesNotFit) {
  std::vector<float> in(10);
  std::vector<bf16> out(9);
  EXPECT_EQ(
      message_of<ShapeError>([&] { stochastic_round<bf16>(portable(), in, out, {}); }),
      "stochastic_round: in has 10 elements but out has 9. Were they made for different batches "
      "or layers?");
  out.resize(10);
  EXPECT_EQ(
      message_of<ShapeError>(
          [&] { stochastic_round<bf16>(portable(), in, out, {.elements = 15, .index = 6}); }),
      "stochastic_round: elements 6 to 16 are not in a tensor of 15. `elements` is the size of "
      "the whole tensor, not of this shard.");
}

}  // namespace
