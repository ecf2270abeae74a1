// SPDX-License-Identifier: MIT
// Matrix products of a layer's shapes, packing included. items/s counts 2 M N K operations; FmaLoop
// is what the path's registers can do at most, so the quotient is the share of it that is reached.
#include <algorithm>
#include <cstddef>

#include <benchmark/benchmark.h>

#include <halfstep/core/aligned.hpp>
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
using halfstep::core::AlignedBuffer;
using halfstep::core::Fill;
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

// Operands, C and workspace of a product, in huge pages as a model's are.
// kind 0: forward (B is a weight, transposed); 1: to the input; 2: to the weight (A transposed).
template <class E, class C>
class Product {
 public:
  Product(const halfstep::core::Compute& compute, std::int64_t m, std::int64_t n, std::int64_t k,
          std::int64_t kind)
      : a_(filled<E>(m * k, 0.5F)),
        b_(filled<E>(k * n, 0.25F)),
        c_(filled<C>(m * n, 0.0F)),
        workspace_(kernels::gemm_workspace<E>(compute, m, n, k), Fill::zero),
        view_a_{a_.template as<E>().data(), m, k, kind == 2 ? 1 : k, kind == 2 ? m : 1},
        view_b_{b_.template as<E>().data(), k, n, kind == 0 ? 1 : n, kind == 0 ? k : 1} {}
  void operator()(const halfstep::core::Compute& compute) {
    kernels::gemm(compute, view_a_, view_b_, c_.template as<C>().data(), view_b_.cols, {},
                  workspace_.template as<std::byte>());
    benchmark::ClobberMemory();
  }

 private:
  template <class T>
  static AlignedBuffer filled(std::int64_t count, float value) {
    AlignedBuffer buffer(count * static_cast<std::int64_t>(sizeof(T)));
    std::ranges::fill(buffer.as<T>(), T(value));
    return buffer;
  }
  AlignedBuffer a_, b_, c_, workspace_;
  MatrixView<const E> view_a_, view_b_;
};

template <class E, Isa isa>
void Gemm(benchmark::State& state) {
  if (lacks(state, isa)) return;
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  halfstep::core::ThreadPool pool(static_cast<int>(state.range(3)));
  const halfstep::core::Compute compute{.isa = isa, .pool = &pool};
  Product<E, float> product(compute, m, n, k, state.range(4));
  for (auto _ : state)
    product(compute);
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

// A layer's products on the process's own path and all threads: y = x W^T with y in x's format, the
// gradient of x likewise, the gradient of W in float. `of_fma` is the share of the FMA loop
// measured in the same process on as many threads, `of_dot` that of the loop of VDPBF16PS.
template <class E, class C>
void best(benchmark::State& state, std::int64_t kind) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  halfstep::core::ThreadPool pool;
  const halfstep::core::Compute compute{.pool = &pool};
  static const halfstep_bench::Ceiling ceiling = halfstep_bench::measure_ceiling();
  Product<E, C> product(compute, m, n, k, kind);
  for (auto _ : state)
    product(compute);
  const double gflop = 2e-9 * static_cast<double>(m * n * k);
  const auto rate = [&](const char* name, double unit) {
    if (unit > 0) {
      state.counters[name] =
          benchmark::Counter(gflop / unit, benchmark::Counter::kIsIterationInvariantRate);
    }
  };
  rate("GFLOP/s", 1);
  rate("of_fma", std::max(ceiling.avx2_gflops, ceiling.avx512_gflops));
  rate("of_dot", ceiling.bf16_gflops);
}
template <class E>
void BestGemm(benchmark::State& state) {
  best<E, E>(state, 0);
}
template <class E>
void BestGemmToInput(benchmark::State& state) {
  best<E, E>(state, 1);
}
template <class E>
void BestGemmToWeight(benchmark::State& state) {
  best<E, float>(state, 2);
}
void best_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime();
  bench->Args({1024, 3072, 768})
      ->Args({2048, 1536, 384})
      ->Args({1024, 1024, 1024})
      ->Args({4096, 384, 384});
}
void input_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime()->Args({4096, 384, 1536});
}
void weight_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "n", "k"})->UseRealTime();
  bench->Args({1536, 384, 4096})->Args({384, 1536, 4096});
}
BENCHMARK(BestGemm<float>)->Apply(best_shapes);
BENCHMARK(BestGemm<bf16>)->Apply(best_shapes);
BENCHMARK(BestGemm<fp16>)->Apply(best_shapes);
BENCHMARK(BestGemmToInput<float>)->Apply(input_shapes);
BENCHMARK(BestGemmToInput<bf16>)->Apply(input_shapes);
BENCHMARK(BestGemmToWeight<float>)->Apply(weight_shapes);
BENCHMARK(BestGemmToWeight<bf16>)->Apply(weight_shapes);

BENCHMARK(Gemm<float, Isa::portable>)->Args({100, 100, 100, 1, 0});
BENCHMARK(Gemm<bf16, Isa::portable>)->Args({100, 100, 100, 1, 0});

}  // namespace
