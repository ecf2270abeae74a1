// SPDX-License-Identifier: MIT
// What this machine can do at most: products and sums from registers alone, and copied bytes. A
// bench prints its share of these. Not for tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/target.hpp>

namespace halfstep_bench {

/// Of all threads together. 0 where the CPU lacks the instructions.
struct Ceiling {
  double avx2_gflops = 0;    ///< float, 8 lanes; a product and a sum are 2 operations
  double avx512_gflops = 0;  ///< float, 16 lanes
  double bf16_gflops = 0;    ///< VDPBF16PS: 4 operations in each of 16 lanes
  double copy_gbytes = 0;    ///< memcpy of 32 MB a thread: bytes read and bytes written, a second
};

namespace detail {
// Twelve chains cover two units with a latency of four cycles (VDPBF16PS: six on Zen). The values
// stay finite: each step is x * 0.5 + 1. `sink` is written so that the loop is not removed.
#define HALFSTEP_CEILING_LOOP(type, step, store)                \
  type x[12];                                                   \
  for (auto& one : x)                                           \
    one = start;                                                \
  for (std::int64_t i = 0; i < rounds; ++i) {                   \
    _Pragma("GCC unroll 12") for (int j = 0; j < 12; ++j) step; \
  }                                                             \
  for (int j = 1; j < 12; ++j)                                  \
    x[0] = x[0] + x[j];                                         \
  store

HALFSTEP_BEGIN_TARGET(AVX2)
HALFSTEP_NOINLINE inline void fma_avx2(std::int64_t rounds, float* sink) {
  const __m256 start = _mm256_set1_ps(1.0F), half = _mm256_set1_ps(0.5F);
  HALFSTEP_CEILING_LOOP(__m256, x[j] = _mm256_fmadd_ps(x[j], half, start),
                        _mm256_storeu_ps(sink, x[0]));
}
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX512)
HALFSTEP_NOINLINE inline void fma_avx512(std::int64_t rounds, float* sink) {
  const __m512 start = _mm512_set1_ps(1.0F), half = _mm512_set1_ps(0.5F);
  HALFSTEP_CEILING_LOOP(__m512, x[j] = _mm512_fmadd_ps(x[j], half, start),
                        _mm512_storeu_ps(sink, x[0]));
}
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX512_BF16)
HALFSTEP_NOINLINE inline void dot_bf16(std::int64_t rounds, float* sink) {
  const __m512 start = _mm512_set1_ps(1.0F);
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x2F80);  // 2^-32
  HALFSTEP_CEILING_LOOP(__m512, x[j] = _mm512_dpbf16_ps(x[j], a, a), _mm512_storeu_ps(sink, x[0]));
}
HALFSTEP_END_TARGET
#undef HALFSTEP_CEILING_LOOP

/// Calls body(worker) on all threads until about `seconds` have passed, and returns calls a second
/// of all together, by the best of the rounds.
template <class Body>
double best_rate(const halfstep::core::Compute& compute, double seconds, Body body) {
  using clock = std::chrono::steady_clock;
  const auto elapsed = [](clock::time_point from) {
    return std::chrono::duration<double>(clock::now() - from).count();
  };
  const auto begin = clock::now();
  double best = 0;
  do {
    const auto start = clock::now();
    compute.parallel(compute.threads(), 1,
                     [&](std::int64_t, std::int64_t, int worker) { body(worker); });
    best = std::max(best, compute.threads() / elapsed(start));
  } while (elapsed(begin) < seconds);
  return best;
}
}  // namespace detail

/// Measures for about 0.2 seconds on that many threads (0: all that the process may use).
inline Ceiling measure_ceiling(int threads = 0) {
  namespace core = halfstep::core;
  core::ThreadPool pool(threads);
  const core::Compute compute{core::Isa::portable, &pool, nullptr};
  const core::CpuFeatures cpu = core::detect_cpu();
  constexpr std::int64_t rounds = 100'000;  // of twelve instructions: 0.2 to 0.4 ms
  core::AlignedBuffer sinks(pool.size() * core::alignment);
  const auto rate = [&](bool present, auto* function, double flop) {
    if (!present) return 0.0;
    const double calls = detail::best_rate(compute, 0.04, [&](int worker) {
      function(rounds, sinks.as<float>().data() + worker * (core::alignment / 4));
    });
    return calls * static_cast<double>(rounds) * 12 * flop * 1e-9;
  };
  Ceiling ceiling;
  ceiling.avx2_gflops = rate(cpu.avx2, &detail::fma_avx2, 16);
  ceiling.avx512_gflops = rate(cpu.avx512, &detail::fma_avx512, 32);
  ceiling.bf16_gflops = rate(cpu.avx512_bf16, &detail::dot_bf16, 64);

  constexpr std::int64_t bytes = std::int64_t{32} << 20;  // more than a core's share of a cache
  core::AlignedBuffer from(bytes * pool.size(), core::Fill::zero);
  core::AlignedBuffer to(bytes * pool.size(), core::Fill::zero);
  ceiling.copy_gbytes = detail::best_rate(compute, 0.06,
                                          [&](int worker) {
                                            std::memcpy(to.data() + worker * bytes,
                                                        from.data() + worker * bytes, bytes);
                                          }) *
                        2 * static_cast<double>(bytes) * 1e-9;
  return ceiling;
}

}  // namespace halfstep_bench
