// SPDX-License-Identifier: MIT
// The step of configuration S (nanoGPT's GPU one, batch 16) in bf16, by one process of one thread
// and by two ranks of one thread: bench_dist_scaling [host|data] [rounds]. The work is fixed: 2
// micro-batches of 8 rows, both in one process or one on each rank, and the bits are the same,
// which is checked.
//
//   speed-up  the time of one process by that of two ranks; beside it that of the register-only
//             loops: operations a second of two ranks at a time by those of rank 0 alone
//   share     the former by the latter: 1 if nothing but the cores limits
// Everything is measured in the ranks of one run, by turns, rank 1 asleep while rank 0 works alone;
// the best of the rounds. The same by processor time, the slower rank's: what is left of the ratio
// where other programs take their share of the CPUs. `host` is OneHost, `data` data parallelism.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <time.h>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/one_host.hpp>
#include <halfstep/dist/transport/launch.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>

#include "../core/ceiling.hpp"
#include "bind.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using hs::bf16;
using AdamW = hs::mixed::MasterWeights<hs::optim::AdamW, bf16>;

constexpr hs::nn::GptOptions s{
    .vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384};
constexpr int rows = 8, micro_batches = 2;

[[nodiscard]] double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Seconds that something took.
struct Took {
  double wall = 1e9, processor = 1e9;
  void least(const Took& other) {
    wall = std::min(wall, other.wall);
    processor = std::min(processor, other.processor);
  }
};

/// Trains step by step, alone or as a rank.
template <class Optimizer, class Accumulator>
class Trainer {
 public:
  Trainer(hs::Runtime& runtime, const hs::nn::Gpt<bf16>& gpt, Optimizer& optimizer,
          Accumulator& accumulator)
      : gpt_(gpt), optimizer_(optimizer), accumulator_(accumulator), tape_(runtime) {}

  Took step() {
    const double wall = seconds_of(CLOCK_MONOTONIC),
                 processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    auto window = accumulator_.begin(
        tape_, iteration_++,
        {.micro_batches = micro_batches, .rows = rows, .targets_per_row = s.context});
    for (const auto micro : window) {
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        const auto place = static_cast<std::uint64_t>(micro.first_sample * s.context) + i;
        inputs_[i] = static_cast<std::int32_t>(hs::core::uniform_below(1, 0, place, 65));
        targets_[i] = static_cast<std::int32_t>(hs::core::uniform_below(1, 1, place, 65));
      }
      tape_.begin(micro);
      window.backward(tape_, gpt_.loss(tape_, inputs_, targets_));
    }
    optimizer_.step(std::move(window).unscale().clip_norm(1.0F), 1e-4F);
    return {seconds_of(CLOCK_MONOTONIC) - wall, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor};
  }
  [[nodiscard]] std::uint64_t hash() { return optimizer_.weights_hash(); }

 private:
  const hs::nn::Gpt<bf16>& gpt_;
  Optimizer& optimizer_;
  Accumulator& accumulator_;
  hs::Tape tape_;
  std::vector<std::int32_t> inputs_ = std::vector<std::int32_t>(rows * s.context),
                            targets_ = inputs_;
  std::int64_t iteration_ = 0;
};

/// Operations a second from registers: VDPBF16PS, and FMA.
struct Loops {
  double dot = 0, fma = 0;
  static Loops measure() {
    const auto ceiling = halfstep_bench::measure_ceiling(1);
    return {ceiling.bf16_gflops, std::max(ceiling.avx512_gflops, ceiling.avx2_gflops)};
  }
  void most(const Loops& other) {
    dot = std::max(dot, other.dot);
    fma = std::max(fma, other.fma);
  }
};

template <class Optimizer, class Accumulator>
void measure(dist::Group& group, hs::Runtime& runtime, const hs::nn::Gpt<bf16>& gpt,
             Optimizer& optimizer, Accumulator& accumulator, int rounds) {
  const bool first = group.rank() == 0;
  Trainer together(runtime, gpt, optimizer, accumulator);
  // Rank 0 alone, with a model of its own.
  hs::Parameters<bf16> parameters(runtime);
  const hs::nn::Gpt<bf16> own(parameters, s);
  AdamW alone_optimizer(parameters);
  hs::mixed::GradientAccumulator<bf16> alone_accumulator(parameters);
  Trainer alone(runtime, own, alone_optimizer, alone_accumulator);

  Took one, two;
  Loops one_core, two_cores;
  for (int round = 0; round <= rounds; ++round) {  // the first warms up
    dist::barrier(group);
    if (first) {
      one_core.most(Loops::measure());
      const Took took = alone.step();
      if (round > 0) one.least(took);
    }
    dist::barrier(group);
    Loops sum;
    for (const Loops& rank : dist::gather_values(group, Loops::measure())) {
      sum.dot += rank.dot;
      sum.fma += rank.fma;
    }
    two_cores.most(sum);
    Took slowest{0.0, 0.0};
    for (const Took& rank : dist::gather_values(group, together.step())) {
      slowest.wall = std::max(slowest.wall, rank.wall);
      slowest.processor = std::max(slowest.processor, rank.processor);
    }
    if (round > 0) two.least(slowest);
  }
  const std::uint64_t hash = together.hash();
  if (!first) return;
  const double loop =
      two_cores.dot > 0 ? two_cores.dot / one_core.dot : two_cores.fma / one_core.fma;
  std::printf("dot-product loop %.0f and %.0f GFLOP/s, FMA loop %.0f and %.0f: speed-up %.3f\n",
              one_core.dot, two_cores.dot, one_core.fma, two_cores.fma, loop);
  const auto line = [&](const char* clock, double alone_seconds, double seconds) {
    std::printf("step, %s: %.0f ms by one process, %.0f by two ranks: speed-up %.3f, share %.3f\n",
                clock, alone_seconds * 1e3, seconds * 1e3, alone_seconds / seconds,
                alone_seconds / seconds / loop);
  };
  line("wall", one.wall, two.wall);
  line("processor", one.processor, two.processor);
  if (hash != alone.hash()) throw std::runtime_error("the weights differ");
}

}  // namespace

int main(int argc, char** argv) {
  const bool host = std::string_view(argc > 1 ? argv[1] : "host") == "host";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  using Host = dist::OneHost<AdamW>;
  constexpr std::int64_t room = 11'000'000;  // parameters; the model has 10.8 million
  return dist::launch(
      {.ranks = 2,
       .threads = 1,
       .arena_bytes = Host::arena_bytes(room),
       .common_bytes = Host::common_bytes(room)},
      [&](const dist::Rank& self) {
        const int cpu = halfstep_bench::bind_to(self.transport.rank());
        hs::Runtime runtime({.threads = 1});
        dist::Group group(self.transport, runtime);
        const auto cpus = dist::gather_values(group, cpu);
        if (group.rank() == 0) {
          std::printf("%s, path %s, on CPUs %d and %d\n", host ? "one host" : "data parallel",
                      hs::core::to_string(runtime.isa()).data(), cpus[0], cpus[1]);
        }
        hs::Parameters<bf16> parameters(runtime);
        const hs::nn::Gpt<bf16> gpt(parameters, s);
        if (host) {
          Host optimizer(group, parameters);
          hs::mixed::GradientAccumulator<bf16> accumulator(parameters, nullptr, optimizer.ranks());
          measure(group, runtime, gpt, optimizer, accumulator, rounds);
        } else {
          dist::DataParallel<bf16> ranks(group, parameters);
          AdamW optimizer(parameters);
          hs::mixed::GradientAccumulator<bf16> accumulator(parameters, nullptr, ranks);
          measure(group, runtime, gpt, optimizer, accumulator, rounds);
        }
      });
}
