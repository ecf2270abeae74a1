// SPDX-License-Identifier: MIT
// A training loop of tape, window, scaler and optimizer, in every format, on y = 3 x0 - 2 x1 + 1.
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/tensor/hash.hpp>

namespace {

using namespace halfstep;

struct LoopOptions {
  int threads = 1;
  int micro_batches = 4;
  int rows = 8;
  int iterations = 300;
  float scale = 65536.0F;
  float clip = 1.0F;
};
struct LoopResult {
  double loss = 0.0;
  float norm = 0.0F;  ///< of the first step
  int skipped = 0;
  float scale = 0.0F;
  std::uint64_t hash = 0;
};

template <class T>
LoopResult train(const LoopOptions& options) {
  Runtime runtime({.threads = options.threads});
  Parameters<T> parameters(runtime);
  const auto weight = parameters.scope().add("weight", {1, 2}, Role::weight, Init::normal(0.1F));
  const auto bias = parameters.scope().add("bias", {1}, Role::bias, {});
  mixed::MasterWeights optimizer(parameters, optim::AdamWOptions{.beta2 = 0.99});
  mixed::LossScaler scaler({.initial = options.scale});
  mixed::GradientAccumulator accumulator(parameters, scaler);
  Tape tape(runtime);
  LoopResult result;
  for (std::int64_t iteration = 0; iteration < options.iterations; ++iteration) {
    auto window = accumulator.begin(
        tape, iteration,
        {.micro_batches = options.micro_batches, .rows = options.rows, .targets_per_row = 1});
    for (const auto micro : window) {
      std::vector<float> x, y;
      for (int row = 0; row < micro.rows; ++row) {
        const auto sample = static_cast<std::uint64_t>(micro.first_sample + row);
        for (std::uint64_t i = 0; i < 2; ++i) {
          x.push_back(static_cast<float>(core::random_bits(1, 2, sample * 2 + i) >> 8) * 0x1p-23F -
                      1.0F);
        }
        y.push_back(3.0F * x[x.size() - 2] - 2.0F * x.back() + 1.0F);
      }
      tape.begin(micro);
      const auto input = constant<T>(tape, {micro.rows, 2}, x);
      window.backward(tape, squared_error(linear(input, weight, bias), y));
    }
    result.loss = window.loss();
    const auto step = optimizer.step(std::move(window).unscale().clip_norm(options.clip), 0.02F);
    result.skipped += step ? 0 : 1;
    result.scale = step.scale;
    if (iteration == 0) result.norm = step.norm;
  }
  result.hash = optimizer.weights_hash();
  return result;
}

TEST(Loop, LearnsInEveryFormat) {
  EXPECT_LT(train<float>({}).loss, 1e-4);
  EXPECT_LT(train<double>({}).loss, 1e-4);
  EXPECT_LT(train<bf16>({}).loss, 1e-2);
  EXPECT_LT(train<fp16>({}).loss, 1e-3);
}
TEST(Loop, InHalfStartedTooHighSkipsUntilTheScaleFits) {
  const auto result = train<fp16>({.scale = 0x1p30F});
  EXPECT_GT(result.skipped, 5);
  EXPECT_EQ(result.scale, std::ldexp(1.0F, 30 - result.skipped));
  EXPECT_LT(result.loss, 1e-2);
  EXPECT_EQ(train<bf16>({.scale = 0x1p30F}).skipped, 0);
}
TEST(Loop, GivesTheSameBitsForEveryNumberOfThreadsAndOthersForAnotherClip) {
  for (const float scale : {65536.0F, 0x1p24F}) {
    const auto one = train<fp16>({.threads = 1, .iterations = 40, .scale = scale});
    EXPECT_EQ(train<fp16>({.threads = 2, .iterations = 40, .scale = scale}).hash, one.hash);
    EXPECT_EQ(train<fp16>({.threads = 3, .iterations = 40, .scale = scale}).hash, one.hash);
    EXPECT_NE(train<fp16>({.threads = 1, .iterations = 40, .scale = scale, .clip = 0.7F}).hash,
              one.hash);
  }
}
TEST(Loop, SeesTheSameGradientHoweverTheBatchIsCut) {
  const auto whole = train<float>({.micro_batches = 1, .rows = 32, .iterations = 1});
  for (const int micro_batches : {2, 4, 8, 32}) {
    const auto cut =
        train<float>({.micro_batches = micro_batches, .rows = 32 / micro_batches, .iterations = 1});
    EXPECT_NEAR(cut.norm, whole.norm, 1e-6F * whole.norm) << micro_batches;
    EXPECT_NEAR(cut.loss, whole.loss, 1e-12 * whole.loss) << micro_batches;
  }
  EXPECT_NE(train<float>({.micro_batches = 1, .rows = 16, .iterations = 1}).norm, whole.norm);
}

}  // namespace
