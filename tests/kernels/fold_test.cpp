// SPDX-License-Identifier: MIT
#include <halfstep/kernels/fold.hpp>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/pool.hpp>

#include "kernels/cases.hpp"
#include "kernels/fold_cases.hpp"

// Formats 0 to 3 are float, bf16, fp16, double; kinds are in the order of Reduction.
void fold_oracle(int format, int kind, const void* const* sources, int n, void* out,
                 std::int64_t count);

namespace {
using namespace fold_cases;
using halfstep::core::Compute;
using halfstep::core::Isa;

template <class E>
std::vector<E> folded(const Compute& compute, Reduction reduction,
                      const std::vector<std::vector<E>>& in) {
  std::vector<const E*> sources;
  for (const auto& one : in)
    sources.push_back(one.data());
  std::vector<E> out(in[0].size());
  E* const target = out.data();
  halfstep::kernels::fold<E>(compute, reduction, sources, std::span<E* const>(&target, 1),
                             std::ssize(out), static_cast<int>(in.size()));
  return out;
}

/// The fold of one element of each array.
template <class E>
double of(Reduction reduction, const std::vector<double>& values) {
  std::vector<std::vector<E>> in;
  for (const double value : values)
    in.push_back({static_cast<E>(value)});
  return static_cast<double>(folded<E>({}, reduction, in)[0]);
}

template <class E>
void expect_the_oracle(Isa isa) {
  for (const Reduction reduction : reductions) {
    for (const int n : {1, 2, 3, 4, 5, 7, 8, 13, 64}) {
      for (const std::int64_t count : {1, 15, 16, 17, 100, 1027}) {
        std::vector<std::vector<E>> in;
        std::vector<const void*> sources;
        for (int array = 0; array < n; ++array)
          in.push_back(order_sensitive<E>(array, count, reduction));
        for (const auto& one : in)
          sources.push_back(one.data());
        std::vector<E> expected(static_cast<std::size_t>(count));
        fold_oracle(format_number<E>, static_cast<int>(reduction), sources.data(), n,
                    expected.data(), count);
        EXPECT_TRUE(same_bits(folded<E>({.isa = isa}, reduction, in), expected))
            << halfstep::core::to_string(isa) << ": " << halfstep::kernels::to_string(reduction)
            << " of " << n << " arrays of " << count << " in format " << format_number<E>;
      }
    }
  }
}

TEST(Fold, IsTheTreeOverTheArraysRoundedOnceOnEveryPath) {
  for (const Isa isa : halfstep::core::available_isas()) {
    expect_the_oracle<float>(isa);
    expect_the_oracle<bf16>(isa);
    expect_the_oracle<double>(isa);
  }
}
TEST(Fold, IsTheTreeInFp16Too) {
  // Products of 64 numbers leave fp16's range; the oracle rounds them to infinity and zero as well.
  for (const Isa isa : halfstep::core::available_isas())
    expect_the_oracle<fp16>(isa);
}

TEST(Fold, ItsDataTellsOneOrderFromAnother) {
  for (const Reduction reduction : {Reduction::sum, Reduction::product}) {
    std::vector<std::vector<float>> in;
    for (int array = 0; array < 4; ++array)
      in.push_back(order_sensitive<float>(array, 1000, reduction));
    const auto tree = folded<float>({}, reduction, in);
    std::swap(in[1], in[2]);
    EXPECT_FALSE(same_bits(folded<float>({}, reduction, in), tree));
  }
}

TEST(Fold, OfConstantArraysIsConstant) {
  // (1e8 + 1) + (-1e8 + 1): each inner sum loses its 1. A chain gives 1, a ring a mixture of both.
  std::vector<std::vector<float>> in;
  for (const float value : {1e8F, 1.0F, -1e8F, 1.0F})
    in.emplace_back(1000, value);
  EXPECT_TRUE(same_bits(folded<float>({}, Reduction::sum, in), std::vector<float>(1000, 0.0F)));
}
TEST(Fold, OfBf16RoundsOnceNotAtEveryArray) {
  EXPECT_EQ(of<bf16>(Reduction::sum, {256, 1, 1, 1}), 260.0);  // 259 is halfway between 258 and 260
}
TEST(Fold, OfNoiseInBf16IsWithinHalfAUnitForAnyNumberOfArrays) {
  // 8 times 1 + 2^-7 in the 8 bits of bf16: 8 + 2^-4, whose neighbours are 2^-4 apart.
  EXPECT_EQ(of<bf16>(Reduction::sum, std::vector<double>(8, 1.0 + 0x1p-7)), 8.0625);
}
TEST(Fold, AveragesDoNotOverflow) {
  EXPECT_EQ(of<fp16>(Reduction::average, {60000, 60000, 60000, 60000}), 60000.0);
  const double most = static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_EQ(of<float>(Reduction::average, {most, most, most, most}), most);
  const auto largest = static_cast<double>(std::numeric_limits<bf16>::max());
  EXPECT_EQ(of<bf16>(Reduction::average, {largest, largest, largest}), largest);
}
TEST(Fold, AveragesDoNotUnderflow) {
  EXPECT_EQ(of<fp16>(Reduction::average, {0x1p-24, 0x1p-24, 0x1p-24, 0x1p-24}), 0x1p-24);
  EXPECT_EQ(of<float>(Reduction::average, {0x1p-126, 0x1p-126, 0x1p-126, 0x1p-126}), 0x1p-126);
}
TEST(Fold, AveragesDivideInsteadOfMultiplyingByAReciprocal) {
  for (int sum = 1; sum < 2000; ++sum) {
    const auto one = static_cast<double>(sum);
    EXPECT_EQ(of<float>(Reduction::average, {one, 0, 0}),
              static_cast<double>(static_cast<float>(one / 3.0)));
  }
}

template <class E>
void expect_nan_everywhere() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Reduction reduction : reductions) {
    for (std::size_t at = 0; at < 4; ++at) {
      for (const double sign : {1.0, -1.0}) {
        std::vector<double> values{1, 2, 3, 4};
        values[at] = sign * nan;
        EXPECT_TRUE(std::isnan(of<E>(reduction, values))) << at;
      }
    }
  }
}
TEST(Fold, OfANanIsNanWhereverItStands) {
  expect_nan_everywhere<float>();
  expect_nan_everywhere<bf16>();
  expect_nan_everywhere<fp16>();
  expect_nan_everywhere<double>();
}
TEST(Fold, MinimumAndMaximumOrderZerosAndKeepInfinitiesAndSubnormals) {
  EXPECT_TRUE(std::signbit(of<float>(Reduction::min, {0.0, -0.0})));
  EXPECT_FALSE(std::signbit(of<float>(Reduction::max, {-0.0, 0.0})));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(of<bf16>(Reduction::max, {-infinity, -1, infinity}), infinity);
  EXPECT_EQ(of<bf16>(Reduction::min, {-infinity, -1, infinity}), -infinity);
  EXPECT_EQ(of<float>(Reduction::max, {-1, 0x1p-149}), 0x1p-149);
  EXPECT_EQ(of<bf16>(Reduction::min, {1, 0x1p-133}), 0x1p-133);
}

TEST(Fold, WritesTheSameBitsToAllTargetsWhichMayBeItsSources) {
  for (const int n : {2, 3, 8}) {
    std::vector<std::vector<bf16>> in;
    for (int array = 0; array < n; ++array)
      in.push_back(order_sensitive<bf16>(array, 999, Reduction::sum));
    const auto expected = folded<bf16>({}, Reduction::sum, in);
    std::vector<const bf16*> sources;
    std::vector<bf16*> targets;
    for (auto& one : in) {
      sources.push_back(one.data());
      targets.push_back(one.data());
    }
    halfstep::kernels::fold<bf16>({}, Reduction::sum, sources, targets, 999, n);
    for (const auto& one : in)
      EXPECT_TRUE(same_bits(one, expected));
  }
}
TEST(Fold, IsTheSameOnAnyNumberOfThreadsAndStaysWithinItsArrays) {
  constexpr std::int64_t count = 100'003;
  std::vector<std::vector<float>> in;
  for (int array = 0; array < 3; ++array)
    in.push_back(order_sensitive<float>(array, count, Reduction::sum));
  const auto one = folded<float>({}, Reduction::sum, in);
  halfstep::core::ThreadPool pool(3);
  EXPECT_TRUE(same_bits(folded<float>({.pool = &pool}, Reduction::sum, in), one));
  cases::Guarded<float> a(in[0]), b(in[1]), c(in[2]), out(count);
  const std::vector<const float*> sources{a.data(), b.data(), c.data()};
  float* const target = out.data();
  halfstep::kernels::fold<float>({}, Reduction::sum, sources, std::span<float* const>(&target, 1),
                                 count, 3);
  EXPECT_TRUE(same_bits(out.copy(), one));
}

TEST(Fold, RefusesNoArraysAndTooMany) {
  using halfstep::ShapeError;
  const std::vector<const float*> many(65, nullptr);
  EXPECT_THROW(halfstep::kernels::fold<float>({}, Reduction::sum, {}, {}, 0, 1), ShapeError);
  EXPECT_THROW(halfstep::kernels::fold<float>({}, Reduction::sum, many, {}, 0, 65), ShapeError);
}

}  // namespace
