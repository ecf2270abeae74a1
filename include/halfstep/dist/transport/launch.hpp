// SPDX-License-Identifier: MIT
// Starts the ranks of a run: this program again, once for each rank, or threads, or, for one rank,
// nothing at all. No ports, no names, no other program; ranks end with their launcher.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/threads.hpp>
#include <halfstep/dist/transport/detail/process.hpp>
#include <halfstep/dist/transport/detail/watch.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/sockets.hpp>
#include <halfstep/dist/transport/threads.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

enum class TransportKind : std::uint8_t { threads, shm, pipe };

/// @throws OptionError for another name.
[[nodiscard]] inline TransportKind transport_kind(std::string_view name) {
  if (name == "threads") return TransportKind::threads;
  if (name == "shm") return TransportKind::shm;
  if (name == "pipe") return TransportKind::pipe;
  core::fail<OptionError>("transport '", name, "' is unknown; there are threads, shm and pipe");
}

struct LaunchOptions {
  int ranks = 1;
  TransportKind transport = TransportKind::shm;
  int threads = 0;  ///< of each rank; 0: those this process may use, divided among the ranks
  std::int64_t arena_bytes =
      0;  ///< of shared memory for the buffers of each rank; a multiple of 128
  std::int64_t common_bytes = 0;               ///< the same for those of all ranks together
  std::chrono::milliseconds timeout{300'000};  ///< of one wait for another rank
  std::vector<std::string> arguments{};        ///< of ranks' processes; none: those of this one
};

/// What a rank is handed.
struct Rank {
  Transport& transport;  ///< knows number and count of ranks
  int threads = 1;       ///< how many this rank may use: RuntimeOptions::threads
};

namespace detail {

inline constexpr std::string_view launched_variable = "HALFSTEP_LAUNCHED";

/// What a rank's process finds in its environment: seven numbers, then those of its files.
struct Launched {
  int rank = 0, ranks = 1, kind = 0, threads = 1, reports = -1, crowded = 0;
  std::int64_t timeout = 0;
  std::vector<int> files;  ///< the segment, or a socket for each rank

  [[nodiscard]] std::string text() const {
    std::string out = core::text(rank, ' ', ranks, ' ', kind, ' ', threads, ' ', reports, ' ',
                                 crowded, ' ', timeout);
    for (const int file : files)
      out += core::text(' ', file);
    return out;
  }
  /// Of this process, once; nothing if no launcher started it.
  [[nodiscard]] static std::optional<Launched> take() {
    const char* const value = std::getenv(launched_variable.data());
    if (value == nullptr) return std::nullopt;
    const std::string copy = value;
    unsetenv(launched_variable.data());  // a rank may be a launcher in turn
    std::string_view rest = copy;
    std::vector<std::int64_t> numbers;
    while (const auto number = core::detail::take_integer(rest))
      numbers.push_back(*number);
    if (numbers.size() < 8) {
      core::fail<OptionError>("dist::launch: ", launched_variable, "='", copy,
                              "' is not what a launcher sets. Unset it.");
    }
    const auto at = [&](std::size_t i) { return static_cast<int>(numbers[i]); };
    Launched out{at(0), at(1), at(2), at(3), at(4), at(5), numbers[6], {}};
    for (std::size_t i = 7; i < numbers.size(); ++i)
      out.files.push_back(at(i));
    // A program that this rank starts must not keep them open: others would wait for their end.
    fcntl(out.reports, F_SETFD, FD_CLOEXEC);
    for (const int file : out.files) {
      if (file >= 0) fcntl(file, F_SETFD, FD_CLOEXEC);
    }
    return out;
  }
};

[[nodiscard]] inline std::string what_was_thrown(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

/// What the body returned: 0 if that is nothing.
template <class Body>
[[nodiscard]] int code_of(Body& body, const Rank& rank) {
  if constexpr (std::is_void_v<std::invoke_result_t<Body&, const Rank&>>) {
    body(rank);
    return 0;
  } else {
    return body(rank);
  }
}

/// Runs the body as one rank and gives the exit code. What became of it is handed to `report`
/// first, unless all is well.
template <class Body, class Report>
[[nodiscard]] int run_rank(Transport& transport, int threads, Body& body, Report report) {
  try {
    const int code = code_of(body, Rank{transport, threads});
    if (code != 0) report(code_returned, "");
    return code;
  } catch (const PeerError& error) {
    report(failure_of_a_peer, error.what());
  } catch (...) {
    report(own_failure, what_was_thrown(std::current_exception()));
  }
  return failed_rank_code;
}

/// The body in a process that a launcher started. Does not return.
template <class Body>
[[noreturn]] void run_launched(const Launched& launched, Body& body) {
  const File reports(launched.reports);
  std::optional<Segment> segment;
  std::optional<SharedMemory> shared;
  std::optional<Sockets> sockets;
  Transport* transport = nullptr;
  const std::chrono::milliseconds timeout(launched.timeout);
  if (launched.kind == static_cast<int>(TransportKind::shm)) {
    segment.emplace(Segment::attach(launched.files.at(0)));
    transport = &shared.emplace(*segment, launched.rank, "shm",
                                WaitOptions{.timeout = timeout, .crowded = launched.crowded != 0});
  } else {
    std::vector<File> files;
    for (const int file : launched.files)
      files.emplace_back(file);
    transport = &sockets.emplace(launched.rank, std::move(files), timeout);
  }
  const int code =
      run_rank(*transport, launched.threads, body, [&](char end, std::string_view what) {
        const std::string line = core::text(end, what);
        static_cast<void>(
            !write(reports.number(), line.data(), std::min<std::size_t>(line.size(), 4096)));
        if (segment && end != code_returned)
          segment->fail(launched.rank, core::text("failed: ", what));
      });
  std::exit(code);
}

/// Starts the processes and waits for them.
[[nodiscard]] inline int launch_processes(const LaunchOptions& options, int threads, bool crowded) {
  const auto n = static_cast<std::size_t>(options.ranks);
  const std::vector<std::string> arguments =
      options.arguments.empty() ? own_arguments() : options.arguments;
  std::optional<Segment> segment;
  std::vector<std::vector<File>> sockets;
  if (options.transport == TransportKind::shm) {
    segment.emplace(Segment::create(options.ranks, options.arena_bytes, options.common_bytes));
  } else {
    sockets = Sockets::connect(options.ranks);
  }
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  sigprocmask(SIG_BLOCK, &watched, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { sigprocmask(SIG_SETMASK, &mask, nullptr); }
  } const restore{before};
  File signals(signalfd(-1, &watched, SFD_CLOEXEC));
  if (signals.number() < 0) {
    core::fail<MemoryError>(
        "dist::launch: signals cannot be watched (signalfd: ", std::strerror(errno), ")");
  }
  std::vector<Process> ranks(n);
  for (std::size_t i = 0; i < n; ++i) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      core::fail<MemoryError>("dist::launch: no pipe for rank ", i, " (", std::strerror(errno),
                              ")");
    }
    ranks[i].reports = File(ends[0]);
    const File reports(ends[1]);
    // What a rank left running may hold the other end: an end of the file never comes then.
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    Launched launched{static_cast<int>(i),
                      options.ranks,
                      static_cast<int>(options.transport),
                      threads,
                      ends[1],
                      crowded ? 1 : 0,
                      options.timeout.count(),
                      {}};
    std::vector<int> files{ends[1]};
    if (segment) {
      launched.files = {segment->file()};
    } else {
      for (const File& file : sockets[i])
        launched.files.push_back(file.number());
    }
    for (const int file : launched.files) {
      if (file >= 0) files.push_back(file);
    }
    ranks[i].pid = start_self(arguments, launched_variable, launched.text(), files, before);
    if (ranks[i].pid < 0) {
      core::fail<MemoryError>("dist::launch: the system refused process ", i + 1, " of ", n, " (",
                              std::strerror(errno), ")");
    }
    ranks[i].running = true;
    ranks[i].watch = File(static_cast<int>(syscall(SYS_pidfd_open, ranks[i].pid, 0)));
    // It has ended, and SIGCHLD is ignored, so that nobody keeps its end: readable at once.
    if (ranks[i].watch.number() < 0 && errno == ESRCH)
      ranks[i].watch = File(eventfd(1, EFD_CLOEXEC));
    if (ranks[i].watch.number() < 0) {
      core::fail<MemoryError>("dist::launch: processes cannot be watched (pidfd_open: ",
                              std::strerror(errno), "). Linux 5.3 or later is needed.");
    }
  }
  sockets.clear();  // or a rank that ended would leave its sockets open here
  return Watch(std::move(ranks), segment ? &*segment : nullptr, std::move(signals)).wait();
}

}  // namespace detail

/// Calls body(const Rank&) once for each rank. With several ranks as processes this program's file
/// is started again with the same arguments; there, this call runs the body and then ends the
/// process, so that what stands after it runs once, in the launcher, and what stands before it in
/// all.
///
/// The body may return an exit code, 0 to 125: the largest of all ranks is then returned here, and
/// once one is not 0 the other ranks have a second to end as well.
///
/// Returns 0, or, where a rank failed, its exit code: failed_rank_code if it threw, 128 and the
/// signal if it was killed. Then the number of the rank that failed first and the reason are on
/// standard error, and the others have been ended, within two seconds. One rank: body runs here.
///
/// A rank may use `threads` threads. SIGINT and SIGTERM sent to the launcher go to the ranks.
/// @throws OptionError for options out of range, MemoryError if the system refuses what ranks need.
template <class Body>
[[nodiscard]] int launch(const LaunchOptions& options, Body&& body) {
  if (const auto launched = detail::Launched::take()) detail::run_launched(*launched, body);
  const core::AvailableThreads available = core::find_available_threads();
  if (options.ranks < 1 || options.ranks > max_ranks || options.threads < 0 ||
      options.timeout.count() < 1 || options.timeout.count() > std::numeric_limits<int>::max()) {
    core::fail<OptionError>("dist::launch: ", options.ranks, " ranks of ", options.threads,
                            " threads with a timeout of ", options.timeout.count(),
                            " ms; wanted 1 to ", max_ranks,
                            " ranks, 0 or more threads and 1 ms to 24 days.");
  }
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, available.threads / options.ranks);
  const bool crowded = threads > available.threads / options.ranks;  // no product: it may not fit
  if (options.ranks > 1 && options.transport != TransportKind::threads) {
    return detail::launch_processes(options, threads, crowded);
  }
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(options.ranks));
  std::vector<int> codes(thrown.size());
  const auto run = [&](Transport& transport) {
    const auto rank = static_cast<std::size_t>(transport.rank());
    try {
      codes[rank] = detail::code_of(body, Rank{transport, threads});
    } catch (...) {
      thrown[rank] = std::current_exception();
      throw;
    }
  };
  const auto returned = [&] { return *std::max_element(codes.begin(), codes.end()); };
  const auto failed = [&](const std::exception_ptr& error) {
    // What no rank threw is an option out of range or the system's refusal: the caller's to hear.
    const auto first = std::find(thrown.begin(), thrown.end(), error);
    if (first == thrown.end()) std::rethrow_exception(error);
    static_cast<void>(std::fprintf(stderr, "halfstep: rank %d of %d failed: %s\n",
                                   static_cast<int>(first - thrown.begin()), options.ranks,
                                   detail::what_was_thrown(*first).c_str()));
    return failed_rank_code;
  };
  try {
    run_threads({.ranks = options.ranks,
                 .arena_bytes = options.arena_bytes,
                 .common_bytes = options.common_bytes,
                 .wait = {.timeout = options.timeout, .crowded = crowded}},
                run);
    return returned();
  } catch (const PeerError&) {
    // Who only stopped because a rank had returned a code is no cause.
    return returned() != 0 ? returned() : failed(std::current_exception());
  } catch (...) {
    return failed(std::current_exception());
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
