// SPDX-License-Identifier: MIT
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/optim/warmup_cosine.hpp>

namespace {

using namespace halfstep;
using optim::WarmupCosine;

TEST(WarmupCosine, HasNanoGptsValues) {
  const WarmupCosine lr{.peak = 1e-3F, .floor = 1e-4F, .warmup = 100, .steps = 5000};
  const auto near = [](float value, double wanted) {
    EXPECT_NEAR(value, wanted, wanted * 1.2e-7) << wanted;
  };
  near(lr(0), 9.900990099e-6);
  near(lr(50), 5.0495049505e-4);
  near(lr(99), 9.900990099e-4);
  near(lr(100), 1e-3);
  near(lr(1000), 9.271396472e-4);
  near(lr(2550), 5.5e-4);
  near(lr(4999), 1.000000924890e-4);
  EXPECT_EQ(lr(5000), 1e-4F);
  EXPECT_EQ(lr(5001), 1e-4F);
}
TEST(WarmupCosine, RisesStrictlyToThePeakAndFallsToTheFloor) {
  const WarmupCosine lr{.peak = 1.0F, .floor = 0.1F, .warmup = 10, .steps = 50};
  for (int s = 0; s < 10; ++s)
    EXPECT_LT(lr(s), lr(s + 1)) << s;
  EXPECT_EQ(lr(10), 1.0F);
  for (int s = 10; s < 50; ++s)
    EXPECT_GT(lr(s), lr(s + 1)) << s;
}
TEST(WarmupCosine, WithoutWarmupStartsAtThePeak) {
  EXPECT_EQ((WarmupCosine{.peak = 1.0F, .floor = 0.0F, .warmup = 0, .steps = 10})(0), 1.0F);
}
TEST(WarmupCosine, IsDefinedWhereTheFormulaDividesByZero) {
  const WarmupCosine equal{.peak = 1.0F, .floor = 0.25F, .warmup = 3, .steps = 3};
  EXPECT_EQ(equal(0), 0.25F);
  EXPECT_EQ(equal(2), 0.75F);
  EXPECT_EQ(equal(3), 0.25F);
  const WarmupCosine longer{.peak = 1.0F, .floor = 0.25F, .warmup = 7, .steps = 3};
  EXPECT_EQ(longer(3), 0.5F);  // the warm-up is finished
  EXPECT_EQ(longer(7), 0.25F);
  const WarmupCosine one{.peak = 1.0F, .floor = 0.25F, .warmup = 0, .steps = 1};
  EXPECT_EQ(one(0), 1.0F);
  EXPECT_EQ(one(1), 0.25F);
  EXPECT_EQ((WarmupCosine{.peak = 1.0F, .floor = 0.25F, .warmup = 0, .steps = 0})(0), 0.25F);
}
TEST(WarmupCosine, HasNoState) {
  const WarmupCosine lr;
  const float late = lr(1234);
  static_cast<void>(lr(7));
  EXPECT_EQ(lr(1234), late);
  EXPECT_NE(lr(1235), late);
}
TEST(WarmupCosine, DoesNotSeeTheCallersRoundingMode) {
  const WarmupCosine lr{.peak = 3e-4F, .floor = 1e-5F, .warmup = 13, .steps = 997};
  std::vector<float> wanted;
  for (int s = 0; s < 1000; ++s)
    wanted.push_back(lr(s));
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  std::vector<float> upward;
  for (int s = 0; s < 1000; ++s)
    upward.push_back(lr(s));
  const int mode = std::fegetround();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(upward, wanted);
  EXPECT_EQ(mode, FE_UPWARD);
}
TEST(WarmupCosine, RefusesNegativeCountsAndRatesThatAreNone) {
  EXPECT_THROW(static_cast<void>((WarmupCosine{.warmup = -1})(0)), OptionError);
  EXPECT_THROW(static_cast<void>((WarmupCosine{.steps = -1})(0)), OptionError);
  EXPECT_THROW(
      static_cast<void>((WarmupCosine{.peak = std::numeric_limits<float>::quiet_NaN()})(0)),
      OptionError);
  EXPECT_THROW(static_cast<void>((WarmupCosine{.floor = -1e-4F})(0)), OptionError);
  try {
    static_cast<void>(WarmupCosine{.peak = 1, .floor = 0, .warmup = 2, .steps = 3}(-1));
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()),
              "WarmupCosine: step -1, warmup 2, steps 3, peak 1, floor 0; wanted counts of at "
              "least 0 and finite rates "
              "of at least 0. Is one of them an unset option?");
  }
}
TEST(ConstantRate, IsTheSameAtEveryStep) {
  EXPECT_EQ(optim::Constant{0.5F}(0), 0.5F);
  EXPECT_EQ(optim::Constant{0.5F}(1'000'000), 0.5F);
}

}  // namespace
