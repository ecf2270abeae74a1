// SPDX-License-Identifier: MIT
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <halfstep/core/isa.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/kernels/attention.hpp>
#include <halfstep/numeric/element.hpp>

namespace {

using halfstep::core::Isa;
namespace kernels = halfstep::kernels;

// Causal attention on one thread. FLOP/s counts the products over the pairs that the mask leaves (2
// forward, 5 backward), so it can be held against the FMA loop of gemm_bench; what is missing
// is exp, packing, and the rows of the diagonal that do not fill a group of four.
template <class E, bool Backward>
void Attention(benchmark::State& state) {
  const auto isa = static_cast<Isa>(state.range(0));
  for (const Isa has : halfstep::core::available_isas()) {
    if (has != isa) continue;
    const kernels::AttentionShape shape{
        .batch = 2, .tokens = state.range(1), .heads = 4, .width = state.range(2)};
    const auto n = static_cast<std::size_t>(shape.rows() * shape.channels());
    std::vector<E> qkv(3 * n, E(0.25F)), out(n), dout(n, E(0.5F)), dqkv(3 * n);
    std::vector<halfstep::numeric::accumulator_t<E>> lse(
        static_cast<std::size_t>(shape.rows() * shape.heads));
    std::vector<std::byte> workspace(
        static_cast<std::size_t>(kernels::attention_backward_workspace<E>(shape, 1)));
    const halfstep::core::Compute compute{.isa = isa, .pool = nullptr, .counters = nullptr};
    kernels::attention<E>(compute, shape, qkv, out, lse, workspace);
    for (auto _ : state) {
      if (Backward) {
        kernels::attention_backward<E>(compute, shape, dout, out, qkv, lse, dqkv, workspace);
      } else {
        kernels::attention<E>(compute, shape, qkv, out, lse, workspace);
      }
      benchmark::ClobberMemory();
    }
    const auto flops =
        Backward ? kernels::attention_backward_flops(shape) : kernels::attention_flops(shape);
    state.counters["FLOP/s"] = benchmark::Counter(static_cast<double>(flops),
                                                  benchmark::Counter::kIsIterationInvariantRate);
    return;
  }
  state.SkipWithError("this CPU does not have the path");
}
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"isa", "tokens", "width"});
  for (const int isa : {2, 1, 0}) {
    for (const int tokens : {64, 256, 1024}) {
      for (const int width : {32, 64})
        bench->Args({isa, tokens, width});
    }
  }
}
BENCHMARK(Attention<float, false>)->Apply(sizes);
BENCHMARK(Attention<float, true>)->Apply(sizes);
BENCHMARK(Attention<halfstep::bf16, false>)->Apply(sizes);
BENCHMARK(Attention<halfstep::bf16, true>)->Apply(sizes);

}  // namespace
