// SPDX-License-Identifier: MIT
#include "dist/parallel/gpt_run.hpp"

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/dist/parallel/one_host.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/mixed/any_optimizer.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/train/fit.hpp>

namespace gpt_run {

namespace {

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

}  // namespace

template <class T>
Outcome run(hs::Runtime& runtime, dist::Group* group, const Settings& settings) {
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
  using Accumulator = hs::mixed::GradientAccumulator<T>;
  // One type for all of them, so that the loop is compiled once a format.
  const auto outcome = [&](hs::mixed::AnyOptimizer<T>& optimizer, Accumulator&& accumulator) {
    const auto fit = hs::train::fit(model, tape, optimizer, accumulator, scaler, text(), options);
    return Outcome{fit.weights_hash, fit.train_loss, fit.held_out,      fit.micro_batches,
                   fit.tokens,       fit.skipped,    parameters.count()};
  };
  using Whole = hs::mixed::OptimizerOf<Optimizer>;
  if (group == nullptr) {
    Whole optimizer(parameters, adamw);
    return outcome(optimizer, Accumulator(parameters, scaler));
  }
  const auto sharded = [&]<class Zero>(std::type_identity<Zero>) {
    hs::mixed::OptimizerOf<Zero> optimizer(
        *group, parameters, adamw,
        dist::ShardOptions{.bucket_bytes = settings.parallel.bucket_bytes});
    return outcome(optimizer, Accumulator(parameters, &scaler, optimizer.get().ranks()));
  };
  if (settings.stage == 1) return sharded(std::type_identity<dist::Zero1<Optimizer>>());
  if (settings.stage == 2) return sharded(std::type_identity<dist::Zero2<Optimizer>>());
  if (settings.stage == 3) return sharded(std::type_identity<dist::Zero3<Optimizer>>());
  if (settings.one_host) return sharded(std::type_identity<dist::OneHost<Optimizer>>());
  Ranks<T> ranks(*group, parameters, settings);
  Whole optimizer(parameters, adamw);
  return outcome(optimizer, Accumulator(parameters, &scaler, ranks));
}
template Outcome run<float>(hs::Runtime&, dist::Group*, const Settings&);
template Outcome run<hs::bf16>(hs::Runtime&, dist::Group*, const Settings&);
template Outcome run<hs::fp16>(hs::Runtime&, dist::Group*, const Settings&);

}  // namespace gpt_run
