// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/data/text.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/weight_average.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/fit.hpp>

namespace hs = halfstep;
using hs::mixed::WeightAverage;

namespace {

/// Weights without an optimizer: as visit_weights shows them.
struct Weights {
  hs::Parameters<float>& parameters;
  void visit_weights(auto& visitor) { parameters.visit_state(visitor); }
};

struct Store {
  explicit Store(int threads = 1) : runtime({.threads = threads, .seed = 1}) {
    hs::Scope<float> scope = parameters;
    a = scope.add("a", {3}, hs::Role::weight, hs::Init::constant(0.0F));
    b = scope.add("b", {2, 2}, hs::Role::weight, hs::Init::constant(0.0F));
    parameters.lay_out();
  }
  hs::Runtime runtime;
  hs::Parameters<float> parameters{runtime};
  hs::Parameter<float> a, b;
};

TEST(Average, FollowsItsFormulaFromTheFirstUpdateOn) {
  Store s;
  Weights weights{s.parameters};
  WeightAverage average(s.parameters, {.decay = 0.75, .gamma = 1.0});
  // By hand: t = 0: d = 0; t = 1: 1 - 2^(-2/3) = 0.370039; t = 2: 0.519250; t = 3: 0.603150;
  // t = 7: 1 - 8^(-2/3) = 0.75, and there it stays.
  const double decays[] = {0.0000000000, 0.3700394751, 0.5192501432, 0.6031497370, 0.6580048107,
                           0.6971465679, 0.7267241167, 0.75,         0.75};
  double expected = 0.0;
  int t = 0;
  for (const double d : decays) {
    const auto w = static_cast<float>(1 + t * t);
    s.parameters.write(s.a.id)[1] = w;
    average.update(weights);
    expected = d * expected + (1.0 - d) * static_cast<double>(w);
    EXPECT_NEAR(average.values(s.a.id)[1], expected, 1e-5 * expected) << t;
    EXPECT_EQ(average.values(s.a.id)[0], 0.0F);
    ++t;
  }
  EXPECT_EQ(average.updates(), 9);
  EXPECT_EQ(average.values(s.b.id)[3], 0.0F);
}

TEST(Average, WithoutAWarmUpBeginsAtTheWeights) {
  Store s;
  Weights weights{s.parameters};
  WeightAverage average(s.parameters, {.decay = 0.5, .gamma = 0.0});
  for (const float w : {8.0F, 16.0F, 0.0F}) {
    s.parameters.write(s.b.id)[2] = w;
    average.update(weights);
  }
  EXPECT_EQ(average.values(s.b.id)[2], 6.0F);
}

// From 1 towards 2 by a ten-thousandth of the way an update: less than half an ulp of bf16.
TEST(Average, OfADecayThatBf16CannotMoveByMoves) {
  Store s;
  Weights weights{s.parameters};
  WeightAverage average(s.parameters, {.decay = 0.9999, .gamma = 0.0});
  s.parameters.write(s.a.id)[0] = 1.0F;
  average.update(weights);
  s.parameters.write(s.a.id)[0] = 2.0F;
  hs::bf16 half{1.0F};
  for (int i = 0; i < 1000; ++i) {
    average.update(weights);
    half += hs::bf16{1e-4F} * (hs::bf16{2.0F} - half);
  }
  EXPECT_NEAR(average.values(s.a.id)[0], 2.0 - std::pow(0.9999, 1000), 1e-5);
  EXPECT_EQ(half, hs::bf16{1.0F});
}

TEST(Average, IsCopiedToAnotherStoreAndNeverToTheWeights) {
  Store s;
  Weights weights{s.parameters};
  s.parameters.write(s.a.id)[2] = 1.0F + 0x1p-20F;
  WeightAverage average(s.parameters);
  average.update(weights);
  s.parameters.write(s.a.id)[2] = 5.0F;
  auto twin = s.parameters.as<hs::bf16>();
  average.copy_to(twin);
  EXPECT_EQ(static_cast<float>(twin.values(s.a.id)[2]), 1.0F) << "rounded to the store's format";
  EXPECT_EQ(s.parameters.values(s.a.id)[2], 5.0F);
}

TEST(Average, RefusesOptionsOutOfRangeAndOtherModels) {
  Store s;
  EXPECT_THROW(WeightAverage(s.parameters, {.decay = 1.0}), hs::OptionError);
  EXPECT_THROW(WeightAverage(s.parameters, {.decay = 0.9, .gamma = -1.0}), hs::OptionError);
  hs::Parameters<float> other(s.runtime);
  const auto c = other.scope().add("c", {5}, hs::Role::weight, hs::Init::constant(0.0F));
  static_cast<void>(c);
  other.lay_out();
  Weights others{other};
  WeightAverage average(s.parameters);
  EXPECT_THROW(average.update(others), hs::StateError);
  EXPECT_THROW(average.copy_to(other), hs::ShapeError);
}

// Four micro-batches a step, skipped updates among the steps: it moves once for each applied
// update, with the masters; and the run is the one without it.
TEST(Average, MovesOnceAStepAndDoesNotTouchTheRun) {
  const auto run = [](bool with, int threads) {
    const auto text = hs::data::Text::from_string(std::string(600, 'a') + "abcabcabcaabbcc" +
                                                  std::string(600, 'b'));
    hs::Runtime runtime({.threads = threads, .seed = 1});
    hs::Parameters<hs::fp16> parameters(runtime);
    const hs::nn::Gpt<hs::fp16> gpt(
        parameters,
        {.vocabulary = text.vocabulary(), .context = 8, .layers = 1, .heads = 2, .width = 16});
    hs::mixed::LossScaler scaler({.initial = 0x1p28F});
    hs::mixed::GradientAccumulator<hs::fp16> accumulator(parameters, scaler);
    hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16> optimizer(parameters, {});
    WeightAverage average(parameters, {.decay = 0.9});
    hs::Tape tape(runtime);
    const auto fit = hs::train::fit(gpt, tape, optimizer, accumulator, scaler, text,
                                    {.steps = 20, .warmup = 2, .rows = 2, .accumulate = 4},
                                    {.on_step = [&](const hs::train::StepInfo& info) {
                                      if (with && info.applied) average.update(optimizer);
                                    }});
    if (with) {
      EXPECT_GT(fit.skipped, 0);
      EXPECT_EQ(average.updates(), fit.steps);
      EXPECT_NE(average.values(hs::ParameterId{0})[0], optimizer.master(hs::ParameterId{0})[0]);
    }
    return std::pair(fit.weights_hash, hs::tensor::state_hash(average));
  };
  const auto with = run(true, 1);
  EXPECT_EQ(with.first, run(false, 1).first);
  EXPECT_EQ(with, run(true, 2));
  EXPECT_NE(with.second, run(false, 1).second);
}

}  // namespace
