// SPDX-License-Identifier: MIT
// The thread pool: one range cut into fixed contiguous parts, worker 0 being the caller. Which
// worker gets what depends on the sizes alone. Not a task queue; core/compute.hpp is how to use it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/float_environment.hpp>
#include <halfstep/core/threads.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// Part `index` of the cut of [0, count) into `parts` contiguous ranges whose lengths differ by at
/// most 1, the longer ones first.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
[[nodiscard]] constexpr Range part_of(std::int64_t count, int parts, int index) {
  const std::int64_t length = count / parts;
  const std::int64_t longer = count % parts;
  const std::int64_t begin = index * length + std::min<std::int64_t>(index, longer);
  return {begin, begin + length + (index < longer ? 1 : 0)};
}

namespace detail {

/// One thread waits for one post of one other; then it can be used again.
class Signal {
 public:
  void post() {
    if (word_.exchange(posted, std::memory_order_acq_rel) == asleep) {
      syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    }
  }
  /// Spins for that many ticks of the time-stamp counter, then sleeps. Returns the ticks it took.
  std::uint64_t wait(std::uint64_t spin_ticks) {
    const std::uint64_t start = __builtin_ia32_rdtsc();
    std::uint64_t yield_at = yield_ticks;
    while (word_.load(std::memory_order_acquire) != posted) {
      const std::uint64_t ticks = __builtin_ia32_rdtsc() - start;
      if (ticks >= spin_ticks) {
        sleep();
        break;
      }
      if (ticks >= yield_at) {
        // The thread that will post may be waiting for this very core.
        sched_yield();
        yield_at = ticks + yield_ticks;
      }
      __builtin_ia32_pause();
    }
    word_.store(idle, std::memory_order_relaxed);
    return __builtin_ia32_rdtsc() - start;
  }

 private:
  static constexpr std::uint64_t yield_ticks = 4'000;  // 1 to 2 microseconds
  static constexpr std::uint32_t idle = 0, posted = 1, asleep = 2;

  void sleep() {
    std::uint32_t expected = idle;
    if (!word_.compare_exchange_strong(expected, asleep, std::memory_order_acquire)) return;
    while (word_.load(std::memory_order_acquire) != posted) {  // a signal may end the call early
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, asleep, nullptr, nullptr, 0);
    }
  }

  std::atomic<std::uint32_t> word_{idle};
};
static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace detail

/// Threads that wait for work: they spin for about 30 microseconds, then sleep. Belongs to one
/// thread that trains; a second one has a pool (a Runtime) of its own.
///
/// In a forked child the workers do not exist: there the pool runs everything on the calling
/// thread, and its destructor waits for nobody.
class ThreadPool {
 public:
  /// A pool of that many threads, the caller included; 0: `available_threads()`.
  /// @throws OptionError below 0 or above max_threads, MemoryError if the system refuses a thread.
  explicit ThreadPool(int threads = 0) {
    if (threads < 0 || threads > max_threads) {
      fail<OptionError>("ThreadPool: ", threads, " threads; wanted 1 to ", max_threads,
                        ", or 0 for as many as this process may use.");
    }
    const int available = available_threads();
    const int size = threads == 0 ? std::min(available, max_threads) : threads;
    // Spinning takes the core from the thread it waits for if they share one.
    spin_ticks_ = size <= available ? spin_limit : 0;
    tasks_.resize(static_cast<std::size_t>(size));
    workers_ = std::make_unique<Worker[]>(static_cast<std::size_t>(size));
    for (int number = 1; number < size; ++number)
      start(number);
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool() { stop(size()); }

  static constexpr int max_threads = 1024;

  /// Threads, the caller included.
  [[nodiscard]] int size() const { return static_cast<int>(tasks_.size()); }

  /// Calls function(context, begin, end, worker) once for each of `parts` ranges that cover
  /// [0, count) (see part_of), range i on worker i, each under the kernels' floating-point
  /// environment. Returns when all have returned, and then throws what the worker of the lowest
  /// number threw, if any did. `parts` is brought into [1, min(size, count)].
  ///
  /// From within a function that the pool runs, and in a forked child, it calls the function once
  /// with the whole range, on the calling thread and with the number which that has already.
  ///
  /// Cost: nothing is allocated; 0.2 microseconds for one part, below 1 if the workers still spin
  /// on cores of their own, about 5 to wake them or where they share one (pool_bench).
  /// @throws StateError if another thread is using the pool.
  void run(std::int64_t count, int parts, RangeFunction function, void* context) {
    if (count <= 0) return;
    const pthread_t self = pthread_self();
    pthread_t user = nobody;
    if (!user_.compare_exchange_strong(user, self, std::memory_order_acquire)) {
      const int number = forked() ? 0 : number_of(self, user);
      call_in_float_environment(function, context, 0, count, number);
      return;
    }
    struct Release {
      std::atomic<pthread_t>& user;
      ~Release() { user.store(nobody, std::memory_order_release); }
    } const release{user_};
    parts = static_cast<int>(std::min<std::int64_t>(std::clamp(parts, 1, size()), count));
    if (parts == 1 || forked()) {
      call_in_float_environment(function, context, 0, count, 0);
      ++tasks_[0];
      return;
    }
    function_ = function;
    context_ = context;
    count_ = count;
    parts_ = parts;
    remaining_.store(parts - 1, std::memory_order_relaxed);
    for (int number = 1; number < parts; ++number)
      worker(number).signal.post();
    work(0);
    waited_ += done_.wait(spin_ticks_);
    if (failed_.load(std::memory_order_relaxed)) rethrow_first();
  }

  /// Ranges that each worker has finished so far. Read it between runs.
  [[nodiscard]] std::span<const std::uint64_t> tasks_per_worker() const { return tasks_; }
  /// Ticks of the time-stamp counter for which callers had finished their part and others had not.
  [[nodiscard]] std::uint64_t waited_ticks() const { return waited_; }

 private:
  /// Ticks of the time-stamp counter, which counts 2 to 4 a nanosecond: 25 to 50 microseconds.
  static constexpr std::uint64_t spin_limit = 100'000;
  static constexpr pthread_t nobody = 0;

  struct alignas(64) Worker {
    detail::Signal signal;
    std::exception_ptr error;
    pthread_t thread = nobody;
    ThreadPool* pool = nullptr;
    int number = 0;
  };

  [[nodiscard]] Worker& worker(int number) { return workers_[static_cast<std::size_t>(number)]; }

  void start(int number) {
    Worker& one = worker(number);
    one.pool = this;
    one.number = number;
    // Signals that a program handles go to its own threads. Those of faults and profilers stay.
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD,
                             SIGPIPE, SIGWINCH, SIGTSTP, SIGCONT}) {
      sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const int error = pthread_create(&one.thread, nullptr, &ThreadPool::loop, &one);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error == 0) return;
    stop(number);
    fail<MemoryError>("ThreadPool: the system refused thread ", number + 1, " of ", size(), " (",
                      std::strerror(error), "). Ask for fewer, or raise the limit on processes.");
  }

  /// Whether this process is a child that has no workers. A system call, 0.1 microseconds.
  [[nodiscard]] bool forked() const { return getpid() != process_; }

  /// Ends workers 1 to count - 1.
  void stop(int count) {
    if (forked()) return;
    function_ = nullptr;
    for (int number = 1; number < count; ++number)
      worker(number).signal.post();
    for (int number = 1; number < count; ++number)
      pthread_join(worker(number).thread, nullptr);
  }

  static void* loop(void* argument) {
    Worker& self = *static_cast<Worker*>(argument);
    for (;;) {
      self.signal.wait(self.pool->spin_ticks_);
      if (self.pool->function_ == nullptr) return nullptr;
      self.pool->work(self.number);
      if (self.pool->remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        self.pool->done_.post();
      }
    }
  }

  void work(int number) {
    const Range range = part_of(count_, parts_, number);
    try {
      call_in_float_environment(function_, context_, range.begin, range.end, number);
    } catch (...) {
      worker(number).error = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
    ++tasks_[static_cast<std::size_t>(number)];
  }

  void rethrow_first() {
    failed_.store(false, std::memory_order_relaxed);
    std::exception_ptr first;
    for (int number = 0; number < size(); ++number) {
      std::exception_ptr error = std::exchange(worker(number).error, nullptr);
      if (!first) first = std::move(error);
    }
    std::rethrow_exception(first);
  }

  /// The number of a thread that calls run while `user` is in it.
  [[nodiscard]] int number_of(pthread_t self, pthread_t user) {
    if (self == user) return 0;
    for (int number = 1; number < size(); ++number) {
      if (worker(number).thread == self) return number;
    }
    fail<StateError>(
        "ThreadPool::run: the pool is busy with work of another thread. Does each "
        "thread that trains have a Runtime of its own?");
  }

  pid_t process_ = getpid();
  std::uint64_t spin_ticks_ = 0;
  RangeFunction function_ = nullptr;  // these four are written between runs, read within one
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  int parts_ = 0;
  std::uint64_t waited_ = 0;
  std::unique_ptr<Worker[]> workers_;
  std::vector<std::uint64_t> tasks_;
  std::atomic<pthread_t> user_{nobody};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<int> remaining_{0};
  alignas(64) detail::Signal done_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
