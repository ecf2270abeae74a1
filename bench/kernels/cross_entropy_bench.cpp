// SPDX-License-Identifier: MIT
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/kernels/cross_entropy.hpp>

namespace {

namespace kernels = halfstep::kernels;

// Loss and gradient of 768 rows on the default path, one thread. items/s are logits: each costs two
// exponentials and is read three times and written once, so beyond the caches the curve falls.
void CrossEntropy(benchmark::State& state) {
  constexpr std::size_t rows = 768;
  const auto classes = static_cast<std::size_t>(state.range(0));
  std::vector<float> logits(rows * classes), gradient(logits.size()), losses(rows), lse(rows);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(i % 97) * 0.1F;
  const std::vector<std::int32_t> targets(rows, 1);
  const halfstep::core::Compute compute;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels::cross_entropy<float>(compute, logits, targets, losses, lse));
    kernels::cross_entropy_backward<float>(compute, logits, targets, lse, 1.0F, gradient);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(logits.size()));
}
BENCHMARK(CrossEntropy)->ArgName("classes")->Arg(65)->Arg(256)->Arg(4096)->Arg(50257);

}  // namespace
