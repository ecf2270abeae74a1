// SPDX-License-Identifier: MIT
#include <halfstep/core/compute.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "allocations.hpp"

namespace {
using namespace halfstep::core;

TEST(Compute, WithoutAPoolCallsOnceOnTheCallingThread) {
  const Compute compute;
  EXPECT_EQ(compute.threads(), 1);
  int calls = 0;
  compute.parallel(10, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
    EXPECT_EQ(worker, 0);
  });
  compute.parallel(0, 1, [&](auto, auto, int) { ++calls; });
  compute.parallel(-3, 1, [&](auto, auto, int) { ++calls; });
  EXPECT_EQ(calls, 1);
}
TEST(Compute, GivesEveryRangeAtLeastItsGrain) {
  ThreadPool pool(4);
  const Compute compute{.pool = &pool};
  EXPECT_EQ(compute.threads(), 4);
  for (const std::int64_t grain : {-1, 0, 1, 3, 10, 33, 1000}) {
    for (const std::int64_t count : {1, 2, 9, 10, 99, 100}) {
      std::atomic<std::int64_t> covered = 0, calls = 0;
      compute.parallel(count, grain, [&](std::int64_t begin, std::int64_t end, int) {
        EXPECT_GE(end - begin, std::min(count, grain));
        covered += end - begin;
        ++calls;
      });
      EXPECT_EQ(covered, count);
      EXPECT_EQ(calls, std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, 4));
    }
  }
}
TEST(Compute, ASmallNestedLoopKeepsTheWorkersNumber) {
  ThreadPool pool(3);
  const Compute compute{.pool = &pool};
  compute.parallel(3, 1, [&](auto, auto, int outer) {
    compute.parallel(1, 1, [&](auto, auto, int inner) { EXPECT_EQ(inner, outer); });
  });
}
#if COUNTS_ALLOCATIONS
TEST(Compute, AllocatesNothing) {
  ThreadPool pool(3);
  const Compute compute{.pool = &pool};
  std::int64_t sums[3] = {};
  const auto body = [&](std::int64_t begin, std::int64_t end, int worker) {
    for (; begin < end; ++begin)
      sums[worker] += begin;
  };
  const std::int64_t before = halfstep_tests::allocations;
  for (int i = 0; i < 100; ++i)
    compute.parallel(1000, 1, body);
  EXPECT_EQ(halfstep_tests::allocations, before);
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 100 * 999 * 500);
  ::operator delete(::operator new(8));
  EXPECT_EQ(halfstep_tests::allocations, before + 1);  // the count counts
}
#endif
TEST(Compute, PassesAnExceptionOn) {
  ThreadPool pool(2);
  for (ThreadPool* const one : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const Compute compute{.pool = one};
    EXPECT_THROW(compute.parallel(10, 1, [](auto, auto, int) { throw std::range_error("x"); }),
                 std::range_error);
  }
}
TEST(Compute, TakesAConstantAndATemporaryBody) {
  static int calls = 0;
  const auto constant = [](std::int64_t, std::int64_t, int) { ++calls; };
  Compute{}.parallel(1, 1, constant);
  Compute{}.parallel(1, 1, [](std::int64_t, std::int64_t, int) mutable { ++calls; });
  EXPECT_EQ(calls, 2);
}
TEST(Compute, SharesEveryItemOnceInRangesOfAtLeastTheGrain) {
  ThreadPool pool(3);
  const Compute with_pool{.pool = &pool}, alone;
  for (const Compute* const compute : {&with_pool, &alone}) {
    for (const std::int64_t grain : {0, 1, 7, 200}) {
      for (const std::int64_t count : {0, 1, 2, 20, 100}) {
        std::vector<std::atomic<int>> taken(static_cast<std::size_t>(count));
        compute->share(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
          EXPECT_TRUE(end - begin >= grain || end == count) << begin << " to " << end;
          EXPECT_TRUE(worker >= 0 && worker < compute->threads());
          for (; begin < end; ++begin)
            ++taken[static_cast<std::size_t>(begin)];
        });
        for (const auto& times : taken)
          EXPECT_EQ(times, 1);
      }
    }
  }
}
TEST(Compute, SharesInRoundsOfEqualRangesSoThatNobodyEndsLate) {
  ThreadPool pool(2);
  const Compute compute{.pool = &pool};
  std::array<std::atomic<std::int64_t>, 86> length_at{};
  compute.share(86, 8, [&](std::int64_t begin, std::int64_t end, int) {
    length_at[static_cast<std::size_t>(begin)] = end - begin;
  });
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : length_at) {
    if (length != 0) lengths.push_back(length);
  }
  // A quarter of 86, a quarter of 44; a quarter of 22 is below the grain.
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{21, 21, 11, 11, 11, 11}));
}
TEST(Compute, AWorkerThatIsSlowIsGivenLess) {
  ThreadPool pool(2);
  const Compute compute{.pool = &pool};
  // The first range of worker 1 lasts until all others are done; parallel would wait here for ever.
  std::atomic<std::int64_t> done = 0;
  std::atomic<bool> caught = false;
  std::int64_t items[2] = {};
  compute.share(1000, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    const std::int64_t length = end - begin;
    if (worker == 1) {
      caught = true;
      while (done < 1000 - length)
        std::this_thread::yield();
    } else {
      while (!caught)
        std::this_thread::yield();
    }
    done += length;
    items[worker] += length;
  });
  EXPECT_EQ(items[0] + items[1], 1000);
  EXPECT_LE(items[1], 250) << "its first range is a quarter of all";
  EXPECT_GE(items[1], 1);
}
TEST(Compute, ANestedShareIsSerialUnderTheWorkersNumber) {
  ThreadPool pool(3);
  const Compute compute{.pool = &pool};
  compute.parallel(3, 1, [&](auto, auto, int outer) {
    std::int64_t covered = 0;
    compute.share(50, 1, [&](std::int64_t begin, std::int64_t end, int inner) {
      EXPECT_EQ(inner, outer);
      covered += end - begin;
    });
    EXPECT_EQ(covered, 50);
  });
}
TEST(Compute, PassesAnExceptionOfASharedBodyOn) {
  ThreadPool pool(2);
  const Compute compute{.pool = &pool};
  EXPECT_THROW(compute.share(10, 1, [](auto, auto, int) { throw std::range_error("x"); }),
               std::range_error);
}
}  // namespace
