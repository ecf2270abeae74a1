// SPDX-License-Identifier: MIT
#include <halfstep/core/ledger.hpp>

#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace {
using namespace halfstep::core;

TEST(Ledger, StartsAtZero) {
  const Ledger ledger;
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(ledger.peak(), 0);
}
TEST(Ledger, KeepsTheCategoriesOfTheHighestTotal) {
  Ledger ledger;
  ledger.add(Category::weights, 100);
  ledger.add(Category::activations, 50);
  ledger.remove(Category::activations, 50);
  ledger.add(Category::workspace, 30);  // 130: not the highest total, but of workspace
  EXPECT_EQ(ledger.live(), 130);
  EXPECT_EQ(ledger.live(Category::weights), 100);
  EXPECT_EQ(ledger.peak(), 150);
  EXPECT_EQ(ledger.peak(Category::workspace), 30);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(Category::activations)], 50);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(Category::workspace)], 0);
  EXPECT_EQ(std::accumulate(ledger.at_peak().begin(), ledger.at_peak().end(), std::int64_t{0}),
            ledger.peak());
}
TEST(Ledger, RestartsItsPeaksFromWhatIsLive) {
  Ledger ledger;
  ledger.add(Category::moments, 80);
  ledger.remove(Category::moments, 60);
  ledger.restart_peaks();
  EXPECT_EQ(ledger.peak(), 20);
  EXPECT_EQ(ledger.peak(Category::moments), 20);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(Category::moments)], 20);
}
TEST(Ledger, NamesEachCategoryOnce) {
  std::set<std::string_view> names;
  for (std::size_t c = 0; c < categories; ++c)
    names.insert(to_string(static_cast<Category>(c)));
  EXPECT_EQ(names.size(), categories);
  EXPECT_EQ(to_string(Category::packed), "packed");
}
}  // namespace
