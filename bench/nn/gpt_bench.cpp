// SPDX-License-Identifier: MIT
// One training step of a GPT: forward, backward, clip, AdamW, on all threads. GFLOP/s counts useful
// operations as the ops' `infer` states them (causal attention once); `of_fma` is their share of
// the register-only FMA loop measured at the start of the same process, on as many threads. The
// other columns are shares of the step's time: matrix products, attention, head with its loss,
// elementwise (with norms, embedding and the tape), optimizer; and, within those, waiting for the
// other threads. `faults` are the minor page faults of a step after the second.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include <benchmark/benchmark.h>

#include <halfstep/halfstep.hpp>

#include "../core/ceiling.hpp"

namespace hs = halfstep;

namespace {

struct Size {
  const char* name;
  int vocabulary, layers, heads, width, context, rows;
};
constexpr Size sizes[]{
    {"XS", 65, 4, 4, 128, 64, 12},         // nanoGPT's CPU configuration
    {"default", 63, 4, 4, 128, 128, 8},    // the run of cmake/capstone.sh
    {"S", 65, 6, 6, 384, 256, 16},         // nanoGPT's GPU configuration, a quarter of its batch
    {"S, T 1024", 65, 6, 6, 384, 1024, 4},
    {"M", 50257, 4, 6, 384, 256, 4},
    {"GPT-2 124M", 50257, 12, 12, 768, 64, 4},
};

double fma_gflops() {
  static const double value = [] {
    const auto ceiling = halfstep_bench::measure_ceiling(hs::core::available_threads());
    return std::max(ceiling.avx2_gflops, ceiling.avx512_gflops);
  }();
  return value;
}

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// Threads that keep cores from the step while they live.
class Busy {
 public:
  explicit Busy(std::int64_t threads) {
    for (; threads > 0; --threads) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed))
          __builtin_ia32_pause();
      });
    }
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    stop_ = true;
    for (auto& thread : threads_)
      thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

template <class T>
void GptStep(benchmark::State& state) {
  const Size size = sizes[state.range(0)];
  const Busy busy(state.range(1));
  const double ceiling = fma_gflops();
  hs::Runtime runtime;
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = size.vocabulary,
                                        .context = size.context,
                                        .layers = size.layers,
                                        .heads = size.heads,
                                        .width = size.width});
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{.weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(size.rows * size.context)),
      targets(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>(hs::core::random_bits(1, 0, i) %
                                          static_cast<std::uint32_t>(size.vocabulary));
    targets[i] = static_cast<std::int32_t>(hs::core::random_bits(1, 1, i) %
                                           static_cast<std::uint32_t>(size.vocabulary));
  }
  std::int64_t iteration = 0;
  std::uint64_t optimizer_ticks = 0;
  const auto step = [&] {
    auto window =
        accumulator.begin(tape, iteration++,
                          {.micro_batches = 1, .rows = size.rows, .targets_per_row = size.context});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, gpt.loss(tape, inputs, targets));
    }
    const auto start = __builtin_ia32_rdtsc();
    benchmark::DoNotOptimize(
        optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-4F).norm);
    optimizer_ticks += __builtin_ia32_rdtsc() - start;
  };
  step(), step();
  const auto before = runtime.counters().ticks;
  const auto waited = runtime.pool().waited_ticks();
  const double flops = tape.flops();
  const auto faults = minor_faults();
  optimizer_ticks = 0;
  const auto start = __builtin_ia32_rdtsc();
  for (auto _ : state)
    step();
  const auto total = static_cast<double>(__builtin_ia32_rdtsc() - start);
  const auto steps = static_cast<double>(state.iterations());
  state.counters["faults"] = static_cast<double>(minor_faults() - faults) / steps;

  const auto phase = [&](hs::core::Phase p) {
    const auto i = static_cast<std::size_t>(p);
    return static_cast<double>(runtime.counters().ticks[i] - before[i]) / total;
  };
  const double products = phase(hs::core::Phase::products),
               attention = phase(hs::core::Phase::attention), head = phase(hs::core::Phase::head),
               optimizing = static_cast<double>(optimizer_ticks) / total;
  state.SetLabel(size.name);
  state.counters["products"] = products;
  state.counters["attention"] = attention;
  state.counters["head"] = head;
  state.counters["elementwise"] = 1 - products - attention - head - optimizing;
  state.counters["optimizer"] = optimizing;
  state.counters["waiting"] = static_cast<double>(runtime.pool().waited_ticks() - waited) / total;
  const auto rate = [&](double per_step) {
    return benchmark::Counter(per_step, benchmark::Counter::kIsIterationInvariantRate);
  };
  const double useful = (tape.flops() - flops) / steps;
  state.counters["GFLOP/s"] = rate(useful / 1e9);
  state.counters["of_fma"] = rate(useful / 1e9 / ceiling);
  state.counters["tokens/s"] = rate(static_cast<double>(size.rows) * size.context);
  state.counters["fma_GFLOP/s"] = ceiling;
}
// With one core kept busy by a thread that does nothing else, the step is to be slower, not to
// stand.
void every_size(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"size", "busy"})->UseRealTime()->Unit(benchmark::kMillisecond);
  bench->ArgsProduct({{0, 1, 2, 3, 4, 5}, {0}})->Args({0, 1})->Args({2, 1});
}
BENCHMARK(GptStep<float>)->Apply(every_size);
BENCHMARK(GptStep<hs::bf16>)->Apply(every_size);
BENCHMARK(GptStep<hs::fp16>)->Apply(every_size);

}  // namespace
