// SPDX-License-Identifier: MIT
#include <halfstep/kernels/squared_error.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
namespace kernels = halfstep::kernels;

template <class E>
class SquaredError : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(SquaredError, Elements);

TYPED_TEST(SquaredError, EveryPathAndThreadCountGivesTheBitsOfThePlainLoop) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  every_compute([](const Compute& compute, const std::string& name) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 70, 1023, 1024, 1025, 3333, 70001}) {
      SCOPED_TRACE(name + ", n " + std::to_string(n));
      const auto y = values<E>(n, 1);
      const auto target = values<A>(n, 2);
      std::vector<double> sums;
      for (std::int64_t first = 0; first < n; first += 1024) {
        Lanes<double> lanes;
        for (std::int64_t j = first; j < std::min(n, first + 1024); ++j) {
          const double d = static_cast<double>(y[static_cast<std::size_t>(j)]) -
                           static_cast<double>(target[static_cast<std::size_t>(j)]);
          lanes.add(j - first, times(d, d));
        }
        sums.push_back(lanes.sum());
      }
      while (sums.size() > 1) {
        std::vector<double> next;
        for (std::size_t i = 0; i < sums.size(); i += 2) {
          next.push_back(i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i]);
        }
        sums = next;
      }
      const A seed = static_cast<A>(0.37);
      std::vector<E> gradient;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const A d = static_cast<A>(y[i]) - target[i];
        gradient.push_back(static_cast<E>(times(d + d, seed)));
      }
      Guarded<E> gy(y), dy(n);
      Guarded<A> gtarget(target);
      Guarded<double> blocks(kernels::squared_error_blocks(n));
      const auto result = kernels::squared_error<E>(compute, gy, gtarget, blocks);
      ASSERT_EQ(result.sum, sums.empty() ? 0.0 : sums[0]);
      ASSERT_EQ(result.count, n);
      kernels::squared_error_backward<E>(compute, gy, gtarget, seed, dy);
      ASSERT_SAME_BITS(dy.copy(), gradient);
    }
  });
}

TEST(SquaredErrorKernel, IsTheSumNotTheMeanAndTheGradientIsItsSlope) {
  const std::vector<double> y{1, 2, 5}, target{0, 4, 5};
  std::vector<double> blocks(1), gradient(3);
  EXPECT_EQ(kernels::squared_error<double>(widest(), y, target, blocks).sum, 5.0);
  kernels::squared_error_backward<double>(widest(), y, target, 0.5, gradient);
  EXPECT_EQ(gradient, (std::vector<double>{1, -2, 0}));
}

TEST(SquaredErrorKernel, ErrorsNameTheSizes) {
  const std::vector<float> y(5), four(4);
  std::vector<double> blocks(1), none;
  std::vector<float> gradient(4);
  EXPECT_EQ(
      message_of<ShapeError>([&] { kernels::squared_error<float>(widest(), y, four, blocks); }),
      "squared_error: y has 5 elements, target 4 and blocks 1; wanted 5 and at least 1. Do the "
      "targets have "
      "the shape of the model's output?");
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::squared_error<float>(widest(), y, y, none);
            }).find("blocks 0"),
            std::string::npos);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { kernels::squared_error_backward<float>(widest(), y, y, 1.0F, gradient); }),
            "squared_error_backward: y has 5 elements, target 5 and gradient 4; all want the same "
            "number. Do the "
            "targets have the shape of the model's output?");
}

}  // namespace
