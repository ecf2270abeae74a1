// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/chain_plans.hpp>

#include "all_schedules.hpp"
#include "chain_search.hpp"

namespace hs = halfstep;
using hs::autograd::Chain;
using hs::autograd::ChainPlans;
using hs::autograd::ChainStep;
using hs::autograd::Schedule;

namespace {

// The model of the published recurrences: no transient memory, gradients free, a tape holds the
// input of its step. Sizes above x_0 then differ from theirs by x_0 alone.
Chain chain_of(const std::vector<SearchStep>& steps) {
  Chain chain;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t output = i + 1 < steps.size() ? steps[i + 1].input : 0;
    ChainStep step;
    step.cost = static_cast<double>(steps[i].cost);
    step.output = output;
    step.tape = steps[i].tape - steps[i].input + output;
    step.backward = step.again = steps[i].tape - steps[i].input;
    chain.steps.push_back(step);
  }
  return chain;
}

double best_of_plans(const std::vector<SearchStep>& steps, std::int64_t memory) {
  const ChainPlans plans(chain_of(steps));
  const std::int64_t bytes = memory - steps.front().input;
  return bytes < plans.smallest() ? -1.0 : plans.best(bytes).cost;
}

Chain random_chain(std::mt19937& random, int n) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  Chain chain;
  for (int i = 0; i < n; ++i) {
    ChainStep step;
    step.cost = draw(1, 6);
    step.tail = draw(0, static_cast<int>(step.cost));
    step.output = draw(1, 4);
    step.gradient = step.output;
    step.tape = step.output + draw(0, 8);
    step.forward = step.tape + draw(0, 3);
    step.advance = step.output + draw(0, 4);
    step.backward = step.tape + step.output + draw(0, 6);
    step.again = step.backward - draw(0, 3);
    chain.steps.push_back(step);
  }
  chain.held = draw(0, 3);
  chain.steps.back().backward += chain.held;
  return chain;
}

}  // namespace

TEST(ChainPlans, MatchTheSearchOverAllSchedulesOnEqualSteps) {
  int cases = 0;
  for (int n = 1; n <= 6; ++n) {
    for (const int tape : {1, 2, 4}) {
      const std::vector<SearchStep> steps(static_cast<std::size_t>(n), {1, 1, tape});
      for (std::int64_t memory = 0; memory <= n * tape + 1; ++memory, ++cases) {
        ASSERT_EQ(best_of_plans(steps, memory), static_cast<double>(cheapest_of_all(steps, memory)))
            << n << " steps of tape " << tape << " in " << memory;
      }
    }
  }
  EXPECT_EQ(cases, 183);
}

TEST(ChainPlans, AreTheBestOfAllPersistentSchedulesOfUnequalSteps) {
  // The two chains for which dropping a stored input and making it again would save something.
  const std::vector<SearchStep> first{{2, 2, 6}, {3, 1, 2}, {4, 4, 4}, {1, 1, 3}};
  EXPECT_EQ(best_of_plans(first, 6), 26.0);
  EXPECT_EQ(cheapest_of_all(first, 6), 24);
  const std::vector<SearchStep> second{{6, 1, 1}, {2, 2, 5}, {6, 3, 9}, {3, 3, 8}, {5, 1, 4}};
  EXPECT_EQ(best_of_plans(second, 11), 47.0);
  EXPECT_EQ(cheapest_of_all(second, 11), 41);

  std::mt19937 random(5);
  int schedules = 0;
  for (int n = 1; n <= 6; ++n) {
    const auto all = all_schedules(0, n);
    for (int trial = 0; trial < 40; ++trial) {
      const Chain chain = random_chain(random, n);
      const ChainPlans plans(chain);
      std::vector<hs::autograd::ChainPoint> measured;
      for (const auto& parts : all)
        measured.push_back(hs::autograd::measure(Schedule{n, parts}, chain));
      schedules += static_cast<int>(all.size());
      std::int64_t smallest = measured.front().bytes;
      for (const auto& point : measured)
        smallest = std::min(smallest, point.bytes);
      ASSERT_EQ(plans.smallest(), smallest);
      for (std::int64_t bytes = smallest; bytes < smallest + 60; ++bytes) {
        double best = 1e9;
        for (const auto& point : measured)
          best = point.bytes <= bytes ? std::min(best, point.cost) : best;
        ASSERT_EQ(plans.best(bytes).cost, best) << n << " steps in " << bytes;
      }
    }
  }
  EXPECT_EQ(schedules, 40 * (1 + 2 + 6 + 22 + 90 + 394)) << "the number of such trees";
}

TEST(ChainPlans, ThePromisedPeakAndCostAreThoseOfTheSchedule) {
  std::mt19937 random(6);
  for (const int n : {1, 2, 7, 12}) {
    for (int trial = 0; trial < 10; ++trial) {
      const Chain chain = random_chain(random, n);
      const ChainPlans plans(chain);
      double before = 1e9;
      for (const auto& point : plans.frontier()) {
        const Schedule schedule = plans.schedule(point.bytes);
        hs::autograd::require_valid(schedule);
        const auto measured = hs::autograd::measure(schedule, chain);
        ASSERT_EQ(measured.bytes, point.bytes);
        ASSERT_EQ(measured.cost, point.cost);
        ASSERT_LT(point.cost, before) << "more bytes never cost more";
        before = point.cost;
      }
    }
  }
}

TEST(ChainPlans, TheFrontierOfTransformerBlocksIsThePublishedOne) {
  const auto forwards = [](int n, int tape, std::int64_t memory) {
    return best_of_plans(std::vector<SearchStep>(static_cast<std::size_t>(n), {1, 1, tape}),
                         memory);
  };
  const std::vector<std::pair<int, int>> of24{{18, 300}, {19, 112}, {20, 85},  {21, 75},
                                              {22, 68},  {23, 64},  {358, 27}, {375, 26},
                                              {392, 25}, {408, 24}};
  for (const auto& [memory, count] : of24)
    EXPECT_EQ(forwards(24, 17, memory), count) << memory;
  const std::vector<std::pair<int, int>> of12{{18, 78}, {19, 40},  {20, 33},  {21, 30},
                                              {22, 29}, {23, 28},  {39, 22},  {54, 21},
                                              {70, 20}, {171, 14}, {188, 13}, {204, 12}};
  for (const auto& [memory, count] : of12)
    EXPECT_EQ(forwards(12, 17, memory), count) << memory;
  EXPECT_EQ(forwards(24, 17, 17), -1.0) << "18 is the smallest";
  EXPECT_EQ(forwards(24, 4, 5), 300.0);
  EXPECT_EQ(forwards(24, 4, 4), -1.0);
  EXPECT_EQ(forwards(24, 27, 28), 300.0);
}

TEST(ChainPlans, EqualStepsInUnitsAreTheMixedOptimum) {
  for (const int n : {8, 12, 24}) {
    const std::vector<SearchStep> steps(static_cast<std::size_t>(n), {1, 1, 1});
    for (const int s : {1, 2, 3, 5, 8}) {
      EXPECT_EQ(best_of_plans(steps, s + 1),
                static_cast<double>(hs::autograd::mixed(n, s).forwards()));
    }
  }
}

TEST(ChainPlans, NeverNeedMoreThanUniformSegmentsAtTheSameBudget) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    const Chain chain = random_chain(random, 12);
    const ChainPlans plans(chain);
    for (int k = 1; k <= 12; ++k) {
      const auto uniform = hs::autograd::measure(hs::autograd::uniform(12, k), chain);
      EXPECT_LE(plans.best(uniform.bytes).cost, uniform.cost) << k;
    }
  }
}

TEST(ChainPlans, ABudgetTooSmallIsRefusedWithTheSmallest) {
  const ChainPlans plans(chain_of({{1, 1, 4}, {1, 1, 4}, {1, 1, 4}}));
  try {
    (void)plans.schedule(plans.smallest() - 1);
    FAIL();
  } catch (const hs::OptionError& error) {
    EXPECT_THAT(
        error.what(),
        testing::HasSubstr("no schedule of 3 steps fits into 3 bytes; the smallest budget is 4"));
  }
  EXPECT_THROW(ChainPlans({}), hs::OptionError);
}
