// SPDX-License-Identifier: MIT
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/kernels/stochastic_round.hpp>

namespace {

namespace core = halfstep::core;

// Stochastic rounding on one thread. GB/s counts the 6 bytes an element that are read and written:
// a figure that does not fall as n leaves the caches is that of the random numbers, not the
// memory's.
template <class To>
void StochasticRound(benchmark::State& state) {
  const auto isa = core::all_isas[static_cast<std::size_t>(state.range(1))];
  if (!core::supports(core::detect_cpu(), isa)) return state.SkipWithError("not on this CPU");
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<float> in(n, 1.2345F);
  std::vector<To> out(n);
  for (auto _ : state) {
    halfstep::kernels::stochastic_round<To>({.isa = isa}, in, out, {.elements = n});
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(core::to_string(isa)));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 6);
}
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "isa"});
  for (const std::int64_t n : {1 << 12, 1 << 24}) {
    for (std::int64_t isa = 0; isa < 3; ++isa)
      bench->Args({n, isa});
  }
}
BENCHMARK(StochasticRound<halfstep::bf16>)->Apply(sizes);
BENCHMARK(StochasticRound<halfstep::fp16>)->Apply(sizes);

}  // namespace
