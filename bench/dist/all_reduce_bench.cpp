// SPDX-License-Identifier: MIT
// All-reduce of n bytes of float on the ranks that this program starts: bench_dist_all_reduce
// [ranks] [transport] [algorithm] [arena|private] [largest bytes]. Prints one line for each size.
//
//   algbw  n / t, and busbw = algbw x 2 (ranks - 1) / ranks: nccl-tests' definitions
//   membw  2 x ranks x n / t: what a push reads and writes. Beside it stands the ceiling of the same
//          run: every rank reading and writing its part of `ranks` arrays in place.
// The time is that of the slowest rank, the least of some repetitions; ranks are bound to CPU
// `rank` modulo those there are, which is printed. Flat membw means that memory limits; membw that
// grows with n means that the meetings do.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>

#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/transport/launch.hpp>

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using Clock = std::chrono::steady_clock;

struct Settings {
  dist::LaunchOptions launch;
  dist::Algorithm algorithm = dist::Algorithm::best;
  bool arena = true;
  std::int64_t largest = std::int64_t{256} << 20;
};

/// Binds this thread to one of the CPUs it may use; says which.
int bind_to(int number) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int left = number % std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return cpu;
  }
  return -1;
}

/// Seconds of the slowest rank, least of `rounds`.
template <class Body>
double least(dist::Group& group, int rounds, Body body) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    dist::barrier(group);
    const auto start = Clock::now();
    body();
    const double mine = std::chrono::duration<double>(Clock::now() - start).count();
    const std::vector<double> all = dist::gather_values(group, mine);
    best = std::min(best, *std::max_element(all.begin(), all.end()));
  }
  return best;
}

void measure(const dist::Rank& self, const Settings& settings) {
  const int cpu = bind_to(self.transport.rank());
  hs::Runtime runtime({.threads = 1});
  dist::Group group(self.transport, runtime);
  const int n = group.size();
  const std::vector<int> cpus = dist::gather_values(group, cpu);
  const bool prints = group.rank() == 0;
  std::vector<float> heap;
  const std::int64_t count = settings.largest / 4;
  std::span<float> data;
  if (settings.arena && self.transport.shared() != nullptr) {
    data = self.transport.shared()->allocate<float>(count);
  } else {
    heap.resize(static_cast<std::size_t>(count));
    data = heap;
  }
  std::fill(data.begin(), data.end(), 0.0F);  // whose sum stays what it is, however often
  if (prints) {
    std::printf("%d ranks over %s, %s buffers, path %s, on CPUs", n,
                std::string(self.transport.name()).c_str(), heap.empty() ? "arena" : "private",
                std::string(hs::core::to_string(runtime.isa())).c_str());
    for (const int one : cpus)
      std::printf(" %d", one);
    std::printf("\n%12s %12s %10s %10s %10s %10s\n", "bytes", "us", "algbw GB/s", "busbw", "membw",
                "ceiling");
  }
  for (std::int64_t bytes = 64; bytes <= settings.largest; bytes *= 4) {
    const auto part = data.first(static_cast<std::size_t>(bytes / 4));
    const int rounds =
        static_cast<int>(std::clamp<std::int64_t>((std::int64_t{256} << 20) / bytes, 8, 300));
    // Small ones many times in a row, since a clock ticks too coarsely for one.
    const int inner = bytes <= 65536 ? 50 : 1;
    const double t =
        least(group, rounds,
              [&] {
                for (int i = 0; i < inner; ++i)
                  dist::all_reduce(group, part, dist::Reduction::sum, settings.algorithm);
              }) /
        inner;
    // The floor: n buffers read and written, each rank its part of them, here all in its own
    // memory.
    std::vector<float> own(part.size());
    const double floor = least(group, rounds,
                               [&] {
                                 for (int i = 0; i < inner; ++i)
                                   hs::kernels::scale<float>(group.compute(), own, 1.0F, own);
                               }) /
                         inner;
    if (!prints) continue;
    const double size = static_cast<double>(bytes), moved = 2.0 * n * size;
    std::printf("%12ld %12.2f %10.2f %10.2f %10.2f %10.2f\n", static_cast<long>(bytes), t * 1e6,
                size / t * 1e-9, size / t * 1e-9 * 2 * (n - 1) / n, moved / t * 1e-9,
                moved / floor * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) {
    return std::string_view(argc > i ? argv[i] : otherwise);
  };
  Settings settings;
  settings.launch.ranks = std::atoi(argument(1, "2").data());
  settings.launch.transport = dist::transport_kind(argument(2, "shm"));
  settings.launch.threads = 1;
  settings.algorithm = dist::algorithm(argument(3, "best"));
  settings.arena = argument(4, "arena") == "arena";
  settings.largest = std::atoll(argument(5, "268435456").data());
  if (settings.arena && settings.launch.transport != dist::TransportKind::pipe)
    settings.launch.arena_bytes = settings.largest;
  return dist::launch(settings.launch, [&](const dist::Rank& self) { measure(self, settings); });
}
