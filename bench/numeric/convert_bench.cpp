// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <emmintrin.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

namespace {

namespace core = halfstep::core;

/// Of all threads together, so that what else the machine does matters less.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Takes one word of each line of `in`, in the order of the conversions' loops past the caches: six
/// parts side by side, each fetched 512 bytes ahead. With `out`, also stores every line of it past
/// the caches. What memory gives, and nothing else.
template <class From, class To, bool writes>
std::uint64_t lines_only(const std::byte* in, std::byte* out, std::int64_t count) {
  constexpr std::int64_t parts = 6, at_once = 64, ahead = 512;
  const std::int64_t part = count / parts / at_once * at_once;
  std::uint64_t all = 0;
  for (std::int64_t i = 0; i < part; i += at_once) {
    for (std::int64_t j = i; j < i + parts * part; j += part) {
      const std::byte* const from = in + j * static_cast<std::int64_t>(sizeof(From));
      for (std::size_t b = 0; b < at_once * sizeof(From); b += 64) {
        __builtin_prefetch(
            reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + b + ahead));
        std::uint64_t word = 0;
        std::memcpy(&word, from + b, sizeof word);
        all |= word;
      }
      if constexpr (writes) {
        std::byte* const to = out + j * static_cast<std::int64_t>(sizeof(To));
        const __m128i value = _mm_set1_epi64x(static_cast<long long>(all));
        for (std::size_t b = 0; b < at_once * sizeof(To); b += sizeof value)
          _mm_stream_si128(reinterpret_cast<__m128i*>(to + b), value);
      }
    }
  }
  _mm_sfence();
  return all;
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

// The same where no cache helps: the larger array is four times the last cache, both lie in huge
// pages as the library's own do, and the work is cut over the threads by the library's pool.
// of_memcpy is the time of a memcpy that reads and writes as many bytes together, cut in the same
// way, over that of the conversion; they take turns, and each counts its best. memcpy reads half of
// those bytes, a narrowing conversion two thirds or four fifths of them. lines_read and lines_moved
// are what of_memcpy would be if converting cost nothing, and the first if writing cost nothing
// too: the time of the memcpy over that of a loop that only reads lines of `in`, and of one that
// stores those of `out` as well.
template <class From, class To>
void BeyondCaches(benchmark::State& state) {
  const auto isa = core::all_isas[static_cast<std::size_t>(state.range(0))];
  if (!core::supports(core::detect_cpu(), isa)) return state.SkipWithError("not on this CPU");
  core::ThreadPool pool(static_cast<int>(state.range(1)));
  const core::Compute compute{.isa = isa, .pool = &pool};
  const std::int64_t last_cache = std::max<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 1 << 25);
  const auto n = static_cast<std::size_t>(4 * last_cache) / std::max(sizeof(From), sizeof(To));
  const std::size_t bytes = n * (sizeof(From) + sizeof(To));
  core::AlignedBuffer in(4 * last_cache, core::Fill::zero), out(4 * last_cache, core::Fill::zero);
  const std::span<From> from{reinterpret_cast<From*>(in.data()), n};
  const std::span<To> to{reinterpret_cast<To*>(out.data()), n};
  for (std::size_t i = 0; i < n; ++i)
    from[i] = From{static_cast<float>(i % 1000) * 0.37F - 100.0F};
  double copy = std::numeric_limits<double>::infinity(), read = copy, moved = copy, best = copy;
  const auto best_of = [](double& seconds, auto&& body) {
    const double start = processor_seconds();
    body();
    benchmark::ClobberMemory();
    const double taken = processor_seconds() - start;
    seconds = std::min(seconds, taken);
    return taken;
  };
  for (auto _ : state) {
    best_of(copy, [&] {
      compute.parallel(static_cast<std::int64_t>(bytes / 2), 4096,
                       [&](std::int64_t begin, std::int64_t end, int) {
                         std::memcpy(out.data() + begin, in.data() + begin,
                                     static_cast<std::size_t>(end - begin));
                       });
    });
    const auto lines_in = [&]<bool writes>(std::bool_constant<writes>) {
      compute.parallel(static_cast<std::int64_t>(n), 16384,
                       [&](std::int64_t begin, std::int64_t end, int) {
                         benchmark::DoNotOptimize(lines_only<From, To, writes>(
                             in.data() + begin * std::int64_t{sizeof(From)},
                             out.data() + begin * std::int64_t{sizeof(To)}, end - begin));
                       });
    };
    best_of(read, [&] { lines_in(std::false_type{}); });
    best_of(moved, [&] { lines_in(std::true_type{}); });
    state.SetIterationTime(best_of(
        best, [&] { halfstep::numeric::convert(compute, std::span<const From>(from), to); }));
  }
  const auto gbytes = static_cast<double>(bytes) * 1e-9 * static_cast<double>(pool.size());
  state.SetLabel(std::string(core::to_string(isa)));
  state.counters["GB/s"] = gbytes / best;
  state.counters["memcpy_GB/s"] = gbytes / copy;
  state.counters["of_memcpy"] = copy / best;
  state.counters["lines_read"] = copy / read;
  state.counters["lines_moved"] = copy / moved;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "isa"});
  for (const std::int64_t n : {1 << 12, 1 << 18}) {
    for (std::int64_t isa = 0; isa < 4; ++isa)
      bench->Args({n, isa});
  }
}
void paths(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"isa", "threads"})
      ->ArgsProduct({{0, 1, 2, 3}, {1, 2}})
      ->UseManualTime()
      ->Iterations(9)
      ->Unit(benchmark::kMillisecond);
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
