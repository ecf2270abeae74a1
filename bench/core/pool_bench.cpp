// SPDX-License-Identifier: MIT
#include <halfstep/core/pool.hpp>

#include <chrono>
#include <cstdint>

#include <benchmark/benchmark.h>

#include <halfstep/core/compute.hpp>

#include "ceiling.hpp"

namespace {
namespace core = halfstep::core;

/// Does nothing for that many ticks of the time-stamp counter.
void pause_for(std::int64_t ticks) {
  const std::uint64_t start = __builtin_ia32_rdtsc();
  while (__builtin_ia32_rdtsc() - start < static_cast<std::uint64_t>(ticks))
    __builtin_ia32_pause();
}

// Fork and join of an empty body. `gap` is what the caller does alone between two runs, in ticks:
// up to 100000 the workers still spin, above they sleep and must be woken.
void ForkJoin(benchmark::State& state) {
  core::ThreadPool pool(static_cast<int>(state.range(0)));
  const core::Compute compute{.pool = &pool};
  for (auto _ : state) {
    pause_for(state.range(1));
    const auto start = std::chrono::steady_clock::now();
    compute.parallel(pool.size(), 1, [](std::int64_t, std::int64_t, int) {});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
  }
}
BENCHMARK(ForkJoin)
    ->ArgNames({"threads", "gap"})
    ->UseManualTime()
    ->Iterations(5000)
    ->ArgsProduct({{1, 2, 3}, {0, 10'000, 400'000}});

// The machine's ceilings, for the other benches' figures to be compared with.
void Ceilings(benchmark::State& state) {
  halfstep_bench::Ceiling ceiling;
  for (auto _ : state)
    ceiling = halfstep_bench::measure_ceiling(static_cast<int>(state.range(0)));
  state.counters["avx2_gflops"] = ceiling.avx2_gflops;
  state.counters["avx512_gflops"] = ceiling.avx512_gflops;
  state.counters["bf16_gflops"] = ceiling.bf16_gflops;
  state.counters["copy_gbytes"] = ceiling.copy_gbytes;
}
BENCHMARK(Ceilings)->ArgName("threads")->Arg(1)->Arg(2)->Iterations(1)->Unit(
    benchmark::kMillisecond);
}  // namespace
