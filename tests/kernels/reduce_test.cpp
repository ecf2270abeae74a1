// SPDX-License-Identifier: MIT
#include <halfstep/kernels/reduce.hpp>

#include <cmath>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;

// The tree, written as a recursion on levels of fresh vectors.
template <class S>
S tree(std::vector<S> level) {
  if (level.empty()) return S{0};
  while (level.size() > 1) {
    std::vector<S> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(level[i] + level[i + 1]);
    if (level.size() % 2 != 0) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

template <class S, class E, class Rule>
S by_blocks(const std::vector<E>& x, Rule rule) {
  std::vector<S> blocks;
  for (std::size_t b = 0; b < x.size(); b += 1024) {
    Lanes<S> lanes;
    for (std::size_t j = b; j < std::min(b + 1024, x.size()); ++j) {
      lanes.add(static_cast<std::int64_t>(j - b),
                rule(static_cast<S>(static_cast<accumulator_t<E>>(x[j]))));
    }
    blocks.push_back(lanes.sum());
  }
  return tree(blocks);
}

template <class E>
class Reduce : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Reduce, Elements);

TYPED_TEST(Reduce, SumsAreTheHousesTreeOnEveryPathAndThreadCount) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const std::int64_t n :
       {0, 1, 5, 15, 16, 17, 100, 1023, 1024, 1025, 2049, 5 * 1024 + 3, 100'003}) {
    const auto x = values<E>(n, 1, 10.0, 0.3);
    const double sum = by_blocks<double>(x, [](double a) { return a; });
    const double squares = by_blocks<double>(x, [](double a) { return times(a, a); });
    const A rounded = by_blocks<A>(x, [](A a) { return a; });
    Guarded<E> in(x);
    every_compute([&](const Compute& compute, const std::string& name) {
      Guarded<double> blocks(halfstep::kernels::sum_blocks(n));
      Guarded<A> rough(halfstep::kernels::sum_blocks(n));
      EXPECT_EQ(halfstep::kernels::sum<E>(compute, in, blocks), sum) << name << ", " << n;
      EXPECT_EQ(halfstep::kernels::sum_of_squares<E>(compute, in, blocks), squares)
          << name << ", " << n;
      EXPECT_EQ(halfstep::kernels::sum_in_accumulator<E>(compute, in, rough), rounded)
          << name << ", " << n;
    });
  }
}

TEST(ReduceTree, AddsNeighboursLevelByLevel) {
  for (std::size_t n = 0; n <= 40; ++n) {
    auto x = values<float>(static_cast<std::int64_t>(n), 1);
    const float expected = tree(x);
    EXPECT_EQ(halfstep::kernels::fold_blocks<float>(portable(), x), expected) << n;
  }
  // Another order gives other bits: the tree is not a chain.
  auto x = values<float>(40, 1);
  float chain = 0;
  for (const float a : x)
    chain += a;
  EXPECT_NE(halfstep::kernels::fold_blocks<float>(portable(), x), chain);
}

TEST(ReduceErrors, SayHowManyBlocksAreWanted) {
  std::vector<float> x(2049);
  std::vector<double> blocks(2);
  for (const auto& call :
       {+[](std::span<const float> a, std::span<double> b) {
          static_cast<void>(halfstep::kernels::sum<float>(portable(), a, b));
        },
        +[](std::span<const float> a, std::span<double> b) {
          static_cast<void>(halfstep::kernels::sum_of_squares<float>(portable(), a, b));
        }}) {
    const auto text = message_of<ShapeError>([&] { call(x, blocks); });
    EXPECT_NE(text.find(": 2049 elements make 3 blocks of 1024, but there is room for 2. Size it "
                        "with sum_blocks()."),
              std::string::npos)
        << text;
  }
}

}  // namespace
