// SPDX-License-Identifier: MIT
// The training loop for a language model on a text or shards: windows, updates, schedule,
// evaluation, hooks. It calls nothing that a loop of one's own cannot call; README has that loop.
// Not for: other data or losses: write the loop, it is twenty lines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/data/crops.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/lost_updates.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/optim/warmup_cosine.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>
#include <halfstep/train/fit_state.hpp>
#include <halfstep/train/step_info.hpp>
#include <halfstep/train/telemetry.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

struct FitOptions {
  std::int64_t steps = 1000;        ///< iterations: windows begun, skipped updates included
  float lr = 1e-3F;                 ///< at the end of the warm-up
  float min_lr = 1e-4F;             ///< where the cosine ends
  std::int64_t warmup = 100;        ///< updates
  float clip = 1.0F;                ///< limit of the gradient's norm; 0: no clipping
  int rows = 8;                     ///< rows of a micro-batch
  int length = 0;                   ///< tokens of a row; 0: the model's context
  int accumulate = 1;               ///< micro-batches of a window
  std::int64_t evaluate_every = 0;  ///< iterations between evaluations; 0: one, at the end
  int evaluate_stride = 0;          ///< EvaluateOptions::stride of them
  int most_skips = 50;              ///< skipped updates in a row that end the run: it has diverged
  // The rest is for the short form alone, which makes its own optimizer and scaler.
  double weight_decay = 0.1;  ///< of weights and tables; norms and biases do not decay
  double beta1 = 0.9, beta2 = 0.99;
};

/// What is called while a loop runs; an empty one is not.
struct Hooks {
  std::function<void(const StepInfo&)> on_step{};
  std::function<void(const EvaluationInfo&)> on_evaluate{};
  /// Of the window before each evaluation that `evaluate_every` or the last iteration asks for; not
  /// where the run was stopped. It reads gradient and weights once more, and where it is empty,
  /// nothing of this is paid.
  std::function<void(const TelemetryInfo&)> on_telemetry{};
  /// Called where a run can be saved: when an iteration and the evaluation after it are done, and
  /// where should_stop ends the run. The state that fit was given is then the run's.
  std::function<void(const SavePoint&)> on_save_point{};
  /// Asked before each micro-batch and each batch of an evaluation. True ends the run there: a
  /// window or an evaluation that has begun is dropped, and done anew by whoever resumes.
  std::function<bool()> should_stop{};
  EvaluateShare evaluate_share{};  ///< where other processes evaluate with this one
};

struct FitResult {
  bool stopped = false;  ///< should_stop ended the run: the figures are those so far
  std::int64_t iterations = 0;
  std::int64_t steps = 0;  ///< updates applied, all the optimizer's, earlier ones included
  std::int64_t skipped = 0;
  std::int64_t micro_batches = 0;  ///< whose backward pass was done
  std::int64_t tokens = 0;         ///< targets trained on
  double train_loss = 0.0;         ///< nats a token, mean over the last 50 updates or fewer
  double held_out = 0.0;           ///< nats a token, of the last evaluation
  Evaluation evaluation{};         ///< all of it
  mixed::Underflow underflow{};    ///< of the last window's gradient
  std::uint64_t weights_hash = 0;  ///< of the weights in full precision, see tensor/hash.hpp
  // The rest is of this call alone; what is above is of the whole run, before a resume as well.
  double train_seconds = 0.0;        ///< of windows and updates, without evaluations and hooks
  double median_step_seconds = 0.0;  ///< of one window with its update
  std::uint64_t flops = 0;       ///< useful operations of windows and updates, counted in kernels
  std::int64_t tokens_here = 0;  ///< targets trained on
  std::int64_t tokens_of_process = 0;  ///< of those, by this process, where others do the rest
  std::string ended_by_scaler{};  ///< why the loss scaler ended the run early; empty if it did not

  [[nodiscard]] double tokens_per_second() const {
    return train_seconds > 0.0 ? static_cast<double>(tokens_here) / train_seconds : 0.0;
  }
};

namespace detail {

using Clock = std::chrono::steady_clock;
[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void check(const FitOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least) {
      core::fail<OptionError>("fit: ", name, " is ", value, "; wanted at least ", least);
    }
  };
  at_least("steps", options.steps, 1);
  at_least("rows", options.rows, 1);
  at_least("accumulate", options.accumulate, 1);
  at_least("warmup", options.warmup, 0);
  at_least("evaluate_every", options.evaluate_every, 0);
  at_least("most_skips", options.most_skips, 1);
  if (!(options.clip >= 0.0F)) {
    core::fail<OptionError>("fit: clip is ", options.clip,
                            "; wanted a limit above 0, or 0 for none");
  }
}

/// A pass that records nothing still keeps every op's output until the next begin. A quarter of the
/// rows keeps it below a training pass, segments or not, so that evaluating sets no peak.
[[nodiscard]] inline int evaluation_rows(const FitOptions& options) {
  return (options.rows + 3) / 4;
}

/// By the model's own head where it has one that keeps no logits: the same bits.
template <class Model>
[[nodiscard]] Loss loss_of(const Model& model, Tape& tape, const data::Batch& batch) {
  if constexpr (requires { model.loss(tape, batch.inputs, batch.targets); }) {
    return model.loss(tape, batch.inputs, batch.targets);
  } else {
    return cross_entropy(model(tape, batch.inputs), batch.targets);
  }
}

/// What went wrong when a number is not finite, and what to do.
[[noreturn]] inline void fail_non_finite(const char* what, double value, const StepInfo& info,
                                         const std::string& where) {
  core::fail<NumericError>("fit: the ", what, " of iteration ", info.iteration, " is ",
                           std::isnan(value) ? std::string("nan") : core::text(value), where,
                           " (lr ", info.lr, ", loss scale ", info.scale,
                           "). Lower lr, lengthen the warm-up or set clip; with fp16 use a dynamic "
                           "loss scale.");
}

[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace detail

/// Runs iterations state.iteration to `options.steps` - 1, then evaluates. Windows, crops and
/// dropout are keyed by the iteration, learning rates by optimizer.steps(). FitResult::underflow is
/// counted in the last of these iterations, where its gradient is read anyway, so it stays 0 when
/// should_stop, or a scaler at its floor, ends the run before.
///
///   model        model(tape, inputs) gives logits [rows, length, vocabulary], as nn::Gpt does; a
///                lambda around a model may do more. Its loss(tape, inputs, targets), where there
///                is one, is what is trained on, else the cross-entropy of the logits
///   tape         of the same Runtime as the parameters
///   accumulator  of the same parameters, made with `scaler`
///   text         data::Text, data::Shards, or whatever has their require_context(length),
///                batch(micro, length, out) and held_out()
///   state        new, or restored together with parameters, optimizer and scaler: then the rest of
///                the run has the bits that it would have had
///
/// A loss or gradient that is not finite ends the run, unless the loss scale is dynamic: then the
/// update is skipped, the scale falls, and only `most_skips` skips in a row end it. A scaler that
/// asks to stop at its floor ends it too, as `should_stop` does, and FitResult::stopped says why.
///
/// @throws NumericError naming the iteration for those; OptionError for options out of range;
/// DataError if the text is shorter than a row.
template <class Model, class T, class Optimizer, class Data>
FitResult fit(const Model& model, Tape& tape, Optimizer& optimizer,
              mixed::GradientAccumulator<T>& accumulator, const mixed::LossScaler& scaler,
              const Data& text, const FitOptions& options, const Hooks& hooks, FitState& state) {
  detail::check(options);
  const int length = detail::length_of(model, options.length, "fit");
  text.require_context(length);
  static_cast<void>(data::windows_of({}, length, options.evaluate_stride));  // not after training
  const optim::WarmupCosine schedule{options.lr, options.min_lr, options.warmup, options.steps};
  const auto start = detail::Clock::now();
  std::vector<double> seconds;
  FitResult result;
  data::Batch batch;
  // Of an optimizer that shows its weights in full precision, as MasterWeights does.
  constexpr bool shows_weights = requires(Optimizer & o, tensor::StateHash & visitor) {
    o.visit_weights(visitor);
  };
  std::optional<mixed::LostUpdates<T>> lost_updates;
  if (shows_weights && hooks.on_telemetry) lost_updates.emplace(accumulator.parameters());

  const auto nats_per_token = [&] {
    // Under the house's floating-point environment, as every figure that runs are compared by.
    double nats = 0.0;
    tape.runtime().compute().parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { nats = state.evaluation.nats_per_token(); });
    return nats;
  };
  const auto done = [&] {
    return state.iteration >= options.steps || state.stopping.stop() ||
           !result.ended_by_scaler.empty();
  };

  const auto evaluate_now = [&] {
    EvaluationInfo info{
        .iteration = state.iteration, .iterations = options.steps, .step = optimizer.steps()};
    info.evaluation = evaluate(model, tape, text,
                               {.length = length,
                                .stride = options.evaluate_stride,
                                .rows = detail::evaluation_rows(options),
                                .should_stop = hooks.should_stop,
                                .share = hooks.evaluate_share});
    info.seconds = detail::seconds_since(start);
    state.evaluation = info.evaluation;
    state.evaluated = state.iteration;
    info.improved = state.stopping.observe(nats_per_token(), state.iteration);
    if (state.plateau) state.plateau->observe(nats_per_token());
    if (hooks.on_evaluate) hooks.on_evaluate(info);
  };
  const auto save_point = [&](bool last) {
    if (!hooks.on_save_point) return;
    const bool evaluated = state.evaluated == state.iteration;
    hooks.on_save_point(
        {.iteration = state.iteration,
         .last = last,
         .evaluated = evaluated,
         .improved = evaluated && state.stopping.best_iteration() == state.iteration,
         .loss = nats_per_token()});
  };
  // The evaluation that is due after the windows done so far, also where a stop came before it.
  const auto settle = [&](bool stepped) {
    const bool due =
        state.evaluated != state.iteration && state.iteration > 0 &&
        (done() || (options.evaluate_every > 0 && state.iteration % options.evaluate_every == 0));
    if (due) evaluate_now();
    if (due || stepped) save_point(done());
  };

  const auto one_iteration = [&] {
    const std::int64_t iteration = state.iteration;
    const auto began = detail::Clock::now();
    const std::uint64_t flops_before = tape.runtime().counters().flops;
    StepInfo info{.iteration = iteration, .iterations = options.steps};
    info.lr = schedule(optimizer.steps());
    if (state.plateau) info.lr = (*state.plateau)(info.lr);
    const bool evaluates =
        options.evaluate_every > 0 && (iteration + 1) % options.evaluate_every == 0;
    const bool measures = hooks.on_telemetry && (evaluates || iteration + 1 == options.steps);
    TelemetryInfo telemetry;
    if constexpr (shows_weights) {
      if (measures) lost_updates->before(optimizer);
    }
    optim::StepResult outcome;
    std::int64_t micro_batches = 0;  // here: other processes of the step do theirs
    {
      auto window = accumulator.begin(
          tape, iteration,
          {.micro_batches = options.accumulate, .rows = options.rows, .targets_per_row = length});
      for (const MicroBatch& micro : window) {
        if (hooks.should_stop && hooks.should_stop()) core::fail<Stopped>("fit: stopped");
        text.batch(micro, length, batch);
        tape.begin(micro);
        window.backward(tape, detail::loss_of(model, tape, batch));
        ++micro_batches;
      }
      info.scale = scaler.scale();
      result.tokens_of_process += static_cast<std::int64_t>(window.count());
      const bool last = iteration + 1 == options.steps;
      auto gradients = std::move(window).unscale(last ? &result.underflow : nullptr);
      info.tokens = static_cast<std::int64_t>(gradients.count());
      info.loss = gradients.loss();
      if (!std::isfinite(info.loss) && !scaler.dynamic()) {
        detail::fail_non_finite("loss", info.loss, info, "");
      }
      if (measures) telemetry.gradients = mixed::gradient_magnitudes(gradients);
      outcome = options.clip > 0.0F
                    ? optimizer.step(std::move(gradients).clip_norm(options.clip), info.lr)
                    : optimizer.step(std::move(gradients), info.lr);
      info.norm = outcome.norm;
      info.clipped_by = outcome.clipped_by;
      info.applied = outcome.applied;
      info.first_bad = outcome.first_bad;
    }
    state.skips_in_a_row = info.applied ? 0 : state.skips_in_a_row + 1;
    if (outcome.scale_change == optim::ScaleChange::stop) {
      result.ended_by_scaler =
          core::text("iteration ", iteration, ": in '", info.first_bad, "' ", scaler.floor_text());
    }
    if (!info.applied) {
      ++state.skipped;
      if (result.ended_by_scaler.empty() &&
          (!scaler.dynamic() || state.skips_in_a_row >= options.most_skips)) {
        detail::fail_non_finite(
            "gradient", info.norm, info,
            core::text(" in '", info.first_bad, "', the update of which was skipped ",
                       state.skips_in_a_row, " times in a row"));
      }
    }
    info.step = optimizer.steps();
    info.step_seconds = detail::seconds_since(began);
    info.seconds = detail::seconds_since(start);
    state.micro_batches += micro_batches;
    state.tokens += info.tokens;
    result.tokens_here += info.tokens;
    result.flops += tape.runtime().counters().flops - flops_before;
    result.train_seconds += info.step_seconds;
    if (info.applied) state.losses.push(info.loss);
    seconds.push_back(info.step_seconds);
    state.iteration = iteration + 1;
    if (hooks.on_step) hooks.on_step(info);
    if (measures) {
      if constexpr (shows_weights) {  // those of a double model as if they were floats
        using Weight = std::conditional_t<std::same_as<T, double>, float, T>;
        telemetry.updates = lost_updates->template after<Weight>(optimizer);
      }
      telemetry.iteration = iteration + 1;
      telemetry.step = info.step;
      telemetry.scale = info.scale;
      hooks.on_telemetry(telemetry);
    }
  };

  try {
    settle(false);
    while (!done()) {
      one_iteration();
      settle(true);
    }
  } catch (const Stopped&) {
    result.stopped = true;
    save_point(true);
  }
  result.evaluation = state.evaluation;
  result.held_out = nats_per_token();
  if (!result.stopped && !std::isfinite(result.held_out)) {
    if (!result.ended_by_scaler.empty()) core::fail<NumericError>("fit: ", result.ended_by_scaler);
    core::fail<NumericError>(
        "fit: the held-out loss after iteration ", state.iteration, " is ", result.held_out,
        ". The last updates have broken the weights: lower lr ", "or set clip.");
  }
  result.iterations = state.iteration;
  result.steps = optimizer.steps();
  result.skipped = state.skipped;
  result.micro_batches = state.micro_batches;
  result.tokens = state.tokens;
  tape.runtime().compute().parallel(
      1, 1, [&](std::int64_t, std::int64_t, int) { result.train_loss = state.losses.mean(); });
  result.median_step_seconds = detail::median(std::move(seconds));
  result.weights_hash = optimizer.weights_hash();
  return result;
}

/// As above, from the beginning.
template <class Model, class T, class Optimizer, class Data>
FitResult fit(const Model& model, Tape& tape, Optimizer& optimizer,
              mixed::GradientAccumulator<T>& accumulator, const mixed::LossScaler& scaler,
              const Data& text, const FitOptions& options = {}, const Hooks& hooks = {}) {
  FitState state;
  return fit(model, tape, optimizer, accumulator, scaler, text, options, hooks, state);
}

/// The short form: AdamW, with float master weights where T is a 16-bit format, a dynamic loss
/// scale for fp16, clipping, and the schedule that the options name.
template <class Model, class T, class Data>
FitResult fit(const Model& model, Parameters<T>& parameters, const Data& text,
              const FitOptions& options = {}, const Hooks& hooks = {}) {
  const optim::AdamWOptions adamw{
      .beta1 = options.beta1, .beta2 = options.beta2, .weight_decay = options.weight_decay};
  mixed::MasterWeights<optim::AdamW, T> optimizer(parameters, adamw);
  mixed::LossScaler scaler =
      std::same_as<T, fp16> ? mixed::LossScaler() : mixed::LossScaler::fixed(1.0F);
  mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  Tape tape(parameters.runtime());
  return fit(model, tape, optimizer, accumulator, scaler, text, options, hooks);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
