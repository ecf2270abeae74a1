// SPDX-License-Identifier: MIT
// Public bug reports as tests, where they are about no single header: tests/cases.md lists them
// all.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/rms_norm.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/data/grammar.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>
#include <halfstep/train/fit.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;

// training.md 39: a second call trained from the start again, and 30 CPU-days were lost.
TEST(Cases, ASecondFitContinuesWhereTheFirstEnded) {
  Runtime runtime({.seed = 3});
  const auto text = data::Text::from_string(data::Grammar::sentences().generate(3, 6'000));
  Parameters<bf16> parameters(runtime);
  const nn::Gpt<bf16> gpt(
      parameters,
      {.vocabulary = text.vocabulary(), .context = 16, .layers = 1, .heads = 1, .width = 16});
  double first = 0.0;
  const train::FitOptions options{.steps = 30, .lr = 1e-2F, .warmup = 3};
  const auto hooks = [&] {
    first = 0.0;
    return train::Hooks{.on_step = [&](const train::StepInfo& info) {
      if (info.iteration == 0) first = info.loss;
    }};
  };
  const auto once = train::fit(gpt, parameters, text, options, hooks());
  const double untrained = first;
  EXPECT_NEAR(untrained, std::log(text.vocabulary()), 0.1);
  const auto twice = train::fit(gpt, parameters, text, options, hooks());
  EXPECT_LT(first, untrained - 0.3);
  EXPECT_LT(twice.held_out, once.held_out);
}

// training.md 50: batches of 100 and 10 tokens with mean losses 1 and 2 gave 1.5; 120 / 110 is
// right.
TEST(Cases, HeldOutLossIsASumOverTokensNotAMeanOfMeans) {
  struct ByLength {
    [[nodiscard]] int context() const { return 100; }
    Variable<float> operator()(Tape& tape, std::span<const std::int32_t> ids) const {
      const double wanted = ids.size() == 100 ? 1.0 : 2.0;  // -log p(0) = log(1 + e^z)
      const auto z = static_cast<float>(std::log(std::exp(wanted) - 1.0));
      std::vector<float> logits;
      for (std::size_t i = 0; i < ids.size(); ++i)
        logits.insert(logits.end(), {0.0F, z});
      return constant<float>(tape, {1, static_cast<std::int64_t>(ids.size()), 2}, logits);
    }
  };
  Runtime runtime;
  Tape tape(runtime);
  const std::vector<std::int32_t> tokens(111, 0);
  const auto result = train::evaluate_tokens(ByLength{}, tape, tokens);
  EXPECT_EQ(result.count, 110);
  EXPECT_NEAR(result.nats_per_token(), 120.0 / 110.0, 1e-6);
}

// cases.md, Numerics 33: a sum of 70000 ones stuck at 256; a softmax of 512 equal logits was not
// 1/512.
TEST(Cases, ABf16SumOfSeventyThousandOnesIsItsNearestNumber) {
  Runtime runtime;
  Parameters<bf16> parameters(runtime);
  const auto w = parameters.scope().add("w", {1, 70000}, Role::weight, Init::constant(1.0F));
  parameters.lay_out();
  Tape tape(runtime);
  tape.begin({}, Record::nothing);
  const auto y = linear(constant<bf16>(tape, {1, 70000}, std::vector<float>(70000, 1.0F)), w);
  EXPECT_EQ(static_cast<float>(y.value()[0]), 70144.0F);
  EXPECT_EQ(bf16{70000}, bf16{70144});
}
TEST(Cases, TheSoftmaxOf512EqualLogitsIs1Over512) {
  const std::vector<float> logits(512, -3.0F);
  const std::vector<std::int32_t> target{7};
  std::vector<float> loss(1), lse(1), gradient(512);
  Runtime runtime;
  const auto compute = runtime.compute();
  (void)kernels::cross_entropy<float>(compute, logits, target, loss, lse);
  kernels::cross_entropy_backward<float, float>(compute, logits, target, lse, 1.0F, gradient);
  for (std::size_t i = 0; i < 512; ++i) {
    const double wanted = i == 7 ? 1.0 / 512.0 - 1.0 : 1.0 / 512.0;
    EXPECT_NEAR(static_cast<double>(gradient[i]), wanted, 1e-8) << i;
  }
}

// cases.md, Numerics 34 and 75: means and squares of fp16 numbers are beyond fp16's range.
TEST(Cases, ANormOfLargeHalvesIsOneNotZeroOrNan) {
  for (const auto& [value, width] : {std::pair{40000.0F, 3}, std::pair{7600.0F, 2048}}) {
    Runtime runtime;
    Parameters<fp16> parameters(runtime);
    const auto gain = parameters.scope().add("gain", {width}, Role::gain, Init::constant(1.0F));
    parameters.lay_out();
    Tape tape(runtime);
    tape.begin({}, Record::nothing);
    const std::vector<float> row(static_cast<std::size_t>(width), value);
    const auto y = rms_norm(constant<fp16>(tape, {1, width}, row), gain);
    for (const fp16 x : y.value())
      ASSERT_EQ(x, fp16{1}) << value;
  }
}

// cases.md, Numerics 53: a step count kept in the weights' format stops at 256 in bf16, at 2048 in
// fp16.
TEST(Cases, StepsAreStillCountedAfterThreeThousandUpdates) {
  Runtime runtime({.threads = 1});
  Parameters<bf16> parameters(runtime);
  const auto w = parameters.scope().add("w", {1}, Role::weight, Init::constant(1.0F)).id;
  mixed::MasterWeights optimizer(parameters, optim::AdamWOptions{});
  mixed::GradientAccumulator accumulator(parameters);
  halfstep_tests::GivenTape tape;
  for (int iteration = 0; iteration < 3000; ++iteration) {
    auto window = accumulator.begin(tape, iteration, {.rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, halfstep_tests::GivenLoss<float>{1, 1, {{w, {1.0F}}}});
    }
    ASSERT_TRUE(optimizer.step(std::move(window).unscale(), 1e-4F));
  }
  EXPECT_EQ(optimizer.steps(), 3000);
  // A constant gradient moves a weight by lr each time, if the count that corrects the moments goes
  // on.
  EXPECT_NEAR(static_cast<double>(optimizer.master(w)[0]), 1.0 - 3000 * 1e-4, 2e-3);
}

}  // namespace
