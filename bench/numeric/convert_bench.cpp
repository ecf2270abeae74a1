// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <halfstep/numeric/convert.hpp>

namespace {

namespace core = halfstep::core;

// One conversion on one thread. GB/s counts the bytes read and written, so every path that has
// reached the memory's speed shows the same figure for large n, that of Copy.
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

// memcpy of as many bytes as float to bf16 moves.
void Copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0)) * 3;
  std::vector<char> in(bytes, 1), out(bytes);
  for (auto _ : state) {
    std::memcpy(out.data(), in.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 6);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"n", "isa"});
  for (const std::int64_t n : {1 << 12, 1 << 18, 1 << 24}) {
    for (std::int64_t isa = 0; isa < 4; ++isa)
      bench->Args({n, isa});
  }
}
BENCHMARK(Convert<float, halfstep::bf16>)->Apply(sizes);
BENCHMARK(Convert<float, halfstep::fp16>)->Apply(sizes);
BENCHMARK(Convert<halfstep::bf16, float>)->Apply(sizes);
BENCHMARK(Convert<halfstep::fp16, float>)->Apply(sizes);
BENCHMARK(Copy)->ArgName("n")->Arg(1 << 12)->Arg(1 << 18)->Arg(1 << 24);

}  // namespace
