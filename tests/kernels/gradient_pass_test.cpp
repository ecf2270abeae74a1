// SPDX-License-Identifier: MIT
#include <halfstep/kernels/gradient_pass.hpp>

#include <cmath>
#include <limits>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
using halfstep::kernels::gradient_pass;
using halfstep::kernels::sum_blocks;

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

TEST(GradientPassErrors, SayHowManyBlocksAreWanted) {
  std::vector<float> gradient(1025);
  std::vector<double> blocks(1);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { static_cast<void>(gradient_pass<float>(portable(), gradient, blocks)); }),
            "gradient_pass: 1025 elements make 2 blocks of 1024, but there is room for 1. Size it "
            "with sum_blocks().");
}

}  // namespace
