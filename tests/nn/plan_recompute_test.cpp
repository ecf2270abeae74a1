// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/nn/linear.hpp>
#include <halfstep/nn/segmented_gpt.hpp>

namespace hs = halfstep;
using testing::HasSubstr;

namespace {

constexpr int rows = 3, length = 20, vocabulary = 11;

struct Measured {
  std::int64_t peak = 0;
  double recomputed = 0.0;
  std::vector<float> gradients;
};

// One pass of the model, with no other memory than weights and gradients, which are not counted.
template <class T>
Measured measure(const hs::nn::GptOptions& options, const hs::autograd::Schedule& schedule) {
  hs::Runtime runtime({.threads = 2, .seed = 3});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, options);
  const hs::nn::SegmentedGpt<T> model(gpt, schedule);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < rows * length; ++i)
    tokens.push_back(i * 7 % vocabulary);
  hs::Tape tape(runtime);
  hs::Gradients<T> gradients(parameters, tape);
  tape.set_seed(0x1p-8);
  tape.begin({0, 0, 0, rows});
  const auto before = runtime.ledger().live();
  runtime.ledger().restart_peaks();
  tape.backward(model.loss(tape, tokens, tokens));
  Measured result{runtime.ledger().peak() - before, tape.replayed_flops(), {}};
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    result.gradients.insert(result.gradients.end(), gradients[hs::ParameterId{p}].begin(),
                            gradients[hs::ParameterId{p}].end());
  }
  return result;
}

template <class T>
hs::RecomputePlan plan(const hs::nn::GptOptions& options, std::int64_t budget) {
  hs::Runtime runtime({.threads = 2, .seed = 3});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, options);
  auto result = hs::nn::plan_recompute(gpt, rows, length, budget);
  EXPECT_EQ(runtime.ledger().peak(), 0) << "planning took memory";
  return result;
}

hs::nn::GptOptions options(int layers, float dropout = 0.1F) {
  return {.vocabulary = vocabulary,
          .context = 24,
          .layers = layers,
          .heads = 2,
          .width = 16,
          .dropout = dropout};
}

}  // namespace

template <class T>
class PlanRecomputeIn : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(PlanRecomputeIn, Formats);

TYPED_TEST(PlanRecomputeIn, ThePeakIsTheOnePredictedAtEveryPointOfTheFrontierAndWithinItsBudget) {
  using T = TypeParam;
  for (const int layers : {1, 2, 7}) {
    const auto none = measure<T>(options(layers), hs::autograd::keep_all(layers));
    const auto all = plan<T>(options(layers), std::int64_t{1} << 40);
    EXPECT_EQ(all.recomputed_flops, 0.0);
    EXPECT_EQ(all.peak, none.peak);
    double before = 1e300;
    for (const auto& point : all.frontier) {
      const auto at = plan<T>(options(layers), point.bytes);
      const auto measured = measure<T>(options(layers), at.schedule);
      EXPECT_TRUE(at.fits);
      EXPECT_EQ(measured.peak, at.peak);
      EXPECT_EQ(at.peak, point.bytes) << "the frontier says the exact peak, not a bound";
      EXPECT_EQ(measured.recomputed, at.recomputed_flops);
      EXPECT_EQ(at.recomputed_flops, point.recomputed_flops);
      EXPECT_LT(at.recomputed_flops, before);
      EXPECT_EQ(measured.gradients, none.gradients);
      before = at.recomputed_flops;
    }
    EXPECT_EQ(all.frontier.back().recomputed_flops, 0.0);
    EXPECT_EQ(all.frontier.size() > 1, layers > 1);
  }
}

TEST(PlanRecompute, BudgetsBetweenPointsAreNeverExceededAndNeverCostMoreThanSmallerOnes) {
  const auto all = plan<float>(options(12), std::int64_t{1} << 40);
  const auto least = all.smallest, most = all.peak;
  double before = 1e300;
  for (std::int64_t budget = least; budget <= most + 64; budget += (most - least) / 40) {
    const auto at = plan<float>(options(12), budget);
    EXPECT_LE(at.peak, budget);
    EXPECT_LE(at.recomputed_flops, before);
    before = at.recomputed_flops;
  }
}

TEST(PlanRecompute, IsNeverSlowerThanUniformSegmentsAtTheirOwnPeak) {
  for (const int layers : {4, 9}) {
    for (int k = 1; k <= layers; ++k) {
      const auto uniform = measure<float>(options(layers), hs::autograd::uniform(layers, k));
      const auto at = plan<float>(options(layers), uniform.peak);
      EXPECT_TRUE(at.fits);
      EXPECT_LE(at.recomputed_flops, uniform.recomputed) << k << " of " << layers;
    }
  }
}

TEST(PlanRecompute, ABudgetTooSmallSaysTheSmallest) {
  const auto at = plan<float>(options(6), 1000);
  EXPECT_FALSE(at.fits);
  EXPECT_EQ(at.peak, at.smallest);
  try {
    (void)at.require();
    FAIL();
  } catch (const hs::OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("nothing fits into 1000 bytes; the smallest budget is " +
                                        std::to_string(at.smallest)));
  }
  EXPECT_TRUE(plan<float>(options(6), at.smallest).fits);
  EXPECT_FALSE(plan<float>(options(6), at.smallest - 1).fits);
  EXPECT_THAT(plan<float>(options(6), at.smallest).describe(), HasSubstr("segments over 6 layers"));
}

TEST(PlanRecompute, WhatIsLongLivedIsPartOfTheBudget) {
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, options(5));
  const auto without = hs::nn::plan_recompute(gpt, rows, length, 1 << 20);
  const auto with = hs::nn::plan_recompute(gpt, rows, length, (1 << 20) + 5000, 5000);
  EXPECT_EQ(with.schedule, without.schedule);
  EXPECT_EQ(with.peak, without.peak + 5000);
}

namespace {

// Layers of different widths and one that branches on its shape, none of them in nn/.
template <class T>
struct Funnel {
  using layer_tag = void;
  hs::nn::Linear<T> in, out;
  Funnel(const hs::Scope<T>& s, int from, int hidden, int to)
      : in(s / "in", from, hidden), out(s / "out", hidden, to) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const {
    const auto y = out(gelu(in(x)));
    return y.shape() == x.shape() ? x + y : y;
  }
};

}  // namespace

TEST(PlanRecompute, OfLayersOfManySizesIsExactToo) {
  const std::vector<float> data(40 * 8, 0.5F), target(40 * 6, 0.25F);
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  std::vector<Funnel<float>> layers;
  const std::vector<int> widths{8, 24, 24, 4, 4, 30, 6};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    layers.emplace_back(parameters.scope() / static_cast<int>(i), widths[i],
                        10 + 13 * static_cast<int>(i % 4), widths[i + 1]);
  }
  const auto front = [&](hs::Tape& tape) { return hs::constant<float>(tape, {40, 8}, data); };
  const auto back = [&](hs::Variable<float> x) { return hs::squared_error(x, target); };
  const std::span<const Funnel<float>> all(layers);
  const auto whole = hs::plan_recompute(runtime, {}, front, all, back);
  EXPECT_GT(whole.frontier.size(), 4U);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  std::vector<float> plain;
  for (const auto& point : whole.frontier) {
    const auto at = hs::plan_recompute(runtime, {.budget = point.bytes}, front, all, back);
    tape.begin({0, 0, 0, 1});
    const auto before = runtime.ledger().live();
    const double flops = tape.replayed_flops();
    runtime.ledger().restart_peaks();
    tape.backward(back(hs::run_chain(all, at.schedule, front(tape))));
    EXPECT_EQ(runtime.ledger().peak() - before, at.peak);
    EXPECT_LE(at.peak, point.bytes);
    EXPECT_EQ(tape.replayed_flops() - flops, point.recomputed_flops);
    const std::vector<float> now(gradients[layers[0].in.weight].begin(),
                                 gradients[layers[0].in.weight].end());
    if (plain.empty()) plain = now;
    EXPECT_EQ(now, plain);
  }
}
