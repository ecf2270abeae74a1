// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/core/float_environment.hpp>
#include <halfstep/data/grammar.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/shadow.hpp>

namespace hs = halfstep;

namespace {

constexpr int length = 16;
const hs::mixed::StepShape shape{.micro_batches = 2, .rows = 4, .targets_per_row = length};

const hs::data::Text& text() {
  static const auto made =
      hs::data::Text::from_string(hs::data::Grammar::sentences().generate(3, 6'000));
  return made;
}
hs::nn::GptOptions sizes() {
  return {.vocabulary = text().vocabulary(),
          .context = length,
          .layers = 1,
          .heads = 2,
          .width = 16,
          .dropout = 0.1F};
}
constexpr auto loss_of = []<class U>(const hs::nn::Gpt<U>& model, hs::Tape& tape,
                                     const hs::MicroBatch& micro) {
  const auto batch = text().batch(micro, length);
  return hs::cross_entropy(model(tape, batch.inputs), batch.targets);
};

/// A run of a few steps, looked at before each or not.
template <class T>
struct Training {
  hs::Runtime runtime{{.threads = 1, .seed = 5}};
  hs::Parameters<T> parameters{runtime};
  hs::nn::Gpt<T> gpt{parameters, sizes()};
  hs::mixed::MasterWeights<hs::optim::AdamW, T> optimizer{parameters,
                                                          hs::optim::AdamWOptions{.beta2 = 0.99}};
  hs::mixed::LossScaler scaler{{.initial = 1024}};
  hs::mixed::GradientAccumulator<T> accumulator{parameters, scaler};
  hs::Tape tape{runtime};
  double loss = 0.0;

  hs::optim::StepResult step(std::int64_t iteration) {
    auto window = accumulator.begin(tape, iteration, shape);
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, loss_of(gpt, tape, micro));
    }
    loss = window.loss();
    return optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-2F);
  }
  hs::train::ShadowOptions options(std::int64_t iteration) const {
    return {
        .iteration = iteration, .shape = shape, .scale = scaler.scale(), .clip = 1.0F, .lr = 1e-2F};
  }
  template <class F>
  hs::train::Divergence shadow(std::int64_t iteration, const F& of) {
    return hs::train::shadow_step<hs::nn::Gpt>(parameters, optimizer, options(iteration), of,
                                               sizes());
  }
  /// In full precision.
  std::vector<std::vector<double>> weights() {
    hs::train::detail::StateCopy copy;
    optimizer.visit_weights(copy);
    std::vector<std::vector<double>> all;
    for (const auto& name : copy.order)
      all.push_back(copy.tensors.find(name)->second);
    return all;
  }
};

template <class T>
hs::train::Divergence third_step() {
  Training<T> plain, watched;
  hs::train::Divergence d;
  for (std::int64_t i = 0; i < 3; ++i) {
    d = watched.shadow(i, loss_of);
    const auto trace = hs::train::detail::traced_step<T, hs::nn::Gpt>(
        watched.parameters, watched.optimizer, watched.options(i), loss_of, sizes());
    const auto before = watched.weights();
    const auto result = watched.step(i);
    const auto after = watched.weights();
    std::int64_t different = 0;
    for (std::size_t p = 0; p < trace.update.size(); ++p) {
      for (std::size_t e = 0; e < trace.update[p].size(); ++e)
        different += trace.update[p][e] != after[p][e] - before[p][e] ? 1 : 0;
    }
    EXPECT_EQ(different, 0);
    // It is the run's own step that was shadowed.
    EXPECT_EQ(d.loss, watched.loss);
    EXPECT_EQ(d.step.norm, result.norm);
    EXPECT_EQ(d.step.clipped_by, result.clipped_by);
    EXPECT_TRUE(result);
    static_cast<void>(plain.step(i));
  }
  EXPECT_EQ(watched.optimizer.weights_hash(), plain.optimizer.weights_hash());
  EXPECT_EQ(watched.runtime.ledger().live(), plain.runtime.ledger().live());
  EXPECT_NE(watched.shadow(4, loss_of).loss, watched.shadow(3, loss_of).loss);
  EXPECT_EQ(d.rows.size(), plain.parameters.size());
  return d;
}

TEST(Shadow, IsFurtherOffTheCoarserTheFormatAndNoPartOfTheRun) {
  const auto exact = third_step<double>(), fine = third_step<float>(),
             half = third_step<hs::fp16>(), brain = third_step<hs::bf16>();
  EXPECT_EQ(exact.gradient, 0.0);
  EXPECT_EQ(exact.update, 0.0);
  EXPECT_EQ(exact.loss, exact.loss_in_double);
  EXPECT_GT(fine.gradient, 1e-8);
  EXPECT_LT(fine.gradient, 1e-5);
  EXPECT_GT(half.gradient, 10 * fine.gradient);
  EXPECT_LT(half.gradient, 1e-2);
  EXPECT_GT(brain.gradient, 3 * half.gradient);
  EXPECT_LT(brain.gradient, 0.1);
  EXPECT_GT(brain.update, half.update);
  EXPECT_NEAR(brain.loss, brain.loss_in_double, 1e-2);
  EXPECT_NE(brain.loss, brain.loss_in_double);
  EXPECT_NEAR(fine.loss_in_double, brain.loss_in_double, 1e-2);
}
// A forward pass that is another one in 16 bits than in double: rows of other samples.
TEST(Shadow, SeesAStepThatIsNotTheSame) {
  Training<hs::bf16> run;
  static_cast<void>(run.step(0));
  const auto right = run.shadow(1, loss_of);
  const auto wrong =
      run.shadow(1, []<class U>(const hs::nn::Gpt<U>& model, hs::Tape& tape, hs::MicroBatch micro) {
        if (std::is_same_v<U, hs::bf16>) micro.first_sample += 4;
        return loss_of(model, tape, micro);
      });
  EXPECT_EQ(wrong.loss_in_double, right.loss_in_double);
  EXPECT_GT(wrong.gradient, 10 * right.gradient);
  EXPECT_GT(wrong.update, 5 * right.update);
}
TEST(Shadow, OfASkippedStepSaysSo) {
  Training<hs::fp16> run;
  const auto d = hs::train::shadow_step<hs::nn::Gpt>(
      run.parameters, run.optimizer, {.iteration = 0, .shape = shape, .scale = 0x1p40F}, loss_of,
      sizes());
  EXPECT_FALSE(d.step.applied);
  EXPECT_TRUE(d.step_in_double.applied);
  EXPECT_EQ(d.update, 1.0);
  EXPECT_THAT(hs::train::to_string(d), testing::HasSubstr("(the step was skipped)"));
}
// Rounding up and flushing, the caller's affair, do not reach the figures.
TEST(Shadow, DoesNotHearOfTheCallersFloatingPointEnvironment) {
  Training<hs::bf16> run;
  static_cast<void>(run.step(0));
  const auto plain = run.shadow(1, loss_of);
  const unsigned saved = hs::core::read_mxcsr();
  hs::core::write_mxcsr(0x5F80U);
  const auto d = run.shadow(1, loss_of);
  hs::core::write_mxcsr(saved);
  EXPECT_EQ(d.gradient, plain.gradient);
  EXPECT_EQ(d.update, plain.update);
}
// What a shard would leave behind is read as the rest of the tensor otherwise.
TEST(Shadow, OfAPartOfATensorIsAnErrorThatNamesIt) {
  std::vector<float> values(6, 1.0F);
  const auto bytes = std::as_writable_bytes(std::span(values));
  hs::train::detail::StateCopy copy;
  try {
    copy.tensor({"adamw.m.up", hs::numeric::DType::f32, {2, 3}, 2, bytes.first(16)});
    FAIL();
  } catch (const hs::StateError& error) {
    EXPECT_STREQ(error.what(),
                 "shadow_step: of 'adamw.m.up', 6 elements, 4 are held here. Is the optimizer one "
                 "of several processes' shards? Only whole state can be copied.");
  }
  EXPECT_NO_THROW(copy.tensor({"adamw.m.up", hs::numeric::DType::f32, {2, 3}, 0, bytes}));
}
TEST(Shadow, PrintsTheParametersThatAreFurthestOff) {
  hs::train::Divergence d{
      .iteration = 7, .loss = 1.5, .loss_in_double = 1.25, .gradient = 0.5, .update = 0.25};
  d.rows = {{"a", 0.125, 0.5}, {"b", 0.75, 0.25}, {"c", 0.5, 0.0}};
  EXPECT_EQ(hs::train::to_string(d, 2),
            "shadow step of iteration 7: loss 1.5, in double 1.25; relative distance of the "
            "gradient 0.5, of the update 0.25\n"
            "  b: gradient 0.75, update 0.25\n"
            "  c: gradient 0.5, update 0\n");
  EXPECT_EQ(
      hs::train::metrics_line(d),
      R"({"schema":1,"kind":"shadow","iteration":7,"applied":true,"loss":1.5,"loss_in_double":1.25,)"
      R"("gradient_distance":0.5,"update_distance":0.25})"
      "\n");
}

}  // namespace
