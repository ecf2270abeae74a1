// SPDX-License-Identifier: MIT
// The presets against traces of the libraries whose names they bear: 1 is a step that overflowed, 0 a
// good one, and each number is the scale after it.
#include <string>
#include <string_view>
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

using Scales = std::vector<float>;

/// From 65536 with an interval of 3, as the reference's traces are, unless told otherwise.
LossScalerOptions from(LossScalerOptions options, float initial = 65536.0F, int interval = 3) {
  options.initial = initial;
  options.interval = interval;
  return options;
}
Scales trace(const LossScalerOptions& options, std::string_view overflows) {
  LossScaler scaler(options);
  Scales scales;
  for (const char c : overflows) {
    scaler.update(c == '1');
    scales.push_back(scaler.scale());
  }
  return scales;
}

TEST(ScalePolicy, PyTorch) {
  EXPECT_EQ(trace(from(LossScalerOptions::pytorch()), "1100010000"),
            (Scales{32768, 16384, 16384, 16384, 32768, 16384, 16384, 16384, 32768, 32768}));
  LossScalerOptions options = from(LossScalerOptions::pytorch(), 4, 2);
  options.backoff = 0.25F;
  EXPECT_EQ(trace(options, "001"), (Scales{4, 8, 2}));
  // A growth beyond the largest float keeps the scale, and begins the count anew.
  EXPECT_EQ(trace(from(LossScalerOptions::pytorch(), 0x1p127F, 1), "0010"),
            (Scales{0x1p127F, 0x1p127F, 0x1p126F, 0x1p127F}));
}
TEST(ScalePolicy, Megatron) {
  EXPECT_EQ(trace(from(LossScalerOptions::megatron()), "101010001"),
            (Scales{65536, 65536, 32768, 32768, 16384, 16384, 16384, 32768, 32768}));
  // Stays at 1, and the overflow after the growth is the first of two again.
  EXPECT_EQ(trace(from(LossScalerOptions::megatron(), 4), "111110001100"),
            (Scales{4, 2, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1}));
}
TEST(ScalePolicy, ApexWithHysteresis) {
  EXPECT_EQ(trace(from(LossScalerOptions::apex_hysteresis()), "101010001"),
            (Scales{65536, 65536, 65536, 65536, 65536, 65536, 65536, 131072, 131072}));
  // The second in a row cuts, and so does each one after it.
  EXPECT_EQ(trace(from(LossScalerOptions::apex_hysteresis()), "1111011"),
            (Scales{65536, 32768, 16384, 8192, 8192, 8192, 4096}));
}
TEST(ScalePolicy, Apex) {
  EXPECT_EQ(trace(from(LossScalerOptions::apex()), "1100010000"),
            (Scales{32768, 16384, 16384, 16384, 32768, 16384, 16384, 16384, 32768, 32768}));
  EXPECT_EQ(trace(from(LossScalerOptions::apex(), 0x1p23F, 1), "0001"),
            (Scales{0x1p24F, 0x1p24F, 0x1p24F, 0x1p23F}));
  // The limit holds where the growth leaps over it, beyond the largest float even.
  LossScalerOptions leaps = from(LossScalerOptions::apex(), 0x1p20F, 1);
  leaps.growth = 0x1p120F;
  EXPECT_EQ(trace(leaps, "0"), (Scales{0x1p24F}));
}
TEST(ScalePolicy, DeepSpeed) {
  EXPECT_EQ(trace(from(LossScalerOptions::deepspeed()), "101010001"),
            (Scales{65536, 65536, 32768, 32768, 16384, 16384, 16384, 32768, 32768}));
  EXPECT_EQ(trace(from(LossScalerOptions::deepspeed_consecutive()), "101010001"),
            (Scales{65536, 65536, 65536, 65536, 65536, 65536, 65536, 131072, 131072}));
  // Its optimizer's own unit tests: no hysteresis, and the scale stays at the minimum.
  LossScalerOptions plain = from(LossScalerOptions::deepspeed(), 0x1p8F, 2);
  plain.hysteresis = 1;
  plain.at_floor = AtFloor::stay;
  EXPECT_EQ(trace(plain, "000000"), (Scales{256, 512, 512, 1024, 1024, 2048}));
  plain.initial = 16;
  EXPECT_EQ(trace(plain, "11111111"), (Scales{8, 4, 2, 1, 1, 1, 1, 1}));
  plain.minimum = 0.25F;
  EXPECT_EQ(trace(plain, "11111111"), (Scales{8, 4, 2, 1, 0.5F, 0.25F, 0.25F, 0.25F}));
}
TEST(ScalePolicy, DeepSpeedEndsTheRunAtItsMinimum) {
  LossScaler scaler(from(LossScalerOptions::deepspeed(), 2));
  EXPECT_EQ(scaler.update(true), ScaleChange::spared);
  EXPECT_EQ(scaler.update(true), ScaleChange::cut);
  EXPECT_EQ(scaler.scale(), 1.0F);
  EXPECT_THROW(scaler.update(true), NumericError);
  EXPECT_EQ(scaler.scale(), 1.0F);
}
// By hand from fairseq's rule. Interval 3, tolerance 0: every overflow halves, three good steps in a
// row double, an overflow begins their count anew.
TEST(ScalePolicy, Fairseq) {
  EXPECT_EQ(LossScalerOptions::fairseq().initial, 32768.0F);
  EXPECT_EQ(trace(from(LossScalerOptions::fairseq(), 32768), "1000010010001"),
            (Scales{16384, 16384, 16384, 32768, 32768, 16384, 16384, 16384, 8192, 8192, 8192, 16384,
                    8192}));
}
// By hand. Tolerance 1/2: step i since the scale last changed, o overflows since a cut.
//   1  i 1 o 1: 1/1, cut        0 0  i 2        1  i 3 o 1: 1/3, spared     1  i 4 o 2: 2/4, cut
//   0 0 0  grown, i from 0 but o not (it is 0)  0 0  i 2   1  i 3 o 1: 1/3, spared
//   0 0 0  grown, i from 0, o 1 still           0 0  i 2   1  i 3 o 2: 2/3, cut
TEST(ScalePolicy, FairseqWithTolerance) {
  LossScalerOptions options = from(LossScalerOptions::fairseq());
  options.tolerance = 0.5F;
  EXPECT_EQ(trace(options, "10011"), (Scales{32768, 32768, 32768, 32768, 16384}));
  EXPECT_EQ(trace(options, "10011000001000001"),
            (Scales{32768, 32768, 32768, 32768, 16384,          // as above
                    16384, 16384, 32768, 32768, 32768, 32768,   // 000 grows, 00, 1 is spared
                    32768, 32768, 65536, 65536, 65536, 32768}));  // 000 grows, 00, 1 cuts
}
TEST(ScalePolicy, FairseqEndsTheRunBeforeItReachesItsLimit) {
  LossScaler scaler(LossScalerOptions::fairseq());
  for (int i = 15; i > -13; --i)
    EXPECT_EQ(scaler.update(true), ScaleChange::cut);
  EXPECT_EQ(scaler.scale(), 0x1p-13F);
  EXPECT_GT(scaler.scale(), 1e-4F);
  EXPECT_LE(scaler.scale() / 2, 1e-4F);
  EXPECT_THROW(scaler.update(true), NumericError);
  EXPECT_EQ(scaler.scale(), 0x1p-13F);
}
// By hand from jmp's rule: halved by every overflow but not below 1, doubled by every third good step.
TEST(ScalePolicy, Jmp) {
  EXPECT_EQ(LossScalerOptions::jmp().initial, 32768.0F);
  EXPECT_EQ(trace(from(LossScalerOptions::jmp(), 4), "00011111000100"),
            (Scales{4, 4, 8, 4, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1}));
  EXPECT_EQ(trace(from(LossScalerOptions::jmp(), 0x1p127F, 1), "00"), (Scales{0x1p127F, 0x1p127F}));
}

// The three meanings of a hysteresis of 2, on one run of overflows that tells each from the others.
TEST(ScalePolicy, HysteresisHasThreeMeanings) {
  LossScalerOptions options{.initial = 65536, .interval = 3, .hysteresis = 2};
  const std::string_view overflows = "1011101110001";
  options.counted = Hysteresis::consecutive;
  EXPECT_EQ(trace(options, overflows), (Scales{65536, 65536, 65536, 32768, 16384, 16384, 16384, 8192,
                                               4096, 4096, 4096, 8192, 8192}));
  options.counted = Hysteresis::until_growth;
  EXPECT_EQ(trace(options, overflows), (Scales{65536, 65536, 32768, 16384, 8192, 8192, 4096, 2048,
                                               1024, 1024, 1024, 2048, 2048}));
  options.counted = Hysteresis::window;
  EXPECT_EQ(trace(options, overflows), (Scales{65536, 65536, 32768, 32768, 16384, 16384, 16384, 8192,
                                               8192, 8192, 8192, 16384, 16384}));
}
TEST(ScalePolicy, IsFoundByItsName) {
  EXPECT_EQ(LossScalerOptions::named("pytorch"), LossScalerOptions{});
  EXPECT_EQ(LossScalerOptions::named("megatron"), LossScalerOptions::megatron());
  EXPECT_EQ(LossScalerOptions::named("deepspeed-consecutive"),
            LossScalerOptions::deepspeed_consecutive());
  for (const auto& a : mixed::scale_policies()) {
    EXPECT_EQ(LossScalerOptions::named(a.name), a.options);
    for (const auto& b : mixed::scale_policies())
      EXPECT_EQ(a.name == b.name, a.options == b.options) << a.name << ' ' << b.name;
  }
  try {
    static_cast<void>(LossScalerOptions::named("torch"));
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()),
              "LossScalerOptions::named: there is no 'torch'; wanted one of pytorch, apex, "
              "apex-hysteresis, megatron, deepspeed, deepspeed-consecutive, fairseq, jmp.");
  }
}

}  // namespace
