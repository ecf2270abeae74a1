// SPDX-License-Identifier: MIT
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/loss_scaler.hpp>

namespace {

using namespace halfstep;
using mixed::LossScaler;

std::vector<float> trace(LossScaler scaler, std::string_view overflows) {
  std::vector<float> scales;
  for (const char c : overflows) {
    scaler.update(c == '1');
    scales.push_back(scaler.scale());
  }
  return scales;
}

TEST(LossScaler, HasPyTorchsDefaults) {
  const mixed::LossScalerOptions options;
  EXPECT_EQ(options.initial, 65536.0F);
  EXPECT_EQ(options.growth, 2.0F);
  EXPECT_EQ(options.backoff, 0.5F);
  EXPECT_EQ(options.interval, 2000);
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i)
    scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536.0F);
  EXPECT_EQ(scaler.good_steps(), 1999);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0F);
  EXPECT_EQ(scaler.good_steps(), 0);
}
TEST(LossScaler, ReproducesPyTorchsTrace) {
  EXPECT_EQ(
      trace(LossScaler({.interval = 3}), "1100010000"),
      (std::vector<float>{32768, 16384, 16384, 16384, 32768, 16384, 16384, 16384, 32768, 32768}));
}
TEST(LossScaler, ReproducesPyTorchsUnitNumbers) {
  LossScaler scaler({.initial = 4, .growth = 2, .backoff = 0.25F, .interval = 2});
  scaler.update(false);
  EXPECT_EQ(scaler.good_steps(), 1);
  scaler.update(false);
  EXPECT_EQ(scaler.good_steps(), 0);
  EXPECT_EQ(scaler.scale(), 8.0F);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2.0F);
  EXPECT_EQ(scaler.good_steps(), 0);
}
TEST(LossScaler, KeepsTheScaleWhereGrowthWouldExceedFloat) {
  LossScaler scaler({.initial = 0x1p127F, .interval = 1});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p127F);
  EXPECT_EQ(scaler.good_steps(), 0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 0x1p126F);
}
TEST(LossScaler, NeverFallsToZero) {
  LossScaler scaler;
  for (int i = 0; i < 1000; ++i)
    scaler.update(true);
  EXPECT_EQ(scaler.scale(), 0x1p-126F);
  EXPECT_EQ(trace(LossScaler({.initial = 16, .minimum = 1}), "11111111"),
            (std::vector<float>{8, 4, 2, 1, 1, 1, 1, 1}));
  EXPECT_EQ(trace(LossScaler({.initial = 1, .minimum = 0.25F}), "1111"),
            (std::vector<float>{0.5F, 0.25F, 0.25F, 0.25F}));
}
TEST(LossScaler, DoublesEveryTwoGoodStepsWithAnIntervalOfTwo) {
  EXPECT_EQ(trace(LossScaler({.initial = 256, .interval = 2}), "000000"),
            (std::vector<float>{256, 512, 512, 1024, 1024, 2048}));
}
TEST(LossScaler, FixedNeverChanges) {
  EXPECT_EQ(trace(LossScaler::fixed(128), "0110"), (std::vector<float>{128, 128, 128, 128}));
  EXPECT_FALSE(LossScaler::fixed(128).dynamic());
  EXPECT_TRUE(LossScaler().dynamic());
  EXPECT_THROW(static_cast<void>(LossScaler::fixed(0)), OptionError);
  EXPECT_THROW(static_cast<void>(LossScaler::fixed(-1)), OptionError);
  EXPECT_THROW(static_cast<void>(LossScaler::fixed(std::numeric_limits<float>::infinity())),
               OptionError);
  try {
    static_cast<void>(LossScaler::fixed(std::numeric_limits<float>::quiet_NaN()));
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("LossScaler::fixed: the scale is "))
        << error.what();
  }
}

// Stores what it is given, or what it saw.
struct Visitor {
  double scale = 0;
  std::int64_t good_steps = 0;
  bool load = false;
  int calls = 0;
  void tensor(const tensor::StateTensor&) { ADD_FAILURE(); }
  void scalar(std::string_view name, std::int64_t& value) {
    EXPECT_EQ(name, "loss_scaler.good_steps");
    ++calls;
    (load ? value : good_steps) = load ? good_steps : value;
  }
  void scalar(std::string_view name, double& value) {
    EXPECT_EQ(name, "loss_scaler.scale");
    ++calls;
    (load ? value : scale) = load ? scale : value;
  }
};

TEST(LossScaler, ContinuesFromItsStateAsIfItHadRunThrough) {
  LossScaler through({.interval = 3});
  for (const bool overflow : {true, false, false})
    through.update(overflow);
  Visitor state;
  through.visit_state(state);
  EXPECT_EQ(state.calls, 2);
  EXPECT_EQ(state.scale, 32768.0);
  EXPECT_EQ(state.good_steps, 2);
  LossScaler resumed({.interval = 3}), cold({.interval = 3});
  state.load = true;
  resumed.visit_state(state);
  through.update(false);
  resumed.update(false);
  cold.update(false);
  EXPECT_EQ(through.scale(), 65536.0F);
  EXPECT_EQ(resumed.scale(), through.scale());
  EXPECT_EQ(resumed.good_steps(), through.good_steps());
  EXPECT_NE(cold.good_steps(), through.good_steps());
}
TEST(LossScaler, AShorterIntervalTakesEffectAtOnce) {
  LossScaler scaler({.interval = 2});
  Visitor state;
  state.load = true;
  state.scale = 8;
  state.good_steps = 1000;  // saved under an interval of 2000
  scaler.visit_state(state);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 16.0F);
}
TEST(LossScaler, RefusesAStateThatHoldsNoScale) {
  LossScaler scaler;
  Visitor state;
  state.load = true;
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    state.scale = bad;
    EXPECT_THROW(scaler.visit_state(state), DataError);
  }
  EXPECT_EQ(scaler.scale(), 65536.0F);
  state.scale = 4;
  LossScaler constant = LossScaler::fixed(128);
  constant.visit_state(state);
  EXPECT_EQ(constant.scale(), 128.0F);
}
TEST(LossScaler, StandsStillWhileAWindowIsOpen) {
  LossScaler scaler({.interval = 1});
  scaler.hold();
  try {
    scaler.update(true);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_EQ(std::string(error.what()),
              "LossScaler::update: 1 window(s) are open, which were seeded with the scale 65536. "
              "The step that ends a "
              "window updates its scaler; nobody else need.");
  }
  scaler.settle(false);
  EXPECT_EQ(scaler.scale(), 131072.0F);
}
TEST(LossScaler, SharedByTwoWindowsIsUpdatedOnceAndByAnyOverflow) {
  LossScaler scaler({.interval = 1});
  scaler.hold();
  scaler.hold();
  scaler.settle(true);
  EXPECT_EQ(scaler.scale(), 65536.0F);
  scaler.settle(false);
  EXPECT_EQ(scaler.scale(), 32768.0F);
  scaler.hold();
  scaler.release();  // dropped: no update
  EXPECT_EQ(scaler.scale(), 32768.0F);
  EXPECT_EQ(scaler.good_steps(), 0);
}
TEST(LossScaler, RefusesOptionsOutOfRange) {
  using mixed::LossScalerOptions;
  for (const auto& bad : {LossScalerOptions{.initial = 0}, LossScalerOptions{.growth = 1},
                          LossScalerOptions{.backoff = 1}, LossScalerOptions{.backoff = 0},
                          LossScalerOptions{.interval = 0}, LossScalerOptions{.minimum = 0},
                          LossScalerOptions{.initial = 1, .minimum = 2},
                          LossScalerOptions{.initial = std::numeric_limits<float>::quiet_NaN()}}) {
    EXPECT_THROW(LossScaler{bad}, OptionError);
  }
  try {
    const LossScaler scaler({.growth = 0.5F, .backoff = 2, .minimum = 1});
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()),
              "LossScaler: initial 65536, growth 0.5, backoff 2, interval 2000, minimum 1; wanted "
              "initial > 0, growth > "
              "1, backoff between 0 and 1, interval >= 1, 0 < minimum <= initial. Were growth and "
              "backoff exchanged?");
  }
}
TEST(LossScaler, WarnsOnceOfFactorsThatAreNoPowersOfTwo) {
  testing::internal::CaptureStderr();
  LossScaler odd({.initial = 1000});
  odd.update(true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "halfstep: warning: LossScaler: initial 1000, growth 2 and backoff 0.5 are not all "
            "powers of two, so scaling "
            "and unscaling round.\n");
  testing::internal::CaptureStderr();
  LossScaler even;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
