// SPDX-License-Identifier: MIT
#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/train/early_stopping.hpp>

namespace {

using halfstep::OptionError;
using halfstep::train::EarlyStopping;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(EarlyStoppingRule, ANanIsNeverTheBestAndNeverResetsPatience) {
  EarlyStopping stopping({.patience = 3});
  EXPECT_FALSE(stopping.observe(nan, 1));
  EXPECT_FALSE(stopping.observe(infinity, 2));
  EXPECT_EQ(stopping.waited(), 2);
  EXPECT_EQ(stopping.best(), infinity);
  EXPECT_EQ(stopping.best_iteration(), -1);
  EXPECT_FALSE(stopping.stop());
  // And does not stand in the way of a number that comes after it.
  EXPECT_TRUE(stopping.observe(5.0, 3));
  EXPECT_FALSE(stopping.observe(nan, 4));
  EXPECT_FALSE(stopping.observe(5.0, 5)) << "an equal one is no improvement";
  EXPECT_FALSE(stopping.stop());
  EXPECT_TRUE(stopping.observe(4.0, 6));
  EXPECT_EQ(stopping.waited(), 0);
  for (int i = 7; i < 10; ++i) {
    EXPECT_FALSE(stopping.stop());
    EXPECT_FALSE(stopping.observe(nan, i));
  }
  EXPECT_TRUE(stopping.stop());
  EXPECT_EQ(stopping.best(), 4.0);
  EXPECT_EQ(stopping.best_iteration(), 6);
}

TEST(EarlyStoppingRule, WithoutPatienceItOnlyKeepsTheBest) {
  EarlyStopping stopping;
  for (int i = 0; i < 100; ++i)
    stopping.observe(1.0 + i, i);
  EXPECT_FALSE(stopping.stop());
  EXPECT_EQ(stopping.best_iteration(), 0);
}

TEST(EarlyStoppingRule, AnImprovementIsMoreThanMinDelta) {
  EarlyStopping stopping({.patience = 1, .min_delta = 0.5});
  EXPECT_TRUE(stopping.observe(2.0, 0));
  EXPECT_FALSE(stopping.observe(1.5, 1));
  EXPECT_TRUE(stopping.observe(1.25, 2));
}

struct Copy {  // of the state, as a checkpoint takes and gives it
  double best = 0.0;
  std::int64_t iteration = 0, waited = 0;
  bool give = false;
  void tensor(const halfstep::tensor::StateTensor&) {}
  void scalar(std::string_view, double& x) { give ? x = best : best = x; }
  void scalar(std::string_view name, std::int64_t& x) {
    std::int64_t& mine = name.ends_with("waited") ? waited : iteration;
    give ? x = mine : mine = x;
  }
};

TEST(EarlyStoppingRule, PatienceGoesOnWhereItWasSaved) {
  const double losses[] = {3.0, 2.0, 2.5, nan, 2.4, 2.3};
  for (int cut = 0; cut < 6; ++cut) {
    EarlyStopping whole({.patience = 4}), first({.patience = 4}), second({.patience = 4});
    for (const double loss : losses)
      whole.observe(loss, 0);
    for (int i = 0; i < cut; ++i)
      first.observe(losses[i], 0);
    Copy copy;
    first.visit_state(copy);
    copy.give = true;
    second.visit_state(copy);
    for (int i = cut; i < 6; ++i)
      second.observe(losses[i], 0);
    EXPECT_TRUE(second.stop());
    EXPECT_EQ(second.waited(), whole.waited()) << cut;
    EXPECT_EQ(second.best(), whole.best());
    // A cold start forgets.
    EarlyStopping cold({.patience = 4});
    for (int i = cut; i < 6; ++i)
      cold.observe(losses[i], 0);
    EXPECT_EQ(cold.stop(), cut < 2);
  }
}

TEST(EarlyStoppingRule, RefusesOptionsOutOfRange) {
  EXPECT_THROW(EarlyStopping({.patience = -1}), OptionError);
  EXPECT_THROW(EarlyStopping({.patience = 1, .min_delta = -1.0}), OptionError);
  EXPECT_THROW(EarlyStopping({.patience = 1, .min_delta = nan}), OptionError);
}

}  // namespace
