// SPDX-License-Identifier: MIT
#include <halfstep/kernels/dropout.hpp>

#include <cmath>
#include <limits>

#include <halfstep/core/random.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::OptionError;
using halfstep::ShapeError;

template <class E>
std::vector<E> run(const Compute& compute, const std::vector<E>& x, float p, std::uint64_t seed = 5,
                   std::uint64_t stream = 6, std::uint64_t element0 = 0) {
  Guarded<E> in(x), out(static_cast<std::int64_t>(x.size()));
  halfstep::kernels::dropout<E>(compute, in, out, p, seed, stream, element0);
  return out.copy();
}

template <class E>
class Dropout : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Dropout, Elements);

TYPED_TEST(Dropout, TheMaskIsEachElementsOwnRandomWordOnEveryPathAndThreadCount) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const std::int64_t n : {0, 1, 3, 4, 15, 16, 17, 50, 63, 70, 1027, 40'003}) {
    // The last crosses from one upper half of the block's number to the next.
    for (const std::uint64_t element0 :
         {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1} << 33,
          (std::uint64_t{1} << 34) - 37}) {
      const auto x = values<E>(n, 1);
      std::vector<E> expected;
      for (std::int64_t i = 0; i < n; ++i) {
        const auto word = halfstep::core::random_bits(5, 6, element0 + static_cast<std::uint64_t>(i));
        const bool keep = static_cast<double>(word) >= static_cast<double>(0.3F) * 0x1p32;
        const A scale = static_cast<A>(1.0 / (1.0 - static_cast<double>(0.3F)));
        expected.push_back(keep ? static_cast<E>(static_cast<A>(x[static_cast<std::size_t>(i)]) * scale) : E{});
      }
      every_compute([&](const Compute& compute, const std::string& name) {
        ASSERT_SAME_BITS(run(compute, x, 0.3F, 5, 6, element0), expected) << name << ", " << n;
      });
    }
  }
}

TEST(DropoutMask, DependsOnSeedStreamElementAndProbability) {
  const std::vector<float> one(1000, 1.0F);
  const auto base = run(widest(), one, 0.5F);
  EXPECT_TRUE(difference(base, run(widest(), one, 0.5F)).empty());
  EXPECT_FALSE(difference(base, run(widest(), one, 0.5F, 7)).empty());
  EXPECT_FALSE(difference(base, run(widest(), one, 0.5F, 5, 7)).empty());
  EXPECT_FALSE(difference(base, run(widest(), one, 0.5F, 5, 6, 1)).empty());
  EXPECT_FALSE(difference(base, run(widest(), one, 0.4F)).empty());
  // Element numbers, not positions: a part of a run has its part of the mask.
  const auto part = run(widest(), std::vector<float>(900, 1.0F), 0.5F, 5, 6, 100);
  EXPECT_SAME_BITS(part, (std::vector<float>(base.begin() + 100, base.end())));
}

TEST(DropoutMask, DropsTheStatedShareAndKeepsTheMean) {
  const std::int64_t n = 1'000'000;
  for (const float p : {0.1F, 0.5F, 0.9F}) {
    const auto y = run(widest(), std::vector<float>(static_cast<std::size_t>(n), 1.0F), p);
    double dropped = 0, sum = 0;
    for (const float a : y) {
      dropped += a == 0.0F;
      sum += static_cast<double>(a);
    }
    const double deviation = std::sqrt(static_cast<double>(p * (1 - p)) / static_cast<double>(n));
    EXPECT_NEAR(dropped / static_cast<double>(n), static_cast<double>(p), 5 * deviation);
    EXPECT_NEAR(sum / static_cast<double>(n), 1.0, 5 * deviation / static_cast<double>(1 - p));
  }
}

TEST(DropoutMask, NothingIsDroppedAtZeroAndWhatIsDroppedIsZeroWhateverItWas) {
  const auto x = values<float>(100, 1);
  EXPECT_SAME_BITS(run(widest(), x, 0.0F), x);
  const auto y = run(widest(), std::vector<float>(200, std::numeric_limits<float>::infinity()), 0.5F);
  for (const float a : y) EXPECT_TRUE(a == 0.0F || std::isinf(a));
}

TEST(DropoutErrors, NameTheProbability) {
  std::vector<float> x(3), y(4);
  const auto with = [&](float p) {
    return message_of<OptionError>([&] {
      halfstep::kernels::dropout<float>(portable(), x, x, p, 0, 0, 0);
    });
  };
  EXPECT_EQ(with(1.0F), "dropout: p is 1; wanted at least 0 and below 1. It is the share that is dropped.");
  EXPECT_NE(with(-0.1F).find("p is -0.1"), std::string::npos);
  EXPECT_NE(with(std::nanf("")).find("p is nan"), std::string::npos);
  EXPECT_EQ(message_of<ShapeError>([&] {
              halfstep::kernels::dropout<float>(portable(), x, y, 0.1F, 0, 0, 0);
            }),
            "dropout: x has 3 elements but y has 4. Were they made for different batches or layers?");
}

}  // namespace
