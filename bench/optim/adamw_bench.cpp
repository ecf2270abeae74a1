// SPDX-License-Identifier: MIT
// One optimizer step of AdamW with bf16 weights and float masters, pass one (finite? norm?) and
// pass two (update) together. GB/s counts the 34 bytes a parameter that they must move: gradient
// read twice, master and two moments read and written, weight written. A curve that falls as n
// outgrows a cache is bound by memory, a flat one waits on arithmetic.
#include <cstdint>
#include <utility>

#include <benchmark/benchmark.h>

#include <halfstep/core/micro_batch.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>

namespace {

using namespace halfstep;

/// Leaves the gradient as it is: the sums keep what the first sweep wrote.
struct StillTape {
  void attach(tensor::ParameterTable&, tensor::Sink& into) { sink = &into; }
  void detach(const tensor::ParameterTable&, const tensor::Sink&) {}
  void set_seed(double value) { kept = value; }
  [[nodiscard]] double seed() const { return kept; }
  [[nodiscard]] bool dry() const { return false; }
  [[nodiscard]] const MicroBatch& micro() const { return now; }
  template <class L>
  void backward(const L&) {
    static_cast<void>(sink->open({0}));
    sink->finish({0});
  }
  tensor::Sink* sink = nullptr;
  double kept = 1.0;
  MicroBatch now;
};
struct Loss {
  double sum = 1.0, count = 1.0;
};

void AdamWStepWithMasters(benchmark::State& state) {
  Runtime runtime({.threads = static_cast<int>(state.range(1))});
  Parameters<bf16> parameters(runtime);
  parameters.scope().add("w", {state.range(0)}, Role::weight, Init::normal(0.02F));
  mixed::MasterWeights optimizer(parameters, optim::AdamWOptions{.weight_decay = 0.1});
  mixed::GradientAccumulator accumulator(parameters);
  StillTape tape;
  std::int64_t iteration = 0;
  for (auto _ : state) {
    auto window =
        accumulator.begin(tape, iteration++, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.now = *window.begin();
    window.backward(tape, Loss{});
    benchmark::DoNotOptimize(
        optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F).norm);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 34);
}
BENCHMARK(AdamWStepWithMasters)
    ->ArgNames({"n", "threads"})
    ->ArgsProduct({{1 << 12, 1 << 16, 1 << 20, 1 << 23}, {1, 2}})
    ->UseRealTime();

}  // namespace
