// SPDX-License-Identifier: MIT
// The bodies of model.hpp for one format T. Included by model_float.cpp and its siblings alone.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/io/safetensors.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/weight_average.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/plateau.hpp>
#include <halfstep/optim/warmup_cosine.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>
#include <halfstep/train/early_stopping.hpp>
#include <halfstep/train/fit.hpp>
#include <halfstep/train/fit_state.hpp>
#include <halfstep/train/sample.hpp>
#include <halfstep/train/shadow.hpp>

#include "gpt_options.hpp"
#include "model.hpp"
#include "scaler.hpp"

namespace capstone {

namespace hs = halfstep;

/// The average of the weights, or none: what a run without --ema has to save of it.
struct Average {
  std::optional<hs::mixed::WeightAverage> weights;
  Average(const Options& options, const hs::tensor::ParameterTable& parameters) {
    if (options.ema > 0.0) weights.emplace(parameters, hs::mixed::WeightAverageOptions{.decay = options.ema});
  }
  template <hs::tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    if (weights) weights->visit_state(visitor);
  }
};

/// A run without memory: all that training makes, on a dry runtime, so that its account says what the
/// run will take.
template <class T>
class Rehearsal {
 public:
  Rehearsal(const Options& options, hs::Runtime& runtime, int vocabulary)
      : options_(options),
        dry_({.threads = runtime.threads(), .seed = options.seed, .isa = runtime.isa(), .dry = true}),
        parameters_(dry_),
        gpt_(parameters_, gpt_options(options, vocabulary)),
        accumulator_(parameters_),
        optimizer_(parameters_),
        average_(options, parameters_),
        tape_(dry_) {}

  /// The blocks as --recompute says; of a budget the cheapest plan that keeps the whole account in it.
  /// @throws OptionError naming the smallest budget if none does.
  [[nodiscard]] hs::autograd::Schedule schedule() {
    const auto budget = budget_of(options_);
    if (!budget) return hs::autograd::uniform(options_.layers, segments_of(options_));
    const auto window = begin();
    return hs::nn::plan_recompute(gpt_, options_.batch, options_.context, *budget, dry_.ledger().live()).require().schedule;
  }

  /// The peak of the account over steps and evaluations.
  [[nodiscard]] std::int64_t peak(const hs::autograd::Schedule& schedule) {
    const hs::nn::SegmentedGpt<T> model(gpt_, schedule);
    const std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(options_.batch) * static_cast<std::size_t>(options_.context), 0);
    {
      auto window = begin();
      for (const auto micro : window) {
        tape_.begin(micro);
        window.backward(tape_, model.loss(tape_, tokens, tokens));
      }
      static_cast<void>(optimizer_.step(std::move(window).unscale(), options_.lr));
    }
    const int rows = (options_.batch + 3) / 4;  // as fit evaluates
    tape_.begin({.rows = rows}, hs::Record::nothing);
    static_cast<void>(model(tape_, std::span<const std::int32_t>(tokens).first(
                                       static_cast<std::size_t>(rows) * static_cast<std::size_t>(options_.context))));
    return dry_.ledger().peak();
  }

 private:
  [[nodiscard]] auto begin() {
    return accumulator_.begin(tape_, 0, {.micro_batches = options_.accumulate, .rows = options_.batch, .targets_per_row = options_.context});
  }

  const Options& options_;
  hs::Runtime dry_;
  hs::Parameters<T> parameters_;
  hs::nn::Gpt<T> gpt_;
  hs::mixed::GradientAccumulator<T> accumulator_;
  hs::mixed::MasterWeights<hs::optim::AdamW, T> optimizer_;
  Average average_;
  hs::Tape tape_;
};

/// Iteration `iteration` from where the run stands, beside the same in double.
template <class T>
[[nodiscard]] hs::train::Divergence next_step_in_double(
    const Options& options, const Corpus& text, hs::Parameters<T>& parameters,
    hs::mixed::MasterWeights<hs::optim::AdamW, T>& optimizer, const hs::mixed::LossScaler& scaler,
    std::int64_t iteration) {
  const hs::optim::WarmupCosine lr{options.lr, options.min_lr, options.warmup, options.steps};
  return hs::train::shadow_step<hs::nn::Gpt>(
      parameters, optimizer,
      {.iteration = iteration,
       .shape = {.micro_batches = options.accumulate, .rows = options.batch, .targets_per_row = options.context},
       .scale = scaler.scale(),
       .clip = options.clip,
       .lr = lr(optimizer.steps())},
      [&]<class U>(const hs::nn::Gpt<U>& model, hs::Tape& tape, const hs::MicroBatch& micro) {
        const auto batch = text.batch(micro, options.context);
        return hs::cross_entropy(model(tape, batch.inputs), batch.targets);
      },
      gpt_options(options, text.vocabulary()));
}

/// The weights, for Python too.
template <class T>
void write_weights(hs::Parameters<T>& parameters, const std::string& path) {
  hs::io::StateWriter writer;
  parameters.visit_state(writer);
  hs::io::write_safetensors(path, writer.entries(),
                            {{"format", std::string(hs::format_name<T>)}, {"program", "halfstep capstone"}});
}

template <class T>
Trained train_model(const Options& options, hs::Runtime& runtime, const Corpus& text,
                    const std::string& checkpoints, const std::string& weights_path,
                    const std::string& average_path, const Listeners& listeners) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, text.vocabulary()));
  Trained result;
  result.parameters = parameters.count();
  const auto schedule = [&] {
    Rehearsal<T> rehearsal(options, runtime, text.vocabulary());
    auto chosen = rehearsal.schedule();
    result.predicted_peak = rehearsal.peak(chosen);
    return chosen;
  }();
  const hs::nn::SegmentedGpt<T> model(gpt, schedule);

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
  Average average(options, parameters);
  hs::io::Run run({.directory = checkpoints,
                   .keep = options.keep,
                   .config = identity_json(options),
                   .data_hash = text.hash(),
                   .report = listeners.on_note},
                  parameters, optimizer, scaler, state, average);
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
  hs::train::Hooks hooks{.on_step =
                             [&](const hs::train::StepInfo& info) {
                               if (info.applied && average.weights) average.weights->update(optimizer);
                               listeners.on_step(info);
                             },
                         .on_evaluate = listeners.on_evaluate,
                         .on_save_point = save,
                         .should_stop = listeners.should_stop};
  if (options.telemetry) {
    hooks.on_telemetry = [&](const hs::train::TelemetryInfo& info) {
      result.telemetry = info;
      listeners.on_telemetry(info);
    };
    hooks.on_evaluate = [&](const hs::train::EvaluationInfo& info) {
      listeners.on_evaluate(info);
      result.shadow = next_step_in_double(options, text, parameters, optimizer, scaler, info.iteration);
      listeners.on_shadow(result.shadow);
    };
  }
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
                                    hooks, state);
    result.stopped = fit.stopped;
    result.ended_by_scaler = fit.ended_by_scaler;
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
  write_weights(parameters, weights_path);
  hs::Tape tape(runtime);
  if (average.weights) {
    auto averaged = parameters.template as<T>();
    const hs::nn::Gpt<T> other(averaged, gpt.options);
    average.weights->copy_to(averaged);
    try {
      result.average_evaluation = hs::train::evaluate(
          other, tape, text, {.rows = (options.batch + 3) / 4, .should_stop = listeners.should_stop});
    } catch (const hs::train::Stopped&) {  // as within the sample, below
    }
    result.average_hash = hs::tensor::state_hash(average);
    write_weights(averaged, average_path);
  }
  result.sample = hs::train::sample(gpt, tape, text.tokenizer(), "",
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
                           {.length = what.tokens,
                            .temperature = what.temperature,
                            .top_k = what.top_k,
                            .top_p = what.top_p,
                            .seed = what.seed,
                            .on_text = on_text});
}

/// Compiles all of it for T.
#define CAPSTONE_FORMAT(T)                                                                          \
  template Trained train_model<T>(const Options&, halfstep::Runtime&, const Corpus&,                \
                                  const std::string&, const std::string&, const std::string&,       \
                                  const Listeners&);                                                \
  template halfstep::train::Evaluation evaluate_model<T>(                                           \
      const Options&, halfstep::Runtime&, const halfstep::data::Tokenizer&,                         \
      std::span<const std::int32_t>, int, const std::string&);                                      \
  template std::string sample_model<T>(const Options&, halfstep::Runtime&,                          \
                                       const halfstep::data::Tokenizer&, const ReadOptions&,        \
                                       const std::string&,                                          \
                                       const std::function<void(std::string_view)>&)

}  // namespace capstone
