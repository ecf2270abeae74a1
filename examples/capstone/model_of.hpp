// SPDX-License-Identifier: MIT
// The bodies of model.hpp for one format T. Included by model_float.cpp and its siblings alone.
#pragma once

#include <bit>
#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/io/safetensors.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/plateau.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>
#include <halfstep/train/early_stopping.hpp>
#include <halfstep/train/fit.hpp>
#include <halfstep/train/fit_state.hpp>
#include <halfstep/train/sample.hpp>

#include "gpt_options.hpp"
#include "model.hpp"
#include "scaler.hpp"

namespace capstone {

namespace hs = halfstep;

/// What a step of this model takes at its peak, before any of it is allocated: long-lived buffers by
/// their sizes, the rest by a dry run of one micro-batch, forward and backward.
template <class T>
[[nodiscard]] std::int64_t predict_peak(const Options& options, const auto& model,
                                        hs::Parameters<T>& parameters) {
  hs::Tape dry(parameters.runtime(), hs::Tape::Mode::dry);
  dry.begin({.rows = options.batch});
  const std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(options.batch) * static_cast<std::size_t>(options.context), 0);
  dry.backward(hs::cross_entropy(model(dry, tokens), tokens));
  // And one batch of an evaluation, as fit runs it.
  const int rows = (options.batch + 3) / 4;
  dry.begin({.rows = rows}, hs::Record::nothing);
  static_cast<void>(model(dry, std::span<const std::int32_t>(tokens).first(
                                   static_cast<std::size_t>(rows) * static_cast<std::size_t>(options.context))));
  const std::int64_t n = parameters.count();
  const auto trees = std::bit_width(static_cast<unsigned>(options.accumulate) - 1U);
  const std::int64_t gradients = 4 * n * std::max(1, static_cast<int>(trees));
  const std::int64_t master = hs::numeric::is_16bit<T> ? 4 * n : 0;
  std::int64_t norms = 0;  // one double for each block of 1024 elements of a parameter
  for (const auto& info : parameters.infos()) norms += 8 * ((info.elements + 1023) / 1024);
  return static_cast<std::int64_t>(sizeof(T)) * n + gradients + master + 8 * n + norms +
         dry.ledger().peak();
}

template <class T>
Trained train_model(const Options& options, hs::Runtime& runtime, const hs::data::Text& text,
                    const std::string& checkpoints, const std::string& weights_path,
                    const Listeners& listeners) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, text.vocabulary()));
  Trained result;
  result.parameters = parameters.count();
  const hs::nn::SegmentedGpt<T> model(gpt, segments_of(options));
  result.predicted_peak = predict_peak(options, model, parameters);

  hs::mixed::LossScaler scaler = make_scaler(options);
  hs::mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  hs::mixed::MasterWeights<hs::optim::AdamW, T> optimizer(
      parameters, {.beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps,
                   .weight_decay = options.weight_decay});
  hs::train::FitState state{.stopping = hs::train::EarlyStopping({.patience = options.patience})};
  if (options.plateau_patience > 0) {
    state.plateau.emplace(hs::optim::PlateauOptions{.factor = options.plateau_factor,
                                                    .patience = options.plateau_patience - 1});
  }
  hs::io::Run run({.directory = checkpoints,
                   .keep = options.keep,
                   .config = identity_json(options),
                   .data_hash = text.hash(),
                   .report = listeners.on_note},
                  parameters, optimizer, scaler, state);
  listeners.on_start({.groups = hs::optim::to_string(optimizer.groups()),
                      .iteration = state.iteration,
                      .evaluated = state.evaluated == state.iteration});
  // The best so far is saved where it is found; else a run's best would only be the best of the due ones.
  const auto save = [&](const hs::train::SavePoint& at) {
    const bool due = options.checkpoint_every > 0 &&
                     (at.iteration % options.checkpoint_every == 0 || at.improved || at.last);
    if (!due && !(at.last && listeners.should_stop())) return;
    listeners.before_save();
    run.save(at.iteration, at.evaluated ? std::optional(at.loss) : std::nullopt);
  };
  {
    hs::Tape tape(runtime);
    const auto fit = hs::train::fit(model, tape, optimizer, accumulator, scaler, text,
                                    {.steps = options.steps,
                                     .lr = options.lr,
                                     .min_lr = options.min_lr,
                                     .warmup = options.warmup,
                                     .clip = options.clip,
                                     .rows = options.batch,
                                     .accumulate = options.accumulate,
                                     .evaluate_every = options.eval_every},
                                    {.on_step = listeners.on_step,
                                     .on_evaluate = listeners.on_evaluate,
                                     .on_save_point = save,
                                     .should_stop = listeners.should_stop},
                                    state);
    result.stopped = fit.stopped;
    result.iterations = fit.iterations;
    result.steps = fit.steps;
    result.skipped_steps = fit.skipped;
    result.micro_batches = fit.micro_batches;
    result.tokens = fit.tokens;
    result.train_loss = fit.train_loss;
    result.evaluation = fit.evaluation;
    result.train_seconds = fit.train_seconds;
    result.tokens_per_second = fit.tokens_per_second();
    result.median_step_seconds = fit.median_step_seconds;
    result.weights_hash = fit.weights_hash;
    result.train_flops = fit.flops;
    result.underflow = fit.underflow;
    result.replayed_ops = tape.replayed_ops();
    result.peak = runtime.ledger().peak();
    result.at_peak = runtime.ledger().at_peak();
    result.counters = runtime.counters();
  }
  if (result.stopped) return result;
  result.loss_scale = scaler.scale();
  hs::io::StateWriter writer;
  parameters.visit_state(writer);
  hs::io::write_safetensors(weights_path, writer.entries(),
                            {{"format", std::string(hs::format_name<T>)}, {"program", "halfstep capstone"}});
  result.sample = hs::train::sample(gpt, parameters, text, "",
                                    {.length = 300, .seed = options.seed, .should_stop = listeners.should_stop});
  if (listeners.should_stop()) {  // between the end of training and that of the sample
    result.stopped = true;
    save({.iteration = state.iteration,
          .last = true,
          .evaluated = true,
          .loss = result.evaluation.nats_per_token()});
  }
  return result;
}

/// The weights of a finished run. @throws hs::FileError if they are not of this model.
template <class T>
void load_weights(hs::Parameters<T>& parameters, const std::string& path) {
  const auto file = hs::io::read_safetensors(path);
  try {
    hs::io::TensorReader reader(file, path);
    parameters.visit_state(reader);
    reader.finish();
  } catch (const hs::FileError& error) {
    hs::core::fail<hs::FileError>(error.what(), " Are weights, tokenizer.txt and config.json of the same run?");
  }
}

template <class T>
hs::train::Evaluation evaluate_model(const Options& options, hs::Runtime& runtime,
                                     const hs::data::Tokenizer& tokenizer,
                                     std::span<const std::int32_t> tokens, int rows,
                                     const std::string& weights_path) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, tokenizer.vocabulary()));
  load_weights(parameters, weights_path);
  hs::Tape tape(runtime);
  auto result = hs::train::evaluate_tokens(gpt, tape, tokens, {.rows = rows});
  result.bytes = tokenizer.count_bytes(tokens.subspan(1));
  return result;
}

template <class T>
std::string sample_model(const Options& options, hs::Runtime& runtime,
                         const hs::data::Tokenizer& tokenizer, const ReadOptions& what,
                         const std::string& weights_path,
                         const std::function<void(std::string_view)>& on_text) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, tokenizer.vocabulary()));
  load_weights(parameters, weights_path);
  hs::Tape tape(runtime);
  return hs::train::sample(gpt, tape, tokenizer, what.prompt,
                           {.length = what.length,
                            .temperature = what.temperature,
                            .seed = what.seed,
                            .on_text = on_text});
}

/// Compiles all of it for T.
#define CAPSTONE_FORMAT(T)                                                                          \
  template Trained train_model<T>(const Options&, halfstep::Runtime&, const halfstep::data::Text&,  \
                                  const std::string&, const std::string&, const Listeners&);        \
  template halfstep::train::Evaluation evaluate_model<T>(                                           \
      const Options&, halfstep::Runtime&, const halfstep::data::Tokenizer&,                         \
      std::span<const std::int32_t>, int, const std::string&);                                      \
  template std::string sample_model<T>(const Options&, halfstep::Runtime&,                          \
                                       const halfstep::data::Tokenizer&, const ReadOptions&,        \
                                       const std::string&,                                          \
                                       const std::function<void(std::string_view)>&)

}  // namespace capstone
