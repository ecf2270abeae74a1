// SPDX-License-Identifier: MIT
// One training step of a GPT: forward, backward, clip, AdamW, on all threads. GFLOP/s counts useful
// operations as the ops' `infer` states them (causal attention once); `of_fma` is their share of the
// register-only FMA loop measured at the start of the same process, on as many threads.
#include <cstdint>

#include <benchmark/benchmark.h>

#include <halfstep/data/grammar.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/halfstep.hpp>

#include "../core/ceiling.hpp"

namespace hs = halfstep;

namespace {

struct Size {
  int layers, heads, width, context, rows;
};
constexpr Size sizes[]{
    {4, 4, 128, 64, 12},   // 0: nanoGPT's CPU configuration
    {4, 4, 192, 128, 16},  // 1: the default run of cmake/capstone.sh
    {6, 6, 384, 256, 4},   // 2: S of a quarter of its batch
};

double fma_gflops() {
  static const double value = [] {
    const auto ceiling = halfstep_bench::measure_ceiling(hs::core::available_threads());
    return std::max(ceiling.avx2_gflops, ceiling.avx512_gflops);
  }();
  return value;
}

template <class T>
void GptStep(benchmark::State& state) {
  const Size size = sizes[state.range(0)];
  const double ceiling = fma_gflops();
  hs::Runtime runtime;
  const auto text = hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 200'000));
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(), .context = size.context, .layers = size.layers,
                                        .heads = size.heads, .width = size.width});
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{.weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  hs::data::Batch batch;
  std::int64_t iteration = 0;
  double flops = 0.0;
  for (auto _ : state) {
    const double before = tape.flops();
    auto window = accumulator.begin(tape, iteration++, {.micro_batches = 1, .rows = size.rows, .targets_per_row = size.context});
    for (const auto micro : window) {
      text.batch(micro, size.context, batch);
      tape.begin(micro);
      window.backward(tape, hs::cross_entropy(gpt(tape, batch.inputs), batch.targets));
    }
    benchmark::DoNotOptimize(optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-4F).norm);
    flops = tape.flops() - before;
  }
  const auto rate = [&](double per_step) {
    return benchmark::Counter(per_step, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["GFLOP/s"] = rate(flops / 1e9);
  state.counters["of_fma"] = rate(flops / 1e9 / ceiling);
  state.counters["tokens/s"] = rate(static_cast<double>(size.rows) * size.context);
  state.counters["fma_GFLOP/s"] = ceiling;
}
BENCHMARK(GptStep<float>)->ArgName("size")->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(GptStep<hs::bf16>)->ArgName("size")->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(GptStep<hs::fp16>)->ArgName("size")->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
