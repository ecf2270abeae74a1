// SPDX-License-Identifier: MIT
// The bodies of model.hpp for one format T. Included by model_float.cpp and its siblings alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/resident_memory.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/one_host.hpp>
#include <halfstep/dist/parallel/whole_state.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/io/safetensors.hpp>
#include <halfstep/mixed/any_optimizer.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/underflow.hpp>
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
#include <halfstep/tensor/placement.hpp>
#include <halfstep/train/early_stopping.hpp>
#include <halfstep/train/evaluate.hpp>
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
    if (options.ema > 0.0)
      weights.emplace(parameters, hs::mixed::WeightAverageOptions{.decay = options.ema});
  }
  template <hs::tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    if (weights) weights->visit_state(visitor);
  }
};

/// A run without memory: all that training makes, on a dry runtime, so that its account says what
/// the run will take.
template <class T>
class Rehearsal {
 public:
  Rehearsal(const Options& options, hs::Runtime& runtime, int vocabulary)
      : options_(options),
        dry_({.threads = runtime.threads(),
              .seed = options.seed,
              .isa = runtime.isa(),
              .dry = true}),
        parameters_(dry_),
        gpt_(parameters_, gpt_options(options, vocabulary)),
        accumulator_(parameters_),
        optimizer_(parameters_),
        average_(options, parameters_),
        tape_(dry_) {}

  /// The blocks as --recompute says; of a budget the cheapest plan that keeps the whole account in
  /// it. @throws OptionError naming the smallest budget if none does.
  [[nodiscard]] hs::autograd::Schedule schedule() {
    const auto budget = budget_of(options_);
    if (!budget) return hs::autograd::uniform(options_.layers, segments_of(options_));
    const auto window = begin();
    return hs::nn::plan_recompute(gpt_, options_.batch, options_.context, *budget,
                                  dry_.ledger().live())
        .require()
        .schedule;
  }

  /// The peak of the account over steps and evaluations, and where the blocks of a step lie best.
  [[nodiscard]] std::pair<std::int64_t, hs::tensor::Placement> peak(
      const hs::autograd::Schedule& schedule) {
    const hs::nn::SegmentedGpt<T> model(gpt_, schedule);
    hs::tensor::Placement placement;
    const std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(options_.batch) * static_cast<std::size_t>(options_.context), 0);
    {
      auto window = begin();
      for (const auto micro : window) {
        tape_.begin(micro);
        window.backward(tape_, model.loss(tape_, tokens, tokens));
      }
      placement = tape_.placement();
      static_cast<void>(optimizer_.step(std::move(window).unscale(), options_.lr));
    }
    const int rows = (options_.batch + 3) / 4;  // as fit evaluates
    tape_.begin({.rows = rows}, hs::Record::nothing);
    static_cast<void>(model(
        tape_, std::span<const std::int32_t>(tokens).first(
                   static_cast<std::size_t>(rows) * static_cast<std::size_t>(options_.context))));
    return {dry_.ledger().peak(), std::move(placement)};
  }

 private:
  [[nodiscard]] auto begin() {
    return accumulator_.begin(tape_, 0,
                              {.micro_batches = options_.accumulate / options_.ranks,
                               .rows = options_.batch,
                               .targets_per_row = options_.context});
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
       .shape = {.micro_batches = options.accumulate,
                 .rows = options.batch,
                 .targets_per_row = options.context},
       .scale = scaler.scale(),
       .clip = options.clip,
       .lr = lr(optimizer.steps())},
      [&]<class U>(const hs::nn::Gpt<U>& model, hs::Tape& tape, const hs::MicroBatch& micro) {
        const auto batch = text.batch(micro, options.context);
        return hs::cross_entropy(model(tape, batch.inputs), batch.targets);
      },
      gpt_options(options, text.vocabulary()));
}

/// The optimizer that --zero asks for, and what joins the gradients of the ranks. Each is compiled
/// once, and fit sees one type.
template <class T>
class Trainer {
 public:
  using Whole = hs::mixed::MasterWeights<hs::optim::AdamW, T>;

  Trainer(const Options& options, hs::dist::Group& group, hs::Parameters<T>& parameters) {
    const hs::optim::AdamWOptions adamw{.beta1 = options.beta1,
                                        .beta2 = options.beta2,
                                        .eps = options.eps,
                                        .weight_decay = options.weight_decay};
    const hs::dist::ShardOptions shard{.bucket_bytes = options.bucket};
    if (options.zero == 1 && group.transport().shared() != nullptr) {
      use<hs::dist::OneHost<Whole>>(group, parameters, adamw);
    } else if (options.zero == 1) {
      use<hs::dist::Zero1<Whole>>(group, parameters, adamw, shard);
    }
    if (options.zero == 2) use<hs::dist::Zero2<Whole>>(group, parameters, adamw, shard);
    if (options.zero == 3) {
      auto& sharded = use<hs::dist::Zero3<Whole>>(group, parameters, adamw, shard);
      gathered_ = [&sharded] { return sharded.gathered(); };
    }
    if (options.zero > 0) return;
    data_parallel_ = std::make_unique<hs::dist::DataParallel<T>>(
        group, parameters,
        hs::dist::DataParallelOptions{.bucket_bytes = options.bucket,
                                      .algorithm = hs::dist::algorithm(options.algorithm)});
    ranks_ = data_parallel_.get();
    auto made = std::make_unique<hs::mixed::OptimizerOf<Whole>>(parameters, adamw);
    whole_ = &made->get();
    optimizer_ = std::move(made);
  }

  [[nodiscard]] hs::mixed::AnyOptimizer<T>& optimizer() { return *optimizer_; }
  [[nodiscard]] hs::mixed::Processes<float>& ranks() { return *ranks_; }
  /// Without ZeRO.
  [[nodiscard]] Whole& whole() { return *whole_; }
  /// Elements of parameters that ZeRO 3 gathered so far.
  [[nodiscard]] std::int64_t gathered() const { return gathered_ ? gathered_() : 0; }

 private:
  template <class Sharded>
  Sharded& use(auto&&... args) {
    auto made = std::make_unique<hs::mixed::OptimizerOf<Sharded>>(args...);
    Sharded& sharded = made->get();
    ranks_ = &sharded.ranks();
    optimizer_ = std::move(made);
    return sharded;
  }

  std::unique_ptr<hs::dist::DataParallel<T>> data_parallel_;
  std::unique_ptr<hs::mixed::AnyOptimizer<T>> optimizer_;
  hs::mixed::Processes<float>* ranks_ = nullptr;
  Whole* whole_ = nullptr;
  std::function<std::int64_t()> gathered_;
};

/// The state of a run as one process would have it, for checkpoints that any number of ranks and
/// any --zero can go on from. Rank 0 reads and writes them.
template <class T>
class Checkpoints {
 public:
  /// All ranks go on from the newest checkpoint, if there is one.
  Checkpoints(hs::dist::Group& group, const hs::io::RunOptions& options,
              hs::Parameters<T>& parameters, hs::mixed::AnyOptimizer<T>& optimizer,
              hs::mixed::LossScaler& scaler, hs::train::FitState& state, Average& average)
      : weights_(group, parameters),
        optimizer_(group, optimizer),
        scaler_(group, scaler),
        state_(group, state),
        average_(group, average) {
    gather();
    if (group.rank() == 0) run_.emplace(options, weights_, optimizer_, scaler_, state_, average_);
    const auto scatter = [](auto&... parts) { (parts.scatter(), ...); };
    scatter(weights_, optimizer_, scaler_, state_, average_);
    drop();
  }
  void save(std::int64_t iteration, std::optional<double> metric) {
    gather();
    if (run_) run_->save(iteration, metric);
    drop();
  }

 private:
  void gather() {
    const auto all = [](auto&... parts) { (parts.gather(), ...); };
    all(weights_, optimizer_, scaler_, state_, average_);
  }
  void drop() {
    const auto all = [](auto&... parts) { (parts.drop(), ...); };
    all(weights_, optimizer_, scaler_, state_, average_);
  }

  template <class Part>
  using Whole = hs::dist::WholeState<Part>;
  Whole<hs::Parameters<T>> weights_;
  Whole<hs::mixed::AnyOptimizer<T>> optimizer_;
  Whole<hs::mixed::LossScaler> scaler_;
  Whole<hs::train::FitState> state_;
  Whole<Average> average_;
  std::optional<
      hs::io::Run<Whole<hs::Parameters<T>>, Whole<hs::mixed::AnyOptimizer<T>>,
                  Whole<hs::mixed::LossScaler>, Whole<hs::train::FitState>, Whole<Average>>>
      run_;
};

/// Counts of what each rank holds a part of, added up.
[[nodiscard]] inline hs::mixed::Underflow sum_over_ranks(hs::dist::Group& group,
                                                         const hs::mixed::Underflow& mine) {
  hs::mixed::Underflow sum;
  for (const auto& one : hs::dist::gather_values(group, mine)) {
    sum.nonzero += one.nonzero;
    sum.fp16 += one.fp16;
    sum.fp16_scaled += one.fp16_scaled;
    sum.bf16 += one.bf16;
  }
  return sum;
}

/// Who did what and what was moved for it, of all ranks.
inline void add_account(hs::dist::Group& group, std::int64_t tokens, Trained& result) {
  const auto own = group.collectives();
  const std::vector<hs::dist::CollectiveTraffic> counted(own.begin(),
                                                         own.end());  // before what follows is
  result.rank_tokens = hs::dist::gather_values(group, tokens);
  for (const auto& one : counted)
    result.traffic.emplace_back(one.name(), hs::dist::gather_values(group, one));
}

/// Weights that ranks hold, whole, to one file, for Python too. All ranks call it; rank 0 writes.
template <class T>
void write_weights(hs::dist::Group& group, hs::Parameters<T>& parameters, const std::string& path) {
  hs::dist::WholeState weights(group, parameters);
  weights.gather();
  if (group.rank() != 0) return;
  hs::io::StateWriter writer;
  weights.visit_state(writer);
  hs::io::write_safetensors(
      path, writer.entries(),
      {{"format", std::string(hs::format_name<T>)}, {"program", "halfstep capstone"}});
}

template <class T>
SharedBytes shared_bytes(const Options& options, std::int64_t parameters) {
  using Host = hs::dist::OneHost<typename Trainer<T>::Whole>;
  if (options.ranks == 1) return {};
  // Plain data parallelism also sums gradients in shared memory; ZeRO 3 also keeps one copy of the
  // weights there.
  return {options.zero <= 1 ? Host::arena_bytes(parameters) : 0,
          options.zero == 1 || options.zero == 3 ? Host::common_bytes(parameters) : 0};
}

template <class T>
Trained train_model(const Options& options, hs::Runtime& runtime, hs::dist::Group& group,
                    const Corpus& text, const std::string& checkpoints,
                    const std::string& weights_path, const std::string& average_path,
                    const Listeners& listeners) {
  const std::int64_t resident = hs::core::peak_resident_memory();
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, text.vocabulary()));
  Trained result;
  result.parameters = parameters.count();
  hs::tensor::Placement placement;
  const auto schedule = [&] {
    Rehearsal<T> rehearsal(options, runtime, text.vocabulary());
    auto chosen = rehearsal.schedule();
    if (options.zero == 0) std::tie(result.predicted_peak, placement) = rehearsal.peak(chosen);
    return chosen;
  }();
  const hs::nn::SegmentedGpt<T> model(gpt, schedule);

  hs::mixed::LossScaler scaler = make_scaler(options);
  Trainer<T> trainer(options, group, parameters);
  auto& optimizer = trainer.optimizer();
  hs::mixed::GradientAccumulator<T> accumulator(parameters, &scaler, trainer.ranks());
  hs::train::FitState state{.stopping = hs::train::EarlyStopping({.patience = options.patience})};
  if (options.plateau_patience > 0) {
    state.plateau.emplace(hs::optim::PlateauOptions{.factor = options.plateau_factor,
                                                    .patience = options.plateau_patience - 1});
  }
  Average average(options, parameters);
  Checkpoints<T> run(group,
                     {.directory = checkpoints,
                      .keep = options.keep,
                      .config = identity_json(options),
                      .data_hash = text.hash(),
                      .report = listeners.on_note},
                     parameters, optimizer, scaler, state, average);
  const bool first = group.rank() == 0;
  if (first) {
    listeners.on_start(
        {.groups = hs::optim::to_string(hs::optim::groups(parameters, options.weight_decay)),
         .iteration = state.iteration,
         .evaluated = state.evaluated == state.iteration});
  }
  // A signal may reach the ranks at different moments: rank 0 says for all whether to stop.
  const auto should_stop = [&] {
    std::uint8_t stop = first && listeners.should_stop() ? 1 : 0;
    hs::dist::broadcast(group, std::span(&stop, 1), 0);
    return stop != 0;
  };
  const hs::train::EvaluateShare share{
      .rank = group.rank(), .ranks = group.size(), .sum = [&](std::span<double> numbers) {
        hs::dist::all_reduce(group, numbers);
      }};
  // The best so far is saved where it is found; else a run's best would be that of the due alone.
  const auto save = [&](const hs::train::SavePoint& at) {
    const bool due = options.checkpoint_every > 0 &&
                     (at.iteration % options.checkpoint_every == 0 || at.improved || at.last);
    if (!due && !(at.last && should_stop())) return;
    if (first) listeners.before_save();
    run.save(at.iteration, at.evaluated ? std::optional(at.loss) : std::nullopt);
  };
  hs::train::Hooks hooks{.on_step =
                             [&](const hs::train::StepInfo& info) {
                               if (info.applied && average.weights)
                                 average.weights->update(trainer.whole());
                               if (first) listeners.on_step(info);
                             },
                         .on_evaluate = listeners.on_evaluate,
                         .on_save_point = save,
                         .should_stop = should_stop,
                         .evaluate_share = share};
  if (options.telemetry && first) {
    hooks.on_telemetry = [&](const hs::train::TelemetryInfo& info) {
      result.telemetry = info;
      listeners.on_telemetry(info);
    };
    hooks.on_evaluate = [&](const hs::train::EvaluationInfo& info) {
      listeners.on_evaluate(info);
      result.shadow =
          next_step_in_double(options, text, parameters, trainer.whole(), scaler, info.iteration);
      listeners.on_shadow(result.shadow);
    };
  }
  {
    hs::Tape tape(runtime);
    tape.place(std::move(placement));
    const auto fit = hs::train::fit(model, tape, optimizer, accumulator, scaler, text,
                                    {.steps = options.steps,
                                     .lr = options.lr,
                                     .min_lr = options.min_lr,
                                     .warmup = options.warmup,
                                     .clip = options.clip,
                                     .rows = options.batch,
                                     .accumulate = options.accumulate,
                                     .evaluate_every = options.eval_every,
                                     .evaluate_stride = options.eval_stride},
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
    result.underflow = options.zero > 0 ? sum_over_ranks(group, fit.underflow) : fit.underflow;
    result.gathered = trainer.gathered();
    add_account(group, fit.tokens_of_process, result);
    result.replayed_ops = tape.replayed_ops();
    result.peak = runtime.ledger().peak();
    result.resident = hs::core::peak_resident_memory() - resident;
    result.at_peak = runtime.ledger().at_peak();
    result.counters = runtime.counters();
  }
  if (result.stopped) return result;
  result.loss_scale = scaler.scale();
  write_weights(group, parameters, weights_path);
  hs::Tape tape(runtime);
  if (average.weights) {
    auto averaged = parameters.template as<T>();
    const hs::nn::Gpt<T> other(averaged, gpt.options);
    average.weights->copy_to(averaged);
    try {
      result.average_evaluation = hs::train::evaluate(
          other, tape, text,
          {.stride = options.eval_stride,
           .rows = (options.batch + 3) / 4,
           .should_stop = should_stop,
           .share = share});
    } catch (const hs::train::Stopped&) {  // as within the sample, below
    }
    result.average_hash = hs::tensor::state_hash(average);
    write_weights(group, averaged, average_path);
  }
  // Rank 0 writes it. The others are asked before each token whether to stop, so that none waits
  // for longer than one takes; where no rank has whole weights, they gather them with it.
  constexpr int length = 300;
  if (first || (parameters.sharded() && !parameters.shared())) {
    result.sample =
        hs::train::sample(gpt, tape, text.tokenizer(), "",
                          {.length = length, .seed = options.seed, .should_stop = should_stop});
  } else {
    for (int token = 0; token < length && !should_stop(); ++token) {
    }
  }
  if (should_stop()) {  // between the end of training and that of the sample
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
    hs::core::fail<hs::FileError>(error.what(),
                                  " Are weights, tokenizer.txt and config.json of the same run?");
  }
}

template <class T>
hs::train::Evaluation evaluate_model(const Options& options, hs::Runtime& runtime,
                                     const hs::data::Tokenizer& tokenizer,
                                     std::span<const std::int32_t> tokens,
                                     const ReadOptions& what,
                                     const std::string& weights_path) {
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, gpt_options(options, tokenizer.vocabulary()));
  load_weights(parameters, weights_path);
  hs::Tape tape(runtime);
  auto result = hs::train::evaluate_tokens(
      gpt, tape, tokens,
      {.stride = what.eval_stride == 0 ? options.eval_stride : what.eval_stride,
       .rows = what.batch});
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
#define CAPSTONE_FORMAT(T)                                                                        \
  template SharedBytes shared_bytes<T>(const Options&, std::int64_t);                             \
  template Trained train_model<T>(const Options&, halfstep::Runtime&, halfstep::dist::Group&,     \
                                  const Corpus&, const std::string&, const std::string&,          \
                                  const std::string&, const Listeners&);                          \
  template halfstep::train::Evaluation evaluate_model<T>(                                         \
      const Options&, halfstep::Runtime&, const halfstep::data::Tokenizer&,                       \
      std::span<const std::int32_t>, const ReadOptions&, const std::string&);                     \
  template std::string sample_model<T>(const Options&, halfstep::Runtime&,                        \
                                       const halfstep::data::Tokenizer&, const ReadOptions&,      \
                                       const std::string&,                                        \
                                       const std::function<void(std::string_view)>&)

}  // namespace capstone
