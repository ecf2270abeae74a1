// SPDX-License-Identifier: MIT
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/kernels/layer_norm.hpp>
#include <halfstep/numeric/element.hpp>

namespace {

namespace kernels = halfstep::kernels;

// LayerNorm of 768 rows on the default path, one thread. GB/s counts each row once for every time
// it must come from or go to memory (2 forward; 5 backward: dy and x for dx and again for the
// parameters, and dx), so a curve that is flat in width waits on arithmetic.
template <class E, bool Backward>
void LayerNorm(benchmark::State& state) {
  constexpr std::size_t rows = 768;
  const auto width = static_cast<std::size_t>(state.range(0));
  using A = halfstep::numeric::accumulator_t<E>;
  std::vector<E> x(rows * width, E(0.5F)), dy(x), y(x.size()), gain(width, E(1.0F)), bias(width);
  for (std::size_t i = 0; i < x.size(); i += 3)
    x[i] = E(-0.75F);
  std::vector<A> mean(rows), rstd(rows), dgain(width), dbias(width);
  const halfstep::core::Compute compute;
  kernels::layer_norm<E>(compute, x, gain, bias, y, mean, rstd);
  for (auto _ : state) {
    if (Backward) {
      kernels::layer_norm_backward_input<E>(compute, dy, x, gain, mean, rstd, y);
      kernels::layer_norm_backward_parameters<E>(compute, dy, x, mean, rstd, dgain, dbias);
    } else {
      kernels::layer_norm<E>(compute, x, gain, bias, y, mean, rstd);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(x.size() * sizeof(E)) *
                          (Backward ? 5 : 2));
}
BENCHMARK(LayerNorm<float, false>)->ArgName("width")->Arg(128)->Arg(384)->Arg(1024);
BENCHMARK(LayerNorm<float, true>)->ArgName("width")->Arg(128)->Arg(384)->Arg(1024);
BENCHMARK(LayerNorm<halfstep::bf16, false>)->ArgName("width")->Arg(128)->Arg(384)->Arg(1024);
BENCHMARK(LayerNorm<halfstep::bf16, true>)->ArgName("width")->Arg(128)->Arg(384)->Arg(1024);

}  // namespace
