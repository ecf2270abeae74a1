// SPDX-License-Identifier: MIT
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/loss_scaler.hpp>

namespace {

using namespace halfstep;
using mixed::AtFloor;
using mixed::Hysteresis;
using mixed::LossScaler;
using mixed::LossScalerOptions;
using optim::ScaleChange;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

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
  std::map<std::string, std::int64_t, std::less<>> counts{};
  bool load = false;
  void tensor(const tensor::StateTensor&) { ADD_FAILURE(); }
  void scalar(std::string_view name, std::int64_t& value) {
    if (load) {
      value = counts.find(name)->second;
    } else {
      counts.emplace(name, value);
    }
  }
  void scalar(std::string_view name, double& value) {
    EXPECT_EQ(name, "loss_scaler.scale");
    (load ? value : scale) = load ? scale : value;
  }
};
Visitor state_of(LossScaler& scaler) {
  Visitor visitor;
  scaler.visit_state(visitor);
  visitor.load = true;
  return visitor;
}

TEST(LossScaler, ShowsItsScaleAndEveryCount) {
  LossScaler scaler({.interval = 3, .hysteresis = 3, .tolerance = 0.5F});
  for (const bool overflow : {true, false, true, true, false, false})
    scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 65536.0F);
  const Visitor state = state_of(scaler);
  EXPECT_EQ(state.scale, 65536.0);
  EXPECT_EQ(state.counts,
            (std::map<std::string, std::int64_t, std::less<>>{{"loss_scaler.good_steps", 2},
                                                              {"loss_scaler.hysteresis", 0},
                                                              {"loss_scaler.overflows_at_scale", 3},
                                                              {"loss_scaler.steps_at_scale", 6}}));
}
// Every preset and every option that counts, cut at every step of a run: what is resumed goes on as
// what ran through, and what is resumed with any one count forgotten does not.
TEST(LossScaler, ContinuesFromItsStateAsIfItHadRunThrough) {
  std::vector<LossScalerOptions> all;
  for (const auto& policy : mixed::scale_policies())
    all.push_back(policy.options);
  all.push_back({.hysteresis = 3, .counted = Hysteresis::window});
  for (const float tolerance : {0.3F, 0.5F, 0.6F})
    all.push_back({.tolerance = tolerance});
  std::map<std::string, int> missed;  // per count: runs that went another way without it
  for (LossScalerOptions options : all) {
    options.interval = 3;
    options.initial = 65536.0F;
    const std::string_view overflows = "110100010110001011100000101";
    for (std::size_t cut = 1; cut < overflows.size(); ++cut) {
      const auto rest = [&](LossScaler& scaler) {
        std::vector<std::pair<ScaleChange, float>> changes;
        for (std::size_t i = cut; i < overflows.size(); ++i) {
          const auto change = scaler.update(overflows[i] == '1');
          changes.emplace_back(change, scaler.scale());
        }
        return changes;
      };
      LossScaler through(options), resumed(options);
      for (std::size_t i = 0; i < cut; ++i)
        through.update(overflows[i] == '1');
      const Visitor state = state_of(through);
      Visitor whole = state;
      resumed.visit_state(whole);
      const auto wanted = rest(through);
      ASSERT_EQ(rest(resumed), wanted) << cut;
      for (const auto& [name, count] : state.counts) {
        Visitor without = state;
        without.counts[name] = 0;
        // Steps are never fewer than the overflows among them.
        if (name == "loss_scaler.steps_at_scale") without.counts[name] = state.counts.at("loss_scaler.overflows_at_scale");
        LossScaler forgetful(options);
        forgetful.visit_state(without);
        missed[name] += rest(forgetful) != wanted ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(missed.size(), 4U);
  for (const auto& [name, runs] : missed)
    EXPECT_GT(runs, 0) << name;
}
TEST(LossScaler, AShorterIntervalTakesEffectAtOnce) {
  LossScaler scaler({.interval = 2});
  Visitor state = state_of(scaler);
  state.scale = 8;
  state.counts["loss_scaler.good_steps"] = 1000;  // saved under an interval of 2000
  scaler.visit_state(state);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 16.0F);
}
TEST(LossScaler, RefusesAStateThatHoldsNoScale) {
  LossScaler scaler;
  Visitor state = state_of(scaler);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    state.scale = bad;
    EXPECT_THROW(scaler.visit_state(state), DataError);
  }
  state.scale = 4;
  for (auto& [name, count] : state.counts) {
    count = -1;
    EXPECT_THROW(scaler.visit_state(state), DataError) << name;
    count = 0;
  }
  EXPECT_EQ(scaler.scale(), 65536.0F);
  LossScaler constant = LossScaler::fixed(128);
  constant.visit_state(state);
  EXPECT_EQ(constant.scale(), 128.0F);
}
TEST(LossScaler, AtItsFloorSaysSoAndStaysWhereItIs) {
  LossScaler scaler({.initial = 2, .interval = 2, .minimum = 1});
  EXPECT_EQ(scaler.update(true), ScaleChange::cut);
  EXPECT_EQ(scaler.update(true), ScaleChange::at_floor);
  EXPECT_EQ(scaler.update(true), ScaleChange::at_floor);
  EXPECT_EQ(scaler.scale(), 1.0F);
  EXPECT_NO_THROW(scaler.require_running());
  EXPECT_EQ(scaler.update(false), ScaleChange::none);
  EXPECT_EQ(scaler.update(false), ScaleChange::grown);
  EXPECT_EQ(scaler.scale(), 2.0F);
}
TEST(LossScaler, AtItsFloorStopsOrFailsWhereThatIsAskedFor) {
  const std::string text =
      "LossScaler: the gradient overflows with the loss scale at its minimum, 1. A smaller scale is "
      "unlikely to help: lower lr, lengthen the warm-up or clip; or lower LossScalerOptions::minimum.";
  for (const AtFloor policy : {AtFloor::stop, AtFloor::error}) {
    LossScaler scaler({.initial = 2, .minimum = 1, .at_floor = policy});
    EXPECT_EQ(scaler.update(true), ScaleChange::cut);
    EXPECT_NO_THROW(scaler.require_running());
    std::string said;
    try {
      EXPECT_EQ(scaler.update(true), ScaleChange::stop);
      scaler.require_running();  // what the next window asks
    } catch (const NumericError& error) {
      said = error.what();
    }
    EXPECT_EQ(said, text);
    EXPECT_EQ(scaler.scale(), 1.0F);
  }
  LossScaler fails({.initial = 1, .minimum = 1, .at_floor = AtFloor::error});
  fails.hold();
  EXPECT_THROW(fails.settle(true), NumericError);
  EXPECT_THROW(fails.update(true), NumericError);  // and not for an open window
}
TEST(LossScaler, StopsEvenWhereTheLastWindowIsDropped) {
  LossScaler scaler({.initial = 1, .minimum = 1, .at_floor = AtFloor::error});
  scaler.hold();
  scaler.hold();
  EXPECT_EQ(scaler.settle(true), ScaleChange::none);
  scaler.release();  // in a destructor: does not throw
  EXPECT_THROW(scaler.require_running(), NumericError);
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
  for (const auto& bad : {LossScalerOptions{.initial = 0}, LossScalerOptions{.growth = 1},
                          LossScalerOptions{.backoff = 1}, LossScalerOptions{.backoff = 0},
                          LossScalerOptions{.interval = 0}, LossScalerOptions{.minimum = 0},
                          LossScalerOptions{.initial = 1, .minimum = 2},
                          LossScalerOptions{.initial = not_a_number},
                          LossScalerOptions{.growth = not_a_number},
                          LossScalerOptions{.growth = std::numeric_limits<float>::infinity()},
                          LossScalerOptions{.backoff = not_a_number},
                          LossScalerOptions{.minimum = not_a_number},
                          LossScalerOptions{.maximum = not_a_number},
                          LossScalerOptions{.maximum = 32768}, LossScalerOptions{.hysteresis = 0},
                          LossScalerOptions{.tolerance = not_a_number},
                          LossScalerOptions{.tolerance = -0.1F}, LossScalerOptions{.tolerance = 5}}) {
    EXPECT_THROW(LossScaler{bad}, OptionError);
  }
  try {
    const LossScaler scaler({.hysteresis = 0, .tolerance = 5});
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()),
              "LossScaler: maximum 3.4028235e+38, hysteresis 0, tolerance 5; wanted initial (65536) "
              "<= maximum, hysteresis >= 1, tolerance a share in [0, 1]. Is the tolerance in per "
              "cent?");
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
            "halfstep: warning: LossScaler: initial 1000, growth 2, backoff 0.5, minimum "
            "1.17549e-38 and maximum 3.40282e+38 are not all powers of two, so scaling and unscaling "
            "round.\n");
  testing::internal::CaptureStderr();
  LossScaler even;
  for (const auto& policy : mixed::scale_policies())
    LossScaler{policy.options};
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  for (const auto& odd_limit : {LossScalerOptions{.minimum = 0.3F}, {.maximum = 1e6F},
                                {.growth = 1.5F}, {.backoff = 0.7F}}) {
    testing::internal::CaptureStderr();
    LossScaler{odd_limit};
    EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  }
}

}  // namespace
