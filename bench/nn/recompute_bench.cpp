// SPDX-License-Identifier: MIT
// What recompute costs and saves: one pass, forward and backward, of nanoGPT's GPU configuration in
// bf16, by plan. peak_MB is what the pass takes beside weights and gradients, counted by the
// ledger; again is the share of a plain pass's useful operations that runs once more. A plan is
// worth its time where peak_MB falls faster than the time rises. PlanBesideUniform gives the
// cheapest plan the bytes that a cut into segments takes, and times both by turns:
// planned_by_uniform is the median ratio of the times of a turn.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

constexpr int layers = 6, rows = 16, length = 256;

struct Model {
  hs::Runtime runtime;
  hs::Parameters<hs::bf16> parameters{runtime};
  const hs::nn::Gpt<hs::bf16> gpt{
      parameters,
      {.vocabulary = 65, .context = length, .layers = layers, .heads = 6, .width = 384}};
  const std::vector<std::int32_t> tokens = std::vector<std::int32_t>(std::size_t{rows} * length, 3);
  hs::Tape tape{runtime};
  hs::Gradients<hs::bf16> gradients{parameters, tape};
  std::int64_t before = 0;

  Model() {
    tape.begin();  // lays the weights out
    before = runtime.ledger().live();
  }
  // Forward and backward; what it takes at the peak, in bytes.
  std::int64_t pass(const hs::nn::SegmentedGpt<hs::bf16>& model) {
    runtime.ledger().restart_peaks();
    tape.begin({0, 0, 0, rows});
    tape.backward(model.loss(tape, tokens, tokens));
    return runtime.ledger().peak() - before;
  }
  [[nodiscard]] hs::RecomputePlan plan(std::int64_t budget) const {
    return hs::nn::plan_recompute(gpt, rows, length, budget);
  }
};

// 0: none, 1: ceil(sqrt(layers)) segments, 2: a segment for each block, 3: the cheapest plan in the
// memory of 1, 4: the least memory that there is.
hs::autograd::Schedule schedule_of(Model& model, std::int64_t plan) {
  const auto square_root = hs::autograd::square_root(layers);
  if (plan == 0) return hs::autograd::keep_all(layers);
  if (plan == 1) return square_root;
  if (plan == 2) return hs::autograd::uniform(layers, layers);
  if (plan == 4) return model.plan(0).schedule;
  return model.plan(model.pass({model.gpt, square_root})).schedule;
}

void RecomputePass(benchmark::State& state) {
  Model model;
  const hs::nn::SegmentedGpt<hs::bf16> cut(model.gpt, schedule_of(model, state.range(0)));
  const double flops = model.tape.flops(), replayed = model.tape.replayed_flops();
  std::int64_t peak = 0;
  for (auto _ : state)
    peak = model.pass(cut);
  state.counters["peak_MB"] = static_cast<double>(peak) / 1e6;
  const double again = model.tape.replayed_flops() - replayed;
  state.counters["again"] = again / (model.tape.flops() - flops - again);
}
BENCHMARK(RecomputePass)
    ->ArgName("plan")
    ->DenseRange(0, 4)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PlanBesideUniform(benchmark::State& state) {
  Model model;
  const hs::nn::SegmentedGpt<hs::bf16> uniform(model.gpt, static_cast<int>(state.range(0)));
  const std::int64_t budget = model.pass(uniform);
  const auto plan = model.plan(budget);
  const hs::nn::SegmentedGpt<hs::bf16> planned(model.gpt, plan.schedule);
  const std::int64_t peak = model.pass(planned);
  std::vector<double> of_uniform, of_plan, ratios;
  const auto timed = [&](const auto& cut) {
    const auto start = std::chrono::steady_clock::now();
    model.pass(cut);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (auto _ : state) {
    of_uniform.push_back(timed(uniform));
    of_plan.push_back(timed(planned));
    ratios.push_back(of_plan.back() / of_uniform.back());
    state.SetIterationTime(of_plan.back());
  }
  state.counters["uniform_ms"] = 1e3 * median(of_uniform);
  state.counters["planned_ms"] = 1e3 * median(of_plan);
  state.counters["planned_by_uniform"] = median(ratios);
  state.counters["uniform_MB"] = static_cast<double>(budget) / 1e6;
  state.counters["planned_MB"] = static_cast<double>(peak) / 1e6;
  state.counters["planned_again_GFLOP"] = plan.recomputed_flops / 1e9;
}
BENCHMARK(PlanBesideUniform)
    ->ArgName("segments")
    ->DenseRange(1, layers)
    ->Iterations(3)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();

}  // namespace
