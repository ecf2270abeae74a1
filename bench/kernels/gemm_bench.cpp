// SPDX-License-Identifier: MIT
// Matrix products of a layer's shapes, packing included. items/s counts 2 M N K operations; FmaLoop
// is what the path's registers can do at most, so the quotient is the share of it that is reached.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/core/pool.hpp>
#include <halfstep/kernels/gemm.hpp>

#include "../core/ceiling.hpp"

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512 {
// 24 independent chains: enough for two FMAs a cycle of latency 4.
inline void fma_loop(std::int64_t steps, float* out) {
  Floats sums[24], x = broadcast<Floats>(0.999F);
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i)
    sums[i] = broadcast<Floats>(static_cast<float>(i));
  for (; steps > 0; --steps) {
#pragma GCC unroll 24
    for (int i = 0; i < 24; ++i)
      sums[i] = fma(sums[i], x, x);
  }
#pragma GCC unroll 24
  for (int i = 0; i < 24; ++i)
    store(out + 16 * i, sums[i]);
}
}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512
HALFSTEP_END_TARGET

namespace {

using halfstep::bf16;
using halfstep::fp16;
using halfstep::core::Isa;
using halfstep::core::MatrixView;
namespace kernels = halfstep::kernels;

bool lacks(benchmark::State& state, Isa isa) {
  if (halfstep::core::supports(halfstep::core::detect_cpu(), isa)) return false;
  state.SkipWithError("this CPU does not have the path");
  return true;
}

void FmaLoop(benchmark::State& state) {
  if (lacks(state, Isa::avx512)) return;
  float out[24 * 16];
  void (*volatile loop)(std::int64_t, float*) = &kernels::detail::avx512::fma_loop;
  for (auto _ : state)
    loop(100000, out);
  state.SetItemsProcessed(state.iterations() * 100000 * 24 * 32);
}
BENCHMARK(FmaLoop);

// kind 0: forward (B is a weight, transposed); 1: to the input; 2: to the weight (A transposed).
template <class E, Isa isa>
void Gemm(benchmark::State& state) {
  if (lacks(state, isa)) return;
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto kind = state.range(4);
  halfstep::core::ThreadPool pool(static_cast<int>(state.range(3)));
  const halfstep::core::Compute compute{.isa = isa, .pool = &pool};
  const std::vector<E> a(static_cast<std::size_t>(m * k), E(0.5F)),
      b(static_cast<std::size_t>(k * n), E(0.25F));
  std::vector<float> c(static_cast<std::size_t>(m * n));
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(kernels::gemm_workspace<E>(compute, m, n, k)));
  const MatrixView<const E> va{a.data(), m, k, kind == 2 ? 1 : k, kind == 2 ? m : 1};
  const MatrixView<const E> vb{b.data(), k, n, kind == 0 ? 1 : n, kind == 0 ? k : 1};
  for (auto _ : state) {
    kernels::gemm(compute, va, vb, c.data(), n, {}, workspace);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * 2 * m * n * k);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k", "threads", "kind"})->UseRealTime();
  for (const int threads : {1, 2}) {
    bench->Args({768, 384, 128, threads, 0})->Args({768, 768, 768, threads, 0});
    bench->Args({768, 768, 768, threads, 1})->Args({768, 768, 768, threads, 2});
    bench->Args({2048, 3072, 768, threads, 0})->Args({768, 65, 128, threads, 0});
    bench->Args({100, 100, 100, threads, 0})->Args({128, 512, 768, threads, 2});
  }
}
BENCHMARK(Gemm<float, Isa::avx512>)->Apply(shapes);
BENCHMARK(Gemm<float, Isa::avx2>)->Apply(shapes);
BENCHMARK(Gemm<bf16, Isa::avx512>)->Apply(shapes);
BENCHMARK(Gemm<bf16, Isa::avx512_bf16>)->Apply(shapes);
BENCHMARK(Gemm<fp16, Isa::avx512>)->Apply(shapes);

// y = x W^T as a layer has it, on the process's own path and all threads, y in x's format.
// `of_fma` is the share of the FMA loop measured in the same process on as many threads.
template <class E>
void BestGemm(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  halfstep::core::ThreadPool pool;
  const halfstep::core::Compute compute{.pool = &pool};
  static const double ceiling = [] {
    const auto c = halfstep_bench::measure_ceiling();
    return std::max(c.avx2_gflops, c.avx512_gflops);
  }();
  const std::vector<E> x(static_cast<std::size_t>(m * k), E(0.5F)),
      w(static_cast<std::size_t>(k * n), E(0.25F));
  std::vector<E> y(static_cast<std::size_t>(m * n));
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(kernels::gemm_workspace<E>(compute, m, n, k)));
  for (auto _ : state) {
    kernels::gemm(compute, halfstep::core::row_major(x.data(), m, k),
                  halfstep::core::row_major(w.data(), n, k).transposed(), y.data(), n, {},
                  workspace);
    benchmark::ClobberMemory();
  }
  const double gflop = 2e-9 * static_cast<double>(m * n * k);
  state.counters["GFLOP/s"] =
      benchmark::Counter(gflop, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_fma"] =
      benchmark::Counter(gflop / ceiling, benchmark::Counter::kIsIterationInvariantRate);
}
void best_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime();
  bench->Args({1024, 3072, 768})
      ->Args({2048, 1536, 384})
      ->Args({1024, 1024, 1024})
      ->Args({4096, 384, 384});
}
BENCHMARK(BestGemm<float>)->Apply(best_shapes);
BENCHMARK(BestGemm<bf16>)->Apply(best_shapes);
BENCHMARK(BestGemm<fp16>)->Apply(best_shapes);

BENCHMARK(Gemm<float, Isa::portable>)->Args({100, 100, 100, 1, 0});
BENCHMARK(Gemm<bf16, Isa::portable>)->Args({100, 100, 100, 1, 0});

}  // namespace
