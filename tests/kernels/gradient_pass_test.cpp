// SPDX-License-Identifier: MIT
#include <halfstep/kernels/gradient_pass.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include <halfstep/numeric/fp8_e5m2.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::fp8_e5m2;
using halfstep::ShapeError;
using halfstep::kernels::gradient_pass;
using halfstep::kernels::sum_blocks;
using halfstep::kernels::underflow_limit;
using halfstep::kernels::Underflows;

template <class G>
class GradientPass : public testing::Test {};
using Gradients = testing::Types<float, double>;
TYPED_TEST_SUITE(GradientPass, Gradients);

TYPED_TEST(GradientPass, WritesTheSumOfSquaresOfEachBlockOnEveryPathAndThreadCount) {
  using G = TypeParam;
  for (const std::int64_t n : {0, 1, 17, 1023, 1024, 1025, 70'001}) {
    Guarded<G> gradient(values<G>(n, 1));
    std::vector<double> expected;
    for (std::int64_t b = 0; b < n; b += 1024) {
      Lanes<double> lanes;
      for (std::int64_t j = b; j < std::min(b + 1024, n); ++j) {
        lanes.add(j - b, times(static_cast<double>(gradient[j]), static_cast<double>(gradient[j])));
      }
      expected.push_back(lanes.sum());
    }
    every_compute([&](const Compute& compute, const std::string& name) {
      Guarded<double> blocks(sum_blocks(n));
      const auto found = gradient_pass<G>(compute, gradient, blocks);
      EXPECT_SAME_BITS(blocks.copy(), expected) << name;
      EXPECT_EQ(found.count, 0);
      EXPECT_EQ(found.first, -1);
    });
  }
}

TYPED_TEST(GradientPass, CountsWhatIsNotFiniteAndFindsTheFirst) {
  using G = TypeParam;
  const std::int64_t n = 40'000;
  every_compute([&](const Compute& compute, const std::string& name) {
    for (const std::int64_t at : {0, 15, 16, 1023, 1024, 20'001, 39'999}) {
      for (const G bad : {std::numeric_limits<G>::infinity(), -std::numeric_limits<G>::infinity(),
                          std::numeric_limits<G>::quiet_NaN()}) {
        auto gradient = values<G>(n, 1);
        gradient[static_cast<std::size_t>(at)] = bad;
        gradient[static_cast<std::size_t>(n - 1)] = bad;
        std::vector<double> blocks(static_cast<std::size_t>(sum_blocks(n)));
        const auto found = gradient_pass<G>(compute, gradient, blocks);
        EXPECT_EQ(found.count, at == n - 1 ? 1 : 2) << name;
        EXPECT_EQ(found.first, at) << name;
      }
    }
  });
}

TYPED_TEST(GradientPass, TheLargestFiniteNumbersAreFinite) {
  using G = TypeParam;
  std::vector<G> gradient(100, std::numeric_limits<G>::max());
  std::vector<double> blocks(1);
  const auto found = gradient_pass<G>(widest(), gradient, blocks);
  EXPECT_EQ(found.count, 0);
  EXPECT_EQ(std::isfinite(blocks[0]), sizeof(G) == 4);  // squares of double overflow, of float not
}

/// Magnitudes over the whole range of G, zeros, numbers that are not finite, subnormals.
template <class G>
std::vector<G> wide_range(std::int64_t n) {
  std::vector<G> out;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<G>(std::ldexp(value_at(5, i), static_cast<int>(i * 7 % 250) - 148));
    out.push_back(i % 19 == 4     ? G{0}
                  : i % 1013 == 9 ? std::numeric_limits<G>::infinity()
                  : i % 1511 == 3 ? -std::numeric_limits<G>::quiet_NaN()
                                  : x);
  }
  return out;
}

TYPED_TEST(GradientPass, CountsWhatALimitAsksForInTheSameRead) {
  using G = TypeParam;
  for (const std::int64_t n : {0, 1, 17, 1023, 1025, 70'001}) {
    const auto numbers = wide_range<G>(n);
    Guarded<G> gradient(numbers);
    Underflows<G> want{.limits = {static_cast<G>(0x1p-25), static_cast<G>(0x1p-41), G{0}}};
    for (const G x : numbers) {
      const G size = std::fabs(x);
      want.nonzero += x != 0 && std::isfinite(x) ? 1 : 0;
      for (std::size_t i = 0; i < 3; ++i)
        want.counts[i] += x != 0 && size <= want.limits[i] ? 1 : 0;
      if (std::isfinite(x)) want.largest = std::max(want.largest, size);
    }
    every_compute([&](const Compute& compute, const std::string& name) {
      std::vector<double> blocks(static_cast<std::size_t>(sum_blocks(n))), plain(blocks);
      Underflows<G> got{.limits = want.limits};
      const auto found = gradient_pass<G>(compute, gradient, blocks, &got);
      const auto without = gradient_pass<G>(compute, gradient, plain);
      EXPECT_EQ(found.count, without.count) << name;
      EXPECT_EQ(found.first, without.first) << name;
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        EXPECT_TRUE(blocks[b] == plain[b] || (std::isnan(blocks[b]) && std::isnan(plain[b])))
            << name;
      }
      EXPECT_EQ(got.counts, want.counts) << name;
      EXPECT_EQ(got.nonzero, want.nonzero) << name;
      EXPECT_EQ(got.largest, want.largest) << name;
    });
  }
}
TYPED_TEST(GradientPass, AddsUpOverTensors) {
  using G = TypeParam;
  const G low = static_cast<G>(0x1p-27), high = static_cast<G>(0x1p-25);
  const std::vector<G> first{low, G{2}};
  const std::vector<G> second{static_cast<G>(-0x1p-26), G{0}, std::nextafter(low, G{1}),
                              std::nextafter(high, G{1})};
  Underflows<G> both{.limits = {high, low, G{0}}};
  std::vector<double> block(1);
  for (const auto& tensor : {first, second})
    EXPECT_EQ(gradient_pass<G>(widest(), tensor, block, &both).count, 0);
  EXPECT_EQ(both.counts, (std::array<std::int64_t, 3>{3, 1, 0}));
  EXPECT_EQ(both.nonzero, 5);
  EXPECT_EQ(both.largest, G{2});
}

// What the limit says is what the format does: at the limit a product rounds to zero, one float
// above it does not.
template <class F, class G>
void expect_limit(double factor) {
  const G limit = underflow_limit<F, G>(widest(), factor);
  const auto kept = [&](G x) {
    return static_cast<double>(F(static_cast<double>(x) * factor)) != 0;
  };
  EXPECT_FALSE(kept(limit)) << factor;
  EXPECT_TRUE(kept(std::nextafter(limit, G{1e30F}))) << factor;
}
TYPED_TEST(GradientPass, ALimitIsWhereTheFormatBeginsToRoundToZero) {
  using G = TypeParam;
  EXPECT_EQ((underflow_limit<fp16, G>(widest(), 1.0)), static_cast<G>(0x1p-25));
  EXPECT_EQ((underflow_limit<fp16, G>(widest(), 65536.0)), static_cast<G>(0x1p-41));
  EXPECT_EQ((underflow_limit<bf16, G>(widest(), 1.0)), static_cast<G>(0x1p-134));
  EXPECT_EQ((underflow_limit<fp8_e5m2, G>(widest(), 1.0)), static_cast<G>(0x1p-17));
  for (const double factor : {1.0, 0.3, 1.0 / 7, 1e-6, 3e8}) {
    expect_limit<fp16, G>(factor);
    expect_limit<bf16, G>(factor);
  }
  EXPECT_EQ((underflow_limit<bf16, float>(widest(), 1e-200)), std::numeric_limits<float>::max());
}

TEST(GradientPassErrors, SayHowManyBlocksAreWanted) {
  std::vector<float> gradient(1025);
  std::vector<double> blocks(1);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { static_cast<void>(gradient_pass<float>(portable(), gradient, blocks)); }),
            "gradient_pass: 1025 elements make 2 blocks of 1024, but there is room for 1. Size it "
            "with sum_blocks().");
}

}  // namespace
