// SPDX-License-Identifier: MIT
// What recompute costs and saves: one pass, forward and backward, of nanoGPT's GPU configuration in
// bf16, by plan. peak_MB is what the pass takes beside weights and gradients, counted by the
// ledger; again is the share of a plain pass's useful operations that runs once more. A plan is
// worth its time where peak_MB falls faster than the time rises.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

constexpr int layers = 6, rows = 16, length = 256;

// 0: none, 1: ceil(sqrt(layers)) segments, 2: a segment for each block, 3: the cheapest plan in the
// memory of 1, 4: the least memory that there is.
hs::autograd::Schedule schedule_of(const hs::nn::Gpt<hs::bf16>& gpt, std::int64_t plan) {
  const auto none = hs::nn::plan_recompute(gpt, rows, length, std::int64_t{1} << 40);
  if (plan == 0) return none.schedule;
  if (plan == 1) return hs::autograd::square_root(layers);
  if (plan == 2) return hs::autograd::uniform(layers, layers);
  if (plan == 4) return hs::nn::plan_recompute(gpt, rows, length, none.smallest).schedule;
  const hs::nn::SegmentedGpt<hs::bf16> uniform(gpt, hs::autograd::square_root(layers));
  const std::vector<std::int32_t> tokens(std::size_t{rows} * length, 0);
  hs::Tape dry(gpt.tokens.table.store->runtime(), hs::Tape::Mode::dry);
  dry.begin({0, 0, 0, rows});
  dry.backward(hs::cross_entropy(uniform(dry, tokens), tokens));
  return hs::nn::plan_recompute(gpt, rows, length, dry.ledger().peak()).schedule;
}

void RecomputePass(benchmark::State& state) {
  hs::Runtime runtime;
  hs::Parameters<hs::bf16> parameters(runtime);
  const hs::nn::Gpt<hs::bf16> gpt(
      parameters,
      {.vocabulary = 65, .context = length, .layers = layers, .heads = 6, .width = 384});
  const hs::nn::SegmentedGpt<hs::bf16> model(gpt, schedule_of(gpt, state.range(0)));
  const std::vector<std::int32_t> tokens(std::size_t{rows} * length, 3);
  hs::Tape tape(runtime);
  hs::Gradients<hs::bf16> gradients(parameters, tape);
  const std::int64_t before = runtime.ledger().live();
  for (auto _ : state) {
    tape.begin({0, 0, 0, rows});
    tape.backward(hs::cross_entropy(model(tape, tokens), tokens));
  }
  state.counters["peak_MB"] = static_cast<double>(runtime.ledger().peak() - before) / 1e6;
  state.counters["again"] = tape.replayed_flops() / (tape.flops() - tape.replayed_flops());
}
BENCHMARK(RecomputePass)
    ->ArgName("plan")
    ->DenseRange(0, 4)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
