// SPDX-License-Identifier: MIT
#include <halfstep/core/pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace {
using namespace halfstep::core;

/// pool.run with a callable.
template <class Body>
void run(ThreadPool& pool, std::int64_t count, int parts, Body body) {
  pool.run(
      count, parts,
      [](void* context, std::int64_t begin, std::int64_t end, int worker) {
        (*static_cast<Body*>(context))(begin, end, worker);
      },
      &body);
}

TEST(PartOf, CutsIntoContiguousPartsOfEqualLengthButOne) {
  for (const std::int64_t count : {1, 2, 3, 7, 64, 1001}) {
    for (int parts = 1; parts <= 9; ++parts) {
      std::int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Range range = part_of(count, parts, i);
        EXPECT_EQ(range.begin, next);
        const std::int64_t length = range.end - range.begin;
        EXPECT_TRUE(length == count / parts || length == count / parts + 1);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}
TEST(PartOf, TakesTheLargestCount) {
  const std::int64_t count = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(part_of(count, 1024, 1023).end, count);
}

class Pool : public testing::TestWithParam<int> {};
TEST_P(Pool, CallsEveryItemOnceOnTheWorkerOfItsPart) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 5, 64, 1000}) {
    for (int parts = -1; parts <= pool.size() + 2; ++parts) {
      std::vector<int> worker_of(static_cast<std::size_t>(count), -1);
      run(pool, count, parts, [&](std::int64_t begin, std::int64_t end, int worker) {
        for (; begin < end; ++begin)
          worker_of[static_cast<std::size_t>(begin)] += worker + 1;
      });
      const int used =
          static_cast<int>(std::min<std::int64_t>(std::clamp(parts, 1, pool.size()), count));
      for (int i = 0; i < used; ++i) {
        const Range range = part_of(count, used, i);
        for (std::int64_t j = range.begin; j < range.end; ++j) {
          ASSERT_EQ(worker_of[static_cast<std::size_t>(j)], i) << count << " " << parts;
        }
      }
    }
  }
}
TEST_P(Pool, CountsTheTasksOfEachWorker) {
  ThreadPool pool(GetParam());
  for (int i = 0; i < 10; ++i)
    run(pool, 100, pool.size(), [](auto, auto, int) {});
  run(pool, 100, 1, [](auto, auto, int) {});
  ASSERT_EQ(pool.tasks_per_worker().size(), static_cast<std::size_t>(pool.size()));
  for (int i = 0; i < pool.size(); ++i) {
    EXPECT_EQ(pool.tasks_per_worker()[static_cast<std::size_t>(i)], i == 0 ? 11U : 10U);
  }
}
TEST_P(Pool, WorkersAreThreadsOfTheirOwnAndTheCallerIsTheFirst) {
  ThreadPool pool(GetParam());
  std::vector<std::thread::id> first(static_cast<std::size_t>(pool.size())), second = first;
  for (auto* ids : {&first, &second}) {
    run(pool, pool.size(), pool.size(), [ids](auto, auto, int worker) {
      (*ids)[static_cast<std::size_t>(worker)] = std::this_thread::get_id();
    });
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  std::sort(first.begin(), first.end());
  EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
}
TEST_P(Pool, SeesWhatTheCallerWroteAndTheCallerSeesWhatItWrote) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(257);
  std::iota(values.begin(), values.end(), 0);
  for (int round = 0; round < 2000; ++round) {
    run(pool, 257, pool.size(), [&](std::int64_t begin, std::int64_t end, int) {
      for (; begin < end; ++begin)
        ++values[static_cast<std::size_t>(begin)];
    });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // asleep
    // Cut otherwise, so that the next range reads what another worker wrote.
    std::rotate(values.begin(), values.begin() + 1, values.end());
  }
  std::sort(values.begin(), values.end());
  for (std::int64_t i = 0; i < 257; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 2000 + i);
}
TEST_P(Pool, TheFirstWorkersExceptionArrivesAfterAllHaveReturned) {
  ThreadPool pool(GetParam());
  for (int thrower = 0; thrower < pool.size(); ++thrower) {
    std::atomic<int> calls = 0;
    try {
      run(pool, 100, pool.size(), [&](auto, auto, int worker) {
        if (worker != thrower) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++calls;
        if (worker >= thrower) throw std::runtime_error(std::to_string(worker));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(thrower));
    }
    EXPECT_EQ(calls, pool.size());
  }
  EXPECT_NO_THROW(run(pool, 100, pool.size(), [](auto, auto, int) {}));  // and is forgotten
}
TEST_P(Pool, ANestedRunIsSerialUnderTheNumberThatItsThreadHas) {
  ThreadPool pool(GetParam());
  std::atomic<int> nested = 0;
  run(pool, pool.size(), pool.size(), [&](auto, auto, int outer) {
    const auto self = std::this_thread::get_id();
    run(pool, 1000, pool.size(), [&](std::int64_t begin, std::int64_t end, int inner) {
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 1000);
      EXPECT_EQ(inner, outer);
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++nested;
    });
  });
  EXPECT_EQ(nested, pool.size());
}
INSTANTIATE_TEST_SUITE_P(Threads, Pool, testing::Values(1, 2, 3, 8),
                         [](const auto& one) { return std::to_string(one.param); });

TEST(Pool, RefusesUseByTwoThreadsAtATime) {
  ThreadPool pool(2);
  std::string message;
  run(pool, 2, 2, [&](auto, auto, int worker) {
    if (worker != 1) return;
    std::thread([&] {
      try {
        run(pool, 2, 2, [](auto, auto, int) {});
      } catch (const halfstep::StateError& error) {
        message = error.what();
      }
    }).join();
  });
  EXPECT_EQ(message,
            "ThreadPool::run: the pool is busy with work of another thread. Does each thread that "
            "trains have a Runtime of its own?");
}
TEST(Pool, RefusesSizesThatAreNone) {
  for (const int threads : {-1, 1025}) {
    try {
      ThreadPool pool(threads);
      FAIL() << threads;
    } catch (const halfstep::OptionError& error) {
      EXPECT_EQ(error.what(), "ThreadPool: " + std::to_string(threads) +
                                  " threads; wanted 1 to 1024, or 0 for as many as this process "
                                  "may use.");
    }
  }
}
TEST(Pool, InAForkedChildRunsOnTheCallingThreadAlone) {
  auto pool = std::make_unique<ThreadPool>(4);
  run(*pool, 4, 4, [](auto, auto, int) {});
  const pid_t child = fork();
  if (child == 0) {
    int calls = 0;
    std::int64_t covered = 0;
    run(*pool, 100, 4, [&](std::int64_t begin, std::int64_t end, int worker) {
      ++calls;
      covered = begin == 0 && worker == 0 ? end : -1;
    });
    pool.reset();  // must not wait for threads that are not there
    _exit(calls == 1 && covered == 100 ? 7 : 8);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  std::atomic<int> calls = 0;
  run(*pool, 4, 4, [&](auto, auto, int) { ++calls; });
  EXPECT_EQ(calls, 4);  // the parent's pool is as before
}
TEST(Pool, SleepsWhenThereIsNothingToDo) {
  ThreadPool pool(3);
  run(pool, 3, 3, [](auto, auto, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();  // of all threads of the process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}
TEST(Pool, AWaitingCallerSleepsToo) {
  ThreadPool pool(2);
  const std::clock_t before = std::clock();
  run(pool, 2, 2, [](auto, auto, int worker) {
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}
TEST(Pool, ManyPoolsMakeProgressOnFewCores) {
  std::vector<std::thread> owners;
  std::atomic<int> calls = 0;
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&] {
      ThreadPool pool(4);
      for (int i = 0; i < 200; ++i)
        run(pool, 4, 4, [&](auto, auto, int) { ++calls; });
    });
  }
  for (auto& owner : owners)
    owner.join();
  EXPECT_EQ(calls, 4 * 4 * 200);
}
}  // namespace
