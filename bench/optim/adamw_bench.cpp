// SPDX-License-Identifier: MIT
// One optimizer step of AdamW with bf16 weights, pass one (finite? norm?) and pass two (update)
// together, with each way of keeping what 16 bits cannot. GB/s counts the bytes that they must move:
// gradient read twice; what is kept of a weight and the two moments read and written; the weight
// written, and read too unless there is a float master (34 bytes a parameter then). A curve that
// falls as n outgrows a cache is bound by memory, a flat one waits on arithmetic.
#include <cstdint>
#include <utility>

#include <benchmark/benchmark.h>

#include <halfstep/core/micro_batch.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/state_formats.hpp>

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

template <class State>
void AdamWStep(benchmark::State& state) {
  Runtime runtime({.threads = static_cast<int>(state.range(1))});
  Parameters<bf16> parameters(runtime);
  parameters.scope().add("w", {state.range(0)}, Role::weight, Init::normal(0.02F));
  mixed::MasterWeights optimizer(parameters, optim::AdamWOptions{.weight_decay = 0.1}, State{});
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
  const auto each = optimizer.bytes_per_parameter();
  const std::int64_t weights = State::keep == mixed::Keep::master ? 1 : 2;
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          (2 * each.gradients + 2 * each.master + 2 * each.moments +
                           weights * each.weights));
}
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "threads"})
      ->ArgsProduct({{1 << 12, 1 << 16, 1 << 20, 1 << 23}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(AdamWStep<mixed::FloatMaster<>>)->Apply(sizes);
BENCHMARK(AdamWStep<mixed::SplitMaster<>>)->Apply(sizes);
BENCHMARK(AdamWStep<mixed::Kahan<bf16>>)->Apply(sizes);
BENCHMARK(AdamWStep<mixed::Stochastic<bf16>>)->Apply(sizes);

}  // namespace
