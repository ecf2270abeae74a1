// SPDX-License-Identifier: MIT
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/random.hpp>
#include <halfstep/tensor/arena.hpp>

namespace hs = halfstep;
using hs::core::Category;
using hs::tensor::Arena;
using hs::tensor::Block;

TEST(Arena, LiveBlocksNeverOverlapAndTheLedgerBalances) {
  hs::core::Ledger ledger;
  Arena arena(ledger);
  std::vector<Block> live;
  std::int64_t expected = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto draw = hs::core::random_bits(1, 2, i);
    if (live.empty() || draw % 5 < 3) {
      live.push_back(arena.allocate(draw / 8 % 3000, draw % 2 == 0 ? Category::activations : Category::workspace));
      expected += live.back().bytes;
      if (live.back().bytes > 0) {
        std::memset(arena.data(live.back()), static_cast<int>(live.size() % 251), static_cast<std::size_t>(live.back().bytes));
      }
    } else {
      auto& victim = live[draw / 8 % live.size()];
      expected -= victim.bytes;
      arena.release(victim);
      std::swap(victim, live.back());
      live.pop_back();
    }
    ASSERT_EQ(ledger.live(), expected);
  }
  for (std::size_t a = 0; a < live.size(); ++a) {
    for (std::size_t b = a + 1; b < live.size(); ++b) {
      if (live[a].bytes == 0 || live[b].bytes == 0) continue;
      ASSERT_TRUE(live[a].offset + live[a].bytes <= live[b].offset || live[b].offset + live[b].bytes <= live[a].offset);
    }
  }
  for (auto& block : live) arena.release(block);
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(arena.allocate(64, Category::activations).offset, 0) << "holes were not joined";
}

TEST(Arena, ADryArenaPlacesBlocksWhereARealOneDoes) {
  hs::core::Ledger real_ledger, dry_ledger;
  Arena real(real_ledger), dry(dry_ledger, Arena::Kind::dry);
  std::vector<Block> blocks;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const auto draw = hs::core::random_bits(3, 4, i);
    if (blocks.empty() || draw % 2 == 0) {
      const Block a = real.allocate(draw % 5000, Category::activations);
      const Block b = dry.allocate(draw % 5000, Category::activations);
      ASSERT_EQ(a.offset, b.offset);
      blocks.push_back(a);
    } else {
      Block a = blocks.back(), b = blocks.back();
      blocks.pop_back();
      real.release(a), dry.release(b);
    }
  }
  EXPECT_EQ(real_ledger.peak(), dry_ledger.peak());
  EXPECT_EQ(real.high_water(), dry.high_water());
  EXPECT_GT(dry_ledger.peak(), 0);
}

TEST(Arena, ClearGivesEverythingBackAndKeepsTheMemory) {
  hs::core::Ledger ledger;
  Arena arena(ledger);
  const Block first = arena.allocate(1 << 20, Category::activations);
  std::memset(arena.data(first), 7, 1 << 20);
  arena.clear();
  EXPECT_EQ(ledger.live(), 0);
  const Block again = arena.allocate(1 << 20, Category::recompute);
  EXPECT_EQ(arena.data(again), arena.data(first));
  EXPECT_EQ(static_cast<int>(*arena.data(again)), 7) << "the pages were given back";
}
