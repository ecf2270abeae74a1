// SPDX-License-Identifier: MIT
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/kernels/gradient_pass.hpp>

namespace {

namespace core = halfstep::core;
namespace kernels = halfstep::kernels;

// The first pass over a gradient on one thread, without (0) and with (1) what telemetry asks. GB/s
// counts the 4 bytes an element that are read.
void GradientPass(benchmark::State& state) {
  const auto isa = core::all_isas[static_cast<std::size_t>(state.range(1))];
  if (!core::supports(core::detect_cpu(), isa)) return state.SkipWithError("not on this CPU");
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<float> gradient(n, 1e-4F);
  std::vector<double> blocks(static_cast<std::size_t>(kernels::sum_blocks(state.range(0))));
  kernels::Underflows<float> underflows{.limits = {0x1p-25F, 0x1p-41F, 0x1p-134F}};
  for (auto _ : state) {
    const auto found = kernels::gradient_pass<float>({.isa = isa}, gradient, blocks,
                                                     state.range(2) != 0 ? &underflows : nullptr);
    benchmark::DoNotOptimize(found.count);
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(core::to_string(isa)));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(GradientPass)
    ->ArgNames({"n", "isa", "underflows"})
    ->ArgsProduct({{1 << 14, 1 << 24}, {0, 1, 2}, {0, 1}});

}  // namespace
