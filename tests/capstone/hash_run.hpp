// SPDX-License-Identifier: MIT
// The run of the preset `hash` by the library's own calls, on a text made here: what tests of equal
// bits repeat under other threads, paths, compilers and environments.
#pragma once

#include <cstdint>
#include <string>

#include <halfstep/core/runtime.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/train/fit.hpp>

namespace hash_run {

namespace hs = halfstep;

struct Settings {
  hs::RuntimeOptions runtime{.threads = 1, .seed = 1, .isa = {}};
  float clip = 1.0F;
  float dropout = 0.1F;
  int steps = 20;
  int segments = 1;
  float first_scale = 0.0F;  ///< of a dynamic loss scale; 0: none
  char replace = 'e';        ///< 'e' in the text becomes this
};

struct Outcome {
  std::uint64_t hash = 0;
  double train_loss = 0.0, held_out = 0.0;
  std::int64_t micro_batches = 0, skipped = 0, replayed = 0;
  hs::core::Counters counters;
};

[[nodiscard]] inline std::string words(char replace) {
  const char* list[] = {"the ", "river ", "king ", "went ", "under ", "a ", "stone ", "house.\n"};
  std::string text;
  for (std::uint64_t i = 0; text.size() < 8000; ++i)
    text += list[hs::core::uniform_below(5, 17, i, 8)];
  for (char& c : text)
    c = c == 'e' ? replace : c;
  return text;
}

template <class T>
[[nodiscard]] Outcome run(const Settings& settings) {
  const auto text =
      hs::data::Text::from_string(words(settings.replace), {.seed = settings.runtime.seed});
  hs::Runtime runtime(settings.runtime);
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(),
                                        .context = 33,
                                        .layers = 2,
                                        .heads = 3,
                                        .width = 48,
                                        .dropout = settings.dropout});
  const hs::nn::SegmentedGpt<T> model(gpt, settings.segments);
  hs::mixed::LossScaler scaler =
      settings.first_scale == 0.0F
          ? hs::mixed::LossScaler::fixed(1.0F)
          : hs::mixed::LossScaler({.initial = settings.first_scale, .interval = 5});
  hs::mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  hs::mixed::MasterWeights<hs::optim::AdamW, T> optimizer(parameters,
                                                          {.beta2 = 0.99, .weight_decay = 0.1});
  hs::Tape tape(runtime);
  const auto fit = hs::train::fit(model, tape, optimizer, accumulator, scaler, text,
                                  {.steps = settings.steps,
                                   .lr = 3e-3F,
                                   .min_lr = 3e-4F,
                                   .warmup = 5,
                                   .clip = settings.clip,
                                   .rows = 4,
                                   .accumulate = 2});
  return {fit.weights_hash, fit.train_loss,      fit.held_out,      fit.micro_batches,
          fit.skipped,      tape.replayed_ops(), runtime.counters()};
}

}  // namespace hash_run
