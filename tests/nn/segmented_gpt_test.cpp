// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/nn/segmented_gpt.hpp>

namespace hs = halfstep;
using testing::HasSubstr;

namespace {

struct Step {
  std::vector<std::vector<float>> gradients;
  double loss = 0.0;
  std::int64_t replayed = 0, peak = 0;
};

template <class T>
Step step(int segments, int layers, float dropout, bool fused = false) {
  hs::Runtime runtime({.threads = 2, .seed = 3});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = 11, .context = 24, .layers = layers, .heads = 2, .width = 16, .dropout = dropout});
  const hs::nn::SegmentedGpt<T> model(gpt, segments);
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  Step result;
  auto window = accumulator.begin(tape, 0, {.micro_batches = 2, .rows = 3, .targets_per_row = 24});
  for (const auto micro : window) {
    std::vector<std::int32_t> tokens, targets;
    for (int i = 0; i < 72; ++i) {
      tokens.push_back(static_cast<std::int32_t>((i * 7 + micro.number) % 11));
      targets.push_back(static_cast<std::int32_t>((i * 5 + 2) % 11));
    }
    tape.begin(micro);
    window.backward(tape, fused ? model.loss(tape, tokens, targets) : hs::cross_entropy(model(tape, tokens), targets));
  }
  result.loss = window.loss();
  const auto gradients = std::move(window).unscale();
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    const auto sum = gradients.sum({i});
    result.gradients.emplace_back(sum.begin(), sum.end());
  }
  result.replayed = tape.replayed_ops();
  result.peak = runtime.ledger().peak();
  return result;
}

template <class T>
void expect_equal_in_any_cut(float dropout) {
  const Step none = step<T>(1, 4, dropout);
  EXPECT_EQ(none.replayed, 0);
  // A block is ten ops, and two more with dropout; a second run needs none from the GELU on.
  const int ops = dropout > 0.0F ? 12 : 10, tail = dropout > 0.0F ? 4 : 3;
  for (const int segments : {2, 3, 4}) {
    const Step cut = step<T>(segments, 4, dropout);
    EXPECT_EQ(cut.loss, none.loss) << segments;
    EXPECT_EQ(cut.gradients, none.gradients) << segments;
    const auto again = hs::autograd::uniform(4, segments).forwards() - 4;
    EXPECT_EQ(cut.replayed, 2 * (ops * again - tail * (segments - 1))) << segments;
    EXPECT_LT(cut.peak, none.peak) << segments;
  }
  EXPECT_NE(step<T>(1, 4, 0.3F).gradients, none.gradients);
}

TEST(SegmentedGpt, GradientsHaveTheSameBitsInAnyCut) {
  expect_equal_in_any_cut<float>(0.1F);
  expect_equal_in_any_cut<hs::bf16>(0.1F);
  expect_equal_in_any_cut<hs::fp16>(0.0F);
}

template <class T>
void expect_the_bits_of_the_logits() {
  const Step apart = step<T>(1, 3, 0.1F);
  for (const int segments : {1, 3}) {
    const Step fused = step<T>(segments, 3, 0.1F, true);
    EXPECT_EQ(fused.loss, apart.loss);
    EXPECT_EQ(fused.gradients, apart.gradients);
  }
}

TEST(SegmentedGpt, LossHasTheBitsOfItsLogitsThroughAWindow) {
  expect_the_bits_of_the_logits<float>();
  expect_the_bits_of_the_logits<hs::bf16>();
  expect_the_bits_of_the_logits<hs::fp16>();
}

TEST(SegmentedGpt, RefusesNumbersOfSegmentsThatAreNone) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.layers = 3});
  for (const int segments : {0, 4}) {
    try {
      const hs::nn::SegmentedGpt<float> model(gpt, segments);
      FAIL() << segments;
    } catch (const hs::OptionError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(segments) + " segments of 3 blocks"));
    }
  }
}

}  // namespace
