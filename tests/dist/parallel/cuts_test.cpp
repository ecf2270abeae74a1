// SPDX-License-Identifier: MIT
// The gradient of a step does not depend on how its samples are cut, into micro-batches or over
// processes, whatever of them is masked.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/data/examples.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/nn/linear.hpp>

#include "dist/ranks.hpp"

namespace {

namespace hs = halfstep;
namespace dist = halfstep::dist;

constexpr int features = 6, samples = 32, positions = 8, classes = 5;

struct Gradient {
  double loss = 0.0, count = 0.0;
  std::vector<float> values;  ///< weight, then bias
  friend bool operator==(const Gradient&, const Gradient&) = default;
};

/// 32 samples of 8 positions each, of which a random number from the end is masked; in some trials
/// whole samples, so that a micro-batch may have nothing to learn from.
hs::data::Examples<std::int32_t> data_of(std::uint64_t trial) {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto valid = hs::core::uniform_below(trial, 1, i, positions + 1);
    for (std::uint64_t p = 0; p < positions; ++p) {
      for (std::uint64_t f = 0; f < features; ++f) {
        x.push_back(hs::core::uniform(trial, 2, (i * positions + p) * features + f) - 0.5F);
      }
      const bool masked = p >= valid || (trial % 3 == 0 && i % 8 < 4);
      y.push_back(masked ? -1
                         : static_cast<std::int32_t>(
                               hs::core::uniform_below(trial, 3, i * positions + p, classes)));
    }
  }
  return {std::move(x),
          std::move(y),
          {.width = positions * features, .targets = positions, .seed = trial}};
}

/// Of one step over all samples in `micro_batches`, by `n` processes; what each of them has.
std::vector<Gradient> gradients_of(std::uint64_t trial, int micro_batches, int n) {
  const auto data = data_of(trial);
  std::vector<Gradient> all(static_cast<std::size_t>(n));
  ranks::run(n, ranks::Over::heap, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1, .seed = 5});
    hs::Parameters<float> parameters(runtime);
    const hs::nn::Linear<float> layer(parameters.scope(), features, classes);
    dist::DataParallel together(group, parameters);
    hs::mixed::GradientAccumulator<float> accumulator(parameters, nullptr, together);
    hs::Tape tape(runtime);
    hs::data::ExampleBatch<std::int32_t> batch;
    auto window = accumulator.begin(tape, 0,
                                    {.micro_batches = micro_batches,
                                     .rows = samples / micro_batches,
                                     .targets_per_row = positions});
    for (const auto micro : window) {
      data.batch(micro, batch);
      tape.begin(micro);
      window.backward(
          tape, hs::cross_entropy(layer(hs::constant<float>(tape, {micro.rows, positions, features},
                                                            batch.features)),
                                  batch.targets));
    }
    const auto step = std::move(window).unscale();
    Gradient& mine = all[static_cast<std::size_t>(group.rank())];
    mine.loss = step.loss();
    mine.count = step.count();
    for (const auto id : {layer.weight.id, layer.bias.id}) {
      for (const float g : step.sum(id))
        mine.values.push_back(g * static_cast<float>(step.factor()));
    }
  });
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double off = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(off / norm);
}

TEST(Cuts, OfAStepIntoOtherMicroBatchesChangeItsGradientByRoundingAlone) {
  double worst = 0.0;
  int other_bits = 0;
  for (std::uint64_t trial = 1; trial <= 30; ++trial) {
    const Gradient whole = gradients_of(trial, 1, 1)[0];
    ASSERT_GT(whole.count, 0.0);
    const int cut = 2 << hs::core::uniform_below(trial, 4, 0, 5);  // into 2 to 32
    const Gradient other = gradients_of(trial, cut, 1)[0];
    EXPECT_EQ(other.count, whole.count);
    EXPECT_NEAR(other.loss, whole.loss, 1e-6 * whole.loss);
    const double off = distance(other.values, whole.values);
    EXPECT_LT(off, 1e-6) << "trial " << trial << ", " << cut << " micro-batches";
    worst = std::max(worst, off);
    other_bits += other.values != whole.values ? 1 : 0;
  }
  std::printf("30 random cuts, the farthest gradient %.1e of its norm away\n", worst);
  EXPECT_GT(other_bits, 0) << "the micro-batches were not cut";
  EXPECT_GT(distance(gradients_of(1, 4, 1)[0].values, gradients_of(2, 4, 1)[0].values), 0.1);
}

TEST(Cuts, OfTheSameMicroBatchesOverProcessesAndAccumulationStepsKeepEveryBit) {
  for (std::uint64_t trial = 1; trial <= 10; ++trial) {
    const int micro_batches = 4 << hs::core::uniform_below(trial, 5, 0, 4);  // 4 to 32
    const Gradient one = gradients_of(trial, micro_batches, 1)[0];
    for (const int n : {2, 4}) {  // so many ranks accumulate 1 / n of them each
      for (const Gradient& rank : gradients_of(trial, micro_batches, n)) {
        EXPECT_EQ(rank, one) << "trial " << trial << ", " << micro_batches << " over " << n;
      }
    }
  }
}

}  // namespace
