// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/random.hpp>
#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/placement.hpp>

namespace hs = halfstep;
using hs::core::Category;
using hs::tensor::Arena;
using hs::tensor::Block;
using hs::tensor::Life;

namespace {

// A pass that first fit is bad at: two blocks, the first of which makes room that the third does
// not fit into. 384 bytes of addresses for 256 live ones.
void bad_for_first_fit(Arena& arena, std::int64_t third = 192) {
  arena.clear();
  Block a = arena.allocate(64, Category::activations);
  Block b = arena.allocate(64, Category::activations);
  arena.release(a);
  Block c = arena.allocate(third, Category::workspace);
  arena.release(b);
  arena.release(c);
}

// Blocks of random sizes that come and go, and where an arena put them; the same of the same seed.
struct Pass {
  std::vector<Block> blocks;
  std::int64_t peak = 0;
};
Pass random_pass(Arena& arena, std::uint64_t seed, int events, hs::core::Ledger& ledger) {
  arena.clear();
  ledger.restart_peaks();
  Pass pass;
  std::vector<Block> live;
  for (int i = 0; i < events; ++i) {
    const auto draw = hs::core::random_bits(seed, 5, static_cast<std::uint64_t>(i));
    if (live.empty() || draw % 5 < 3) {
      live.push_back(
          arena.allocate(1 + static_cast<std::int64_t>(draw / 8 % 3000), Category::activations));
      pass.blocks.push_back(live.back());
      for (std::size_t j = 0; j + 1 < live.size(); ++j) {
        EXPECT_TRUE(live[j].offset + live[j].bytes <= live.back().offset ||
                    live.back().offset + live.back().bytes <= live[j].offset);
      }
    } else {
      arena.release(live[draw / 8 % live.size()]);
      std::swap(live[draw / 8 % live.size()], live.back());
      live.pop_back();
    }
  }
  pass.peak = ledger.peak();
  return pass;
}

}  // namespace

TEST(Placement, LeavesNoHoleWhereFirstFitDoes) {
  hs::core::Ledger ledger;
  Arena dry(ledger, Arena::Kind::dry);
  bad_for_first_fit(dry);
  EXPECT_EQ(dry.high_water(), 64 + 64 + 192);
  const auto placement = dry.arranged();
  EXPECT_EQ(placement.end, 64 + 192);
  EXPECT_EQ(placement.end, ledger.peak());

  Arena real(ledger);
  real.follow(placement);
  for (int pass = 0; pass < 2; ++pass) {
    bad_for_first_fit(real);
    EXPECT_EQ(real.high_water(), 64 + 192);
  }
  bad_for_first_fit(real, 256);
  EXPECT_EQ(real.high_water(), 64 + 192 + 256) << "another pass goes on by first fit";
}

TEST(Placement, BlocksThatLiveAtATimeShareNoAddress) {
  std::int64_t lower = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    hs::core::Ledger dry_ledger, ledger;
    Arena dry(dry_ledger, Arena::Kind::dry), real(ledger);
    const Pass by_first_fit = random_pass(dry, seed, 300, dry_ledger);
    const auto placement = dry.arranged();
    EXPECT_GE(placement.end, by_first_fit.peak);
    EXPECT_LE(placement.end, dry.high_water());
    lower += dry.high_water() - placement.end;

    real.follow(placement);
    const Pass placed = random_pass(real, seed, 300, ledger);
    EXPECT_EQ(placed.peak, by_first_fit.peak);
    EXPECT_EQ(real.high_water(), placement.end);
    for (std::size_t i = 0; i < placed.blocks.size(); ++i)
      ASSERT_EQ(placed.blocks[i].offset, placement.places[i].offset);

    random_pass(real, seed + 1, 200, ledger);  // none overlap in a pass that it is not for either
    real.clear();
    EXPECT_EQ(ledger.live(), 0);
  }
  EXPECT_GT(lower, 0);
}

TEST(Placement, OfNothingIsNothing) {
  EXPECT_EQ(hs::tensor::arrange({}).end, 0);
  EXPECT_TRUE(hs::tensor::arrange({}).places.empty());
}
