// SPDX-License-Identifier: MIT
// What a kernel is handed besides its data: the path to take, the threads to share, the counters to
// feed. A Compute is a view; `Runtime` owns what it points to.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/counters.hpp>
#include <halfstep/core/float_environment.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/views.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// Where and how a kernel runs. Default: the process's default path, on the calling thread.
struct Compute {
  Isa isa = default_isa();
  ThreadPool* pool = nullptr;    ///< null: the calling thread alone
  Counters* counters = nullptr;  ///< null: nothing is counted
  bool dry = false;              ///< nothing is computed: `parallel` returns at once

  [[nodiscard]] int threads() const { return pool == nullptr ? 1 : pool->size(); }

  /// Calls body(begin, end, worker) on disjoint contiguous ranges that cover [0, count), at least
  /// `grain` items each, under the house's floating-point environment (see float_environment.hpp).
  /// worker is in [0, threads()) and no two calls at a time share one: it indexes scratch memory.
  /// The caller's environment is restored on every way out; an exception of a body reaches the
  /// caller after all bodies have returned. Allocates nothing. Within a body it runs on the calling
  /// thread alone, under the number that this has already.
  template <class Body>
  void parallel(std::int64_t count, std::int64_t grain, Body&& body) const {
    if (count <= 0 || dry) return;
    using Stored = std::remove_reference_t<Body>;
    const auto call = [](void* context, std::int64_t begin, std::int64_t end, int worker) {
      (*static_cast<Stored*>(context))(begin, end, worker);
    };
    auto* context = const_cast<void*>(static_cast<const void*>(std::addressof(body)));
    if (pool == nullptr) {
      call_in_float_environment(call, context, 0, count, 0);
      return;
    }
    const std::int64_t parts =
        std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, pool->size());
    pool->run(count, static_cast<int>(parts), call, context);
  }

  /// As parallel, but ranges are taken as workers come for them, so that a worker whose core is
  /// shared or throttled gets less and the others do not wait for it: rounds of as many equal
  /// ranges as there are workers, each round half of what is left; once a worker's part of that
  /// would be below `grain`, the last round is all of it. A body may be called several times on one
  /// worker, and which ranges that gets depends on the moment: no result may, as none may depend on
  /// the number of threads. For work of microseconds an item whose ranges cost little to begin; 50
  /// to 110 ns a range.
  template <class Body>
  void share(std::int64_t count, std::int64_t grain, Body&& body) const {
    grain = std::max<std::int64_t>(grain, 1);
    const std::int64_t workers = std::clamp<std::int64_t>(count / grain, 1, threads());
    if (workers == 1) return parallel(count, count, body);
    std::atomic<std::int64_t> next{0};
    parallel(workers, 1, [&](std::int64_t, std::int64_t, int worker) {
      std::int64_t begin = next.load(std::memory_order_relaxed);
      while (begin < count) {
        const std::int64_t end = end_of_shared(count, grain, workers, begin);
        if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
        body(begin, end, worker);
        begin = next.load(std::memory_order_relaxed);
      }
    });
  }

 private:
  /// Where the range that begins at `begin` ends.
  [[nodiscard]] static std::int64_t end_of_shared(std::int64_t count, std::int64_t grain,
                                                  std::int64_t workers, std::int64_t begin) {
    for (std::int64_t end_of_round = 0;;) {
      const std::int64_t left = count - end_of_round, half = left / (2 * workers);
      const std::int64_t length = half < grain ? std::max(grain, divide_up(left, workers)) : half;
      end_of_round += workers * length;
      if (begin < end_of_round) return std::min(begin + length, count);
    }
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
