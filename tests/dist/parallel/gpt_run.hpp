// SPDX-License-Identifier: MIT
// A small GPT trained by any number of ranks, with dropout, clipping, accumulation and, in fp16, a
// loss scale that overflows at first: what tests of equal bits repeat under other layouts. Not part
// of the library.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/train/fit.hpp>

#include "dist/ranks.hpp"

namespace gpt_run {

namespace hs = halfstep;
namespace dist = halfstep::dist;
using ranks::Over;

struct Settings {
  int steps = 6;
  int micro_batches = 8;   ///< of a step, all ranks together
  std::uint64_t seed = 1;  ///< of weights, samples and dropout
  float clip = 0.5F;
  float dropout = 0.1F;
  float first_scale = 0.0F;  ///< of a dynamic loss scale; 0: none
  dist::DataParallelOptions parallel{};
  int segments = 1;          ///< of recompute
  int stage = 0;             ///< of ZeRO, on the ranks of a group
  bool wrong_share = false;  ///< rank 1 computes what rank 0 does
};

struct Outcome {
  std::uint64_t hash = 0;
  double train_loss = 0.0, held_out = 0.0;
  std::int64_t micro_batches = 0;  ///< that this rank computed
  std::int64_t tokens = 0;         ///< of all ranks
  std::int64_t skipped = 0;
  std::int64_t parameters = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

[[nodiscard]] inline const hs::data::Text& text() {
  static const hs::data::Text made = [] {
    const char* list[] = {"the ", "river ", "king ", "went ", "under ", "a ", "stone ", "house.\n"};
    std::string words;
    for (std::uint64_t i = 0; words.size() < 6000; ++i)
      words += list[hs::core::uniform_below(5, 17, i, 8)];
    return hs::data::Text::from_string(words, {.seed = 1});
  }();
  return made;
}

/// As DataParallel, with a share that a test can falsify.
template <class T>
class Ranks final : public hs::mixed::Processes<float> {
 public:
  Ranks(dist::Group& group, hs::Parameters<T>& parameters, const Settings& settings)
      : inner_(group, parameters, settings.parallel),
        wrong_(settings.wrong_share && group.rank() == 1) {}
  hs::mixed::MicroBatchRange share(const hs::mixed::StepShape& shape) const override {
    auto range = inner_.share(shape);
    if (wrong_) range.first = 0;
    return range;
  }
  std::span<float> memory(std::int64_t elements) override { return inner_.memory(elements); }
  void begin(std::span<float> sums) override { inner_.begin(sums); }
  void finished(hs::ParameterId id) override { inner_.finished(id); }
  void complete() override { inner_.complete(); }
  hs::core::Range held() const override { return inner_.held(); }
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    inner_.gather(losses, counts);
  }
  void decide(hs::mixed::Findings& findings, std::span<double> blocks) override {
    inner_.decide(findings, blocks);
  }

 private:
  dist::DataParallel<T> inner_;
  bool wrong_;
};

/// Trains on the ranks of a group, or, without one, here alone.
template <class T>
[[nodiscard]] Outcome run(hs::Runtime& runtime, dist::Group* group, const Settings& settings) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text().vocabulary(),
                                        .context = 17,
                                        .layers = 2,
                                        .heads = 2,
                                        .width = 24,
                                        .dropout = settings.dropout});
  const hs::nn::SegmentedGpt<T> model(gpt, settings.segments);
  hs::mixed::LossScaler scaler =
      settings.first_scale == 0.0F
          ? hs::mixed::LossScaler::fixed(1.0F)
          : hs::mixed::LossScaler({.initial = settings.first_scale, .interval = 5});
  using Optimizer = hs::mixed::MasterWeights<hs::optim::AdamW, T>;
  const hs::optim::AdamWOptions adamw{.beta2 = 0.99, .weight_decay = 0.1};
  hs::Tape tape(runtime);
  const hs::train::FitOptions options{.steps = settings.steps,
                                      .lr = 3e-3F,
                                      .min_lr = 3e-4F,
                                      .warmup = 2,
                                      .clip = settings.clip,
                                      .rows = 2,
                                      .accumulate = settings.micro_batches};
  const auto outcome = [&](auto&& optimizer, auto&& accumulator) {
    const auto fit = hs::train::fit(model, tape, optimizer, accumulator, scaler, text(), options);
    return Outcome{fit.weights_hash, fit.train_loss, fit.held_out,      fit.micro_batches,
                   fit.tokens,       fit.skipped,    parameters.count()};
  };
  using Accumulator = hs::mixed::GradientAccumulator<T>;
  if (group == nullptr)
    return outcome(Optimizer(parameters, adamw), Accumulator(parameters, scaler));
  const auto sharded = [&](auto&& optimizer) {
    return outcome(optimizer, Accumulator(parameters, &scaler, optimizer.ranks()));
  };
  const dist::ShardOptions shard{.bucket_bytes = settings.parallel.bucket_bytes};
  if (settings.stage == 1) return sharded(dist::Zero1<Optimizer>(*group, parameters, adamw, shard));
  if (settings.stage == 2) return sharded(dist::Zero2<Optimizer>(*group, parameters, adamw, shard));
  if (settings.stage == 3) return sharded(dist::Zero3<Optimizer>(*group, parameters, adamw, shard));
  Ranks<T> ranks(*group, parameters, settings);
  return outcome(Optimizer(parameters, adamw), Accumulator(parameters, &scaler, ranks));
}

template <class T>
[[nodiscard]] Settings of_format(Settings settings) {
  // The first steps of fp16 overflow at this scale and are skipped.
  if constexpr (std::same_as<T, hs::fp16>) settings.first_scale = 0x1p24F;
  return settings;
}

template <class T>
Outcome alone(const Settings& settings) {
  hs::Runtime runtime({.threads = 1, .seed = settings.seed});
  return run<T>(runtime, nullptr, of_format<T>(settings));
}
/// What each rank comes to.
template <class T>
std::vector<Outcome> together(int n, Over over, const Settings& settings) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  ranks::run(n, over, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1, .seed = settings.seed});
    outcomes[static_cast<std::size_t>(group.rank())] =
        run<T>(runtime, &group, of_format<T>(settings));
  });
  return outcomes;
}

/// n ranks come to what one process does, each having done 1/n of it.
template <class T>
void expect_as_alone(int n, Over over, const Settings& settings) {
  const Outcome one = alone<T>(settings);
  ASSERT_EQ(one.micro_batches, settings.steps * settings.micro_batches);
  for (Outcome rank : together<T>(n, over, settings)) {
    EXPECT_EQ(rank.micro_batches * n, one.micro_batches);
    rank.micro_batches = one.micro_batches;
    EXPECT_EQ(rank, one) << n << " ranks over " << ranks::to_string(over);
  }
}

}  // namespace gpt_run
