// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include <benchmark/benchmark.h>

#include <halfstep/core/aligned.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

namespace {

namespace core = halfstep::core;

/// Of this thread alone, so that what else the machine does matters less.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One conversion on one thread within the caches. GB/s counts the bytes read and written.
template <class From, class To>
void Convert(benchmark::State& state) {
  const auto isa = core::all_isas[static_cast<std::size_t>(state.range(1))];
  if (!core::supports(core::detect_cpu(), isa)) return state.SkipWithError("not on this CPU");
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<From> in(n, From{1.25F});
  std::vector<To> out(n);
  for (auto _ : state) {
    halfstep::numeric::convert({.isa = isa}, std::span<const From>(in), std::span<To>(out));
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(core::to_string(isa)));
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<std::int64_t>(sizeof(From) + sizeof(To)));
}

// The same where no cache helps: the larger array is four times the last cache. of_memcpy is the
// time of a memcpy that reads and writes as many bytes together, over that of the conversion; the
// two take turns, and each counts its best. memcpy reads half of those bytes, a narrowing
// conversion two thirds or four fifths of them, which is the slower half of the work.
template <class From, class To>
void BeyondCaches(benchmark::State& state) {
  const auto isa = core::all_isas[static_cast<std::size_t>(state.range(0))];
  if (!core::supports(core::detect_cpu(), isa)) return state.SkipWithError("not on this CPU");
  const std::int64_t last_cache = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 1 << 25);
  const auto n = static_cast<std::size_t>(4 * last_cache) / std::max(sizeof(From), sizeof(To));
  const std::size_t bytes = n * (sizeof(From) + sizeof(To));
  core::AlignedBuffer in(4 * last_cache, core::Fill::zero), out(4 * last_cache, core::Fill::zero);
  const std::span<From> from{reinterpret_cast<From*>(in.data()), n};
  const std::span<To> to{reinterpret_cast<To*>(out.data()), n};
  for (std::size_t i = 0; i < n; ++i)
    from[i] = From{static_cast<float>(i % 1000) * 0.37F - 100.0F};
  double copy = std::numeric_limits<double>::infinity(), best = copy;
  for (auto _ : state) {
    const double start = processor_seconds();
    std::memcpy(out.data(), in.data(), bytes / 2);
    benchmark::ClobberMemory();
    const double middle = processor_seconds();
    halfstep::numeric::convert({.isa = isa}, std::span<const From>(from), to);
    benchmark::ClobberMemory();
    const double end = processor_seconds();
    copy = std::min(copy, middle - start);
    best = std::min(best, end - middle);
    state.SetIterationTime(end - middle);
  }
  state.SetLabel(std::string(core::to_string(isa)));
  state.counters["GB/s"] = static_cast<double>(bytes) * 1e-9 / best;
  state.counters["memcpy_GB/s"] = static_cast<double>(bytes) * 1e-9 / copy;
  state.counters["of_memcpy"] = copy / best;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "isa"});
  for (const std::int64_t n : {1 << 12, 1 << 18}) {
    for (std::int64_t isa = 0; isa < 4; ++isa)
      bench->Args({n, isa});
  }
}
void paths(benchmark::internal::Benchmark* bench) {
  bench->ArgName("isa")->DenseRange(0, 3)->UseManualTime()->Iterations(9)->Unit(
      benchmark::kMillisecond);
}
#define HALFSTEP_BOTH_WAYS(format)                                \
  BENCHMARK(Convert<float, halfstep::format>)->Apply(sizes);      \
  BENCHMARK(Convert<halfstep::format, float>)->Apply(sizes);      \
  BENCHMARK(BeyondCaches<float, halfstep::format>)->Apply(paths); \
  BENCHMARK(BeyondCaches<halfstep::format, float>)->Apply(paths)
HALFSTEP_BOTH_WAYS(bf16);
HALFSTEP_BOTH_WAYS(fp16);
HALFSTEP_BOTH_WAYS(fp8_e4m3);
HALFSTEP_BOTH_WAYS(fp8_e5m2);

}  // namespace
