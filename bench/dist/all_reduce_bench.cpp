// SPDX-License-Identifier: MIT
// All-reduce of n bytes of float on the ranks that this program starts: bench_dist_all_reduce
// [ranks] [transport] [algorithm] [arena|private] [bytes,bytes,...]. Prints one line for each size,
// of itself for 64 B to 256 MiB.
//
//   algbw  n / t, and busbw = algbw x 2 (ranks - 1) / ranks: nccl-tests' definitions
//   membw  2 x ranks x n / t: what a push reads and writes. Beside it stands the ceiling of the
//          same run: every rank reading and writing its part of `ranks` arrays in place.
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

#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/transport/launch.hpp>

#include "bind.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using Clock = std::chrono::steady_clock;

struct Settings {
  dist::LaunchOptions launch;
  dist::Algorithm algorithm = dist::Algorithm::best;
  bool arena = true;
  std::vector<std::int64_t> sizes;  ///< in bytes, multiples of 4
};

/// "64,4096": those.
[[nodiscard]] std::vector<std::int64_t> sizes_of(const char* list) {
  std::vector<std::int64_t> sizes;
  for (char* end = nullptr; *list != '\0'; list = end + (*end == ',' ? 1 : 0)) {
    sizes.push_back(std::strtoll(list, &end, 10));
    if (end == list) return {};
  }
  return sizes;
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
  const int cpu = halfstep_bench::bind_to(self.transport.rank());
  hs::Runtime runtime({.threads = 1});
  dist::Group group(self.transport, runtime);
  const int n = group.size();
  const std::vector<int> cpus = dist::gather_values(group, cpu);
  const bool prints = group.rank() == 0;
  std::vector<float> heap;
  const std::int64_t count = *std::max_element(settings.sizes.begin(), settings.sizes.end()) / 4;
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
  for (const std::int64_t bytes : settings.sizes) {
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
                                 dist::barrier(group);  // ranks that share a CPU take turns
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
  settings.sizes = sizes_of(argc > 5 ? argv[5]
                                     : "64,256,1024,4096,16384,65536,262144,1048576,4194304,"
                                       "16777216,67108864,268435456");
  if (settings.sizes.empty()) {
    std::fprintf(stderr, "bench_dist_all_reduce: sizes are '%s'; wanted bytes,bytes,...\n", argv[5]);
    return 2;
  }
  if (settings.arena && settings.launch.transport != dist::TransportKind::pipe) {
    settings.launch.arena_bytes = hs::core::round_up(
        *std::max_element(settings.sizes.begin(), settings.sizes.end()), std::int64_t{128});
  }
  return dist::launch(settings.launch, [&](const dist::Rank& self) { measure(self, settings); });
}
