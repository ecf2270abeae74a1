// SPDX-License-Identifier: MIT
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/gradient_sums.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace {

using namespace halfstep;

// The house's rule, word for word: on each level 2i and 2i + 1 are added, an odd last one moves up.
// An absent one adds nothing.
using Leaf = std::optional<std::vector<float>>;
Leaf tree_of(std::vector<Leaf> level) {
  while (level.size() > 1) {
    std::vector<Leaf> above;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      if (i + 1 == level.size() || !level[i + 1]) {
        above.push_back(level[i]);
      } else if (!level[i]) {
        above.push_back(level[i + 1]);
      } else {
        std::vector<float> sum(level[i]->size());
        for (std::size_t j = 0; j < sum.size(); ++j)
          sum[j] = (*level[i])[j] + (*level[i + 1])[j];
        above.push_back(sum);
      }
    }
    level = above;
  }
  return level[0];
}

// Sums in another order give other bits: magnitudes from 1 to 2^-23.
std::vector<float> leaf_of(std::size_t number, std::size_t parameter, std::size_t elements) {
  std::vector<float> leaf(elements);
  std::uint32_t state = static_cast<std::uint32_t>(number * 7919 + parameter * 104729 + 1);
  for (auto& x : leaf) {
    state = state * 1664525U + 1013904223U;
    x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F /
        static_cast<float>(1U << (state >> 8) % 24U);
  }
  return leaf;
}

struct Sums : testing::Test {
  Sums() {
    for (int i = 0; i < parameters_count; ++i) {
      parameters.scope().add(std::to_string(i), {sizes[i]}, Role::weight, {});
    }
  }
  static constexpr int parameters_count = 3;
  static constexpr std::int64_t sizes[parameters_count] = {1, 37, 2051};
  Runtime runtime{{.threads = 2}};
  Parameters<float> parameters{runtime};
  mixed::GradientSums<float> sums{parameters};

  void give(ParameterId id, const std::vector<float>& leaf) {
    const auto target = sums.open(id);
    float* out = static_cast<float*>(target.data);
    for (std::size_t i = 0; i < leaf.size(); ++i)
      out[i] = target.accumulate ? out[i] + leaf[i] : leaf[i];
    sums.finish(id);
  }
  /// Whether parameter p takes part in micro-batch n.
  using Presence = bool (*)(std::size_t n, std::size_t p);
  void agrees(std::size_t micro_batches, Presence present) {
    std::vector<std::vector<Leaf>> leaves(parameters_count);
    sums.begin(static_cast<std::int64_t>(micro_batches));
    for (std::size_t n = 0; n < micro_batches; ++n) {
      for (std::size_t p = parameters_count; p-- > 0;) {
        leaves[p].emplace_back();
        if (!present(n, p)) continue;
        leaves[p].back() = leaf_of(n, p, static_cast<std::size_t>(sizes[p]));
        give({static_cast<std::uint32_t>(p)}, *leaves[p].back());
      }
      sums.next();
    }
    sums.fold();
    for (std::size_t p = 0; p < parameters_count; ++p) {
      const auto sum = sums.sum({static_cast<std::uint32_t>(p)});
      const auto wanted = tree_of(leaves[p]).value_or(std::vector<float>(sum.size(), 0.0F));
      ASSERT_EQ(std::vector<float>(sum.begin(), sum.end()), wanted)
          << micro_batches << " micro-batches, parameter " << p;
    }
  }
};

TEST_F(Sums, AreTheHousesTreeForEveryNumberOfMicroBatches) {
  for (std::size_t v = 1; v <= 65; ++v)
    agrees(v, [](std::size_t, std::size_t) { return true; });
}
TEST_F(Sums, OfLeavesThatAreAbsentMoveThePartnerUpUnchanged) {
  for (std::size_t v = 1; v <= 17; ++v) {
    agrees(v, [](std::size_t n, std::size_t p) { return (n * 5 + p * 3) % 4 != 0; });
    agrees(v, [](std::size_t n, std::size_t p) { return n % 2 == p % 2; });
    agrees(v, [](std::size_t n, std::size_t p) { return p != 1 && n == 2; });
    agrees(v, [](std::size_t, std::size_t) { return false; });
  }
}
TEST_F(Sums, OfAllPatternsOfPresenceInEightMicroBatches) {
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    sums.begin(8);
    std::vector<Leaf> leaves;
    for (std::size_t n = 0; n < 8; ++n) {
      leaves.emplace_back();
      if ((pattern >> n & 1U) != 0) {
        leaves.back() = leaf_of(n, 1, 37);
        give({1}, *leaves.back());
      }
      sums.next();
    }
    sums.fold();
    const auto sum = sums.sum({1});
    ASSERT_EQ(std::vector<float>(sum.begin(), sum.end()),
              tree_of(leaves).value_or(std::vector<float>(37, 0.0F)))
        << pattern;
  }
}
TEST_F(Sums, InAnotherOrderHaveOtherBits) {
  std::vector<float> serial(37, 0.0F);
  std::vector<Leaf> leaves;
  for (std::size_t n = 0; n < 8; ++n) {
    leaves.emplace_back(leaf_of(n, 1, 37));
    for (std::size_t i = 0; i < 37; ++i)
      serial[i] += (*leaves.back())[i];
  }
  EXPECT_NE(tree_of(leaves).value(), serial);
}
TEST_F(Sums, OfContiguousOrStridedSharesJoinToTheSameBits) {
  const auto share = [&](std::size_t first, std::size_t stride, std::size_t count) {
    sums.begin(static_cast<std::int64_t>(count));
    for (std::size_t k = 0; k < count; ++k) {
      give({1}, leaf_of(first + k * stride, 1, 37));
      sums.next();
    }
    sums.fold();
    const auto sum = sums.sum({1});
    return Leaf(std::vector<float>(sum.begin(), sum.end()));
  };
  const auto whole = share(0, 1, 16);
  for (std::size_t ranks = 2; ranks <= 16; ranks *= 2) {
    std::vector<Leaf> shares;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      shares.push_back(share(rank * 16 / ranks, 1, 16 / ranks));
    EXPECT_EQ(tree_of(shares), whole) << ranks;
  }
  EXPECT_NE(tree_of({share(0, 2, 8), share(1, 2, 8)}),
            whole);  // every n-th needs a reduction per micro-batch
}
TEST_F(Sums, TakeAsManyBuffersAsTheHouseSays) {
  const int wanted[] = {1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5};
  for (int v = 1; v <= 17; ++v) {
    EXPECT_EQ(mixed::gradient_buffers(v), wanted[v - 1]) << v;
    Runtime fresh({.threads = 1});
    Parameters<float> store(fresh);
    store.scope().add("w", {2051}, Role::weight, {});
    mixed::GradientSums<float> some(store);
    some.begin(v);
    EXPECT_EQ(fresh.ledger().live(core::Category::gradients), wanted[v - 1] * 2051 * 4);
  }
}
TEST_F(Sums, OfADoubleModelAreDouble) {
  Parameters<double> store(runtime);
  store.scope().add("w", {1}, Role::weight, {});
  mixed::GradientSums<double> some(store);
  some.begin(2);
  for (int n = 0; n < 2; ++n) {
    const auto target = some.open({0});
    double& out = *static_cast<double*>(target.data);
    out = target.accumulate ? out + 0x1p-40 : 1.0;
    some.finish({0});
    some.next();
  }
  some.fold();
  EXPECT_EQ(some.sum({0})[0], 1.0 + 0x1p-40);
}

}  // namespace
