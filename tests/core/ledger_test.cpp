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
TEST(Ledger, KnowsWhatWasGoingOnAtThePeak) {
  Ledger ledger;
  ledger.set_event({Event::Phase::forward, "linear", 3});
  ledger.add(Category::activations, 100);
  ledger.set_event({Event::Phase::backward, "gelu", 2});
  ledger.add(Category::workspace, 50);
  ledger.remove(Category::workspace, 50);
  ledger.set_event({});
  ledger.add(Category::workspace, 50);  // as high as before, no higher
  EXPECT_EQ(ledger.peak_event().op, "gelu");
  EXPECT_EQ(ledger.peak_event().node, 2U);
  EXPECT_EQ(to_string(ledger.peak_event().phase), "backward");
}
TEST(Ledger, TellsOnceWhenATotalIsReached) {
  Ledger ledger;
  int calls = 0;
  ledger.notify_at(100, [](void* context) { ++*static_cast<int*>(context); }, &calls);
  ledger.add(Category::weights, 99);
  EXPECT_EQ(calls, 0);
  ledger.add(Category::weights, 1);
  ledger.add(Category::weights, 1);
  EXPECT_EQ(calls, 1);
}
}  // namespace
