// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/schedule.hpp>

#include "chain_search.hpp"

namespace hs = halfstep;
using hs::autograd::Action;
using hs::autograd::Schedule;

namespace {

// What running a schedule takes, by an interpreter that knows nothing but the meaning of actions.
struct Account {
  std::int64_t advances = 0, tapes = 0;
  std::size_t most_stored = 0, most_tapes = 0, most_of_both = 0;
};

// Every rule that a schedule has to keep is a failure here.
Account run(const Schedule& schedule) {
  const int n = schedule.steps;
  Account result;
  std::set<int> stored, taped;
  int live = 0;            // the step whose input is live, or -1
  int to_reverse = n - 1;  // the adjoint that comes next
  const auto fail = [&](const Action& action, const char* why) {
    ADD_FAILURE() << "step " << action.step << " of " << n << ": " << why;
  };
  for (const Action& action : hs::autograd::actions(schedule)) {
    const int i = action.step;
    switch (action.kind) {
      case Action::Kind::advance:
        if (live != i) fail(action, "advanced without its input");
        if (i >= to_reverse) fail(action, "advanced past the adjoint");
        live = i + 1;
        ++result.advances;
        break;
      case Action::Kind::tape:
        if (live != i) fail(action, "taped without its input");
        if (i > to_reverse || taped.count(i) != 0)
          fail(action, "taped twice, or after its adjoint");
        taped.insert(i);
        live = i + 1;
        ++result.tapes;
        break;
      case Action::Kind::store:
        if (live != i || stored.count(i) != 0)
          fail(action, "stored what is not live, or is stored");
        stored.insert(i);
        break;
      case Action::Kind::load:
        if (stored.erase(i) == 0) fail(action, "loaded what is not stored");
        live = i;
        break;
      case Action::Kind::reverse:
        if (i != to_reverse || taped.erase(i) == 0)
          fail(action, "reversed out of order or without a tape");
        --to_reverse;
        live = -1;
        break;
    }
    result.most_stored = std::max(result.most_stored, stored.size());
    result.most_tapes = std::max(result.most_tapes, taped.size());
    result.most_of_both = std::max(result.most_of_both, stored.size() + taped.size());
  }
  EXPECT_EQ(to_reverse, -1) << "not all were reversed";
  EXPECT_TRUE(stored.empty() && taped.empty()) << "something is left";
  EXPECT_EQ(result.advances + result.tapes, schedule.forwards());
  return result;
}

// The least advances by the recurrence that defines them, not by the closed form.
std::int64_t revolve_by_recurrence(int n, int s) {
  static std::map<std::pair<int, int>, std::int64_t> known;
  if (n == 1) return 0;
  if (s == 1) return std::int64_t{n} * (n - 1) / 2;
  const auto found = known.find({n, s});
  if (found != known.end()) return found->second;
  std::int64_t best = std::int64_t{1} << 60;
  for (int k = 1; k < n; ++k) {
    best = std::min(best, k + revolve_by_recurrence(n - k, s - 1) + revolve_by_recurrence(k, s));
  }
  return known[{n, s}] = best;
}

}  // namespace

TEST(Schedule, OfTwoSnapshotsAndFourStepsIsTheOneThatIsCheckedByHand) {
  using K = Action::Kind;
  EXPECT_TRUE(
      (hs::autograd::actions(hs::autograd::revolve(4, 2)) == std::vector<Action>{{K::store, 0},
                                                                                 {K::advance, 0},
                                                                                 {K::store, 1},
                                                                                 {K::advance, 1},
                                                                                 {K::advance, 2},
                                                                                 {K::tape, 3},
                                                                                 {K::reverse, 3},
                                                                                 {K::load, 1},
                                                                                 {K::store, 1},
                                                                                 {K::advance, 1},
                                                                                 {K::tape, 2},
                                                                                 {K::reverse, 2},
                                                                                 {K::load, 1},
                                                                                 {K::tape, 1},
                                                                                 {K::reverse, 1},
                                                                                 {K::load, 0},
                                                                                 {K::tape, 0},
                                                                                 {K::reverse, 0}}));
}

TEST(Schedule, RevolveTakesThePublishedAdvancesInItsSnapshotsAndOneTape) {
  constexpr std::array<int, 8> snapshots{1, 2, 3, 4, 5, 6, 8, 10};
  const std::map<int, std::array<std::int64_t, 8>> table{
      {4, {6, 4, 3, 3, 3, 3, 3, 3}},
      {6, {15, 8, 7, 6, 5, 5, 5, 5}},
      {8, {28, 14, 11, 10, 9, 8, 7, 7}},
      {10, {45, 20, 15, 14, 13, 12, 10, 9}},
      {12, {66, 28, 21, 18, 17, 16, 14, 12}},
      {16, {120, 45, 33, 27, 25, 24, 22, 20}},
      {24, {276, 88, 61, 51, 44, 40, 38, 36}},
      {32, {496, 140, 93, 75, 68, 60, 54, 52}},
      {48, {1128, 267, 170, 136, 116, 108, 89, 84}},
      {64, {2016, 420, 258, 200, 172, 156, 137, 116}},
      {100, {4950, 845, 490, 374, 316, 280, 245, 222}},
      {1000, {499500, 28820, 12155, 7998, 6284, 5284, 4285, 3636}}};
  for (const auto& [n, row] : table) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(hs::autograd::revolve_advances(n, snapshots[i]), row[i])
          << n << ' ' << snapshots[i];
      if (n > 100 && i == 0) continue;  // half a million parts; the counts are checked above
      const Account counted = run(hs::autograd::revolve(n, snapshots[i]));
      EXPECT_EQ(counted.advances, row[i]) << n << ' ' << snapshots[i];
      EXPECT_EQ(counted.tapes, n);
      EXPECT_EQ(counted.most_tapes, 1U);
      EXPECT_LE(counted.most_stored, static_cast<std::size_t>(snapshots[i]));
    }
  }
}

TEST(Schedule, RevolveIsItsRecurrenceForEveryLengthAndNumberOfSnapshots) {
  for (int n = 1; n < 60; ++n) {
    for (int s = 1; s < 12; ++s) {
      ASSERT_EQ(hs::autograd::revolve_advances(n, s), revolve_by_recurrence(n, s)) << n << ' ' << s;
      const Account counted = run(hs::autograd::revolve(n, s));
      ASSERT_EQ(counted.advances, revolve_by_recurrence(n, s)) << n << ' ' << s;
      ASSERT_LE(counted.most_stored, static_cast<std::size_t>(s)) << n << ' ' << s;
    }
  }
}

TEST(Schedule, RevolvesLongestChainsAreBinomials) {
  const std::array<std::array<std::int64_t, 6>, 6> beta{{{2, 3, 4, 5, 6, 7},
                                                         {3, 6, 10, 15, 21, 28},
                                                         {4, 10, 20, 35, 56, 84},
                                                         {5, 15, 35, 70, 126, 210},
                                                         {6, 21, 56, 126, 252, 462},
                                                         {7, 28, 84, 210, 462, 924}}};
  for (int s = 1; s <= 6; ++s) {
    for (int r = 1; r <= 6; ++r) {
      EXPECT_EQ(hs::autograd::longest_chain(s, r),
                beta[static_cast<std::size_t>(s - 1)][static_cast<std::size_t>(r - 1)]);
    }
  }
  EXPECT_EQ(hs::autograd::longest_chain(30, 30), 118264581564861424)
      << "the product alone needs more than 32 bits";
  EXPECT_EQ(hs::autograd::longest_chain(60, 60), INT64_MAX) << "saturates";
}

TEST(Schedule, MixedTakesThePublishedForwardsInItsUnitsAndTheOneInWork) {
  constexpr std::array<int, 8> units{1, 2, 3, 4, 5, 6, 8, 10};
  const std::map<int, std::array<std::int64_t, 8>> table{
      {8, {35, 18, 14, 12, 11, 10, 8, 8}},
      {12, {77, 35, 26, 21, 20, 18, 16, 14}},
      {24, {299, 105, 73, 59, 51, 45, 41, 39}},
      {48, {1175, 305, 197, 155, 131, 119, 99, 90}},
      {100, {5049, 931, 554, 421, 352, 311, 263, 237}}};
  for (const auto& [n, row] : table) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Schedule schedule = hs::autograd::mixed(n, units[i]);
      EXPECT_EQ(schedule.forwards(), row[i]) << n << ' ' << units[i];
      const Account counted = run(schedule);
      EXPECT_LE(counted.most_of_both, static_cast<std::size_t>(units[i]) + 1);
    }
  }
}

TEST(Schedule, MixedIsTheBestOfAllSchedulesOnShortChains) {
  for (int n = 1; n <= 7; ++n) {
    const std::vector<SearchStep> equal(static_cast<std::size_t>(n), {1, 1, 1});
    for (int s = 1; s <= 6; ++s)
      ASSERT_EQ(hs::autograd::mixed(n, s).forwards(), cheapest_of_all(equal, s + 1))
          << n << ' ' << s;
  }
}

TEST(Schedule, UniformSegmentsDifferByOneStepAndTheLastIsKept) {
  for (int n = 1; n <= 30; ++n) {
    for (int k = 1; k <= n + 2; ++k) {
      const Schedule schedule = hs::autograd::uniform(n, k);
      const Account counted = run(schedule);
      const int segments = std::min(n, k), last = (n + segments - 1) / segments;
      ASSERT_EQ(schedule.forwards(), 2 * n - last) << n << ' ' << k;
      std::vector<int> lengths;
      hs::autograd::for_each_part(schedule.parts, [&](std::size_t, const hs::autograd::Part& part) {
        if (part.inside > 0) lengths.push_back(part.last - part.first);
      });
      lengths.push_back(last);
      ASSERT_EQ(static_cast<int>(lengths.size()), segments);
      ASSERT_LE(*std::max_element(lengths.begin(), lengths.end()) -
                    *std::min_element(lengths.begin(), lengths.end()),
                1);
      ASSERT_EQ(counted.most_tapes, static_cast<std::size_t>(last));
    }
  }
  // Public reports: 9 modules in 5 segments were cut 1, 1, 1, 1, 5; 3 in 5 were an error.
  EXPECT_EQ(hs::autograd::uniform(9, 5).forwards(), 16);
  EXPECT_EQ(hs::autograd::uniform(3, 5), hs::autograd::uniform(3, 3));
}

TEST(Schedule, SquareRootTakesThePublishedForwards) {
  EXPECT_EQ(hs::autograd::square_root(16).forwards(), 28);
  EXPECT_EQ(hs::autograd::square_root(64).forwards(), 120);
  EXPECT_EQ(hs::autograd::square_root(100).forwards(), 190);
  EXPECT_EQ(run(hs::autograd::square_root(100)).most_of_both, 19U);
  EXPECT_EQ(hs::autograd::keep_all(7).forwards(), 7);
  EXPECT_EQ(run(hs::autograd::keep_all(7)).most_tapes, 7U);
}

TEST(Schedule, OneThatDoesNotCoverItsStepsIsRefusedByTheStepWhereItStops) {
  const auto message = [](const Schedule& schedule) {
    try {
      hs::autograd::require_valid(schedule);
    } catch (const hs::OptionError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(hs::autograd::uniform(9, 3)), "");
  Schedule broken = hs::autograd::keep_all(4);
  broken.parts.pop_back();
  EXPECT_THAT(message(broken), testing::HasSubstr("no way on from step 3"));
  broken = hs::autograd::uniform(6, 2);
  broken.parts[2].first = 2;
  EXPECT_THAT(message(broken), testing::HasSubstr("no way on from step 1"));
  broken = hs::autograd::uniform(6, 2);
  broken.parts[0].inside = 100;
  EXPECT_THAT(message(broken), testing::HasSubstr("no way on from step 0"));
  EXPECT_THROW((void)hs::autograd::keep_all(0), hs::OptionError);
  EXPECT_THROW((void)hs::autograd::uniform(3, 0), hs::OptionError);
  EXPECT_THROW((void)hs::autograd::revolve(3, 0), hs::OptionError);
  EXPECT_THROW((void)hs::autograd::mixed(3, 0), hs::OptionError);
}
