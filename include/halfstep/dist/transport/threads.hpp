// SPDX-License-Identifier: MIT
// Ranks as threads of one process: for debuggers, for ThreadSanitizer, for tests. The protocol is
// that of processes; only the segment is memory of this process.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

struct ThreadsOptions {
  int ranks = 1;
  std::int64_t arena_bytes = 0;   ///< per rank, a multiple of 128
  std::int64_t common_bytes = 0;  ///< of all ranks together, a multiple of 128
  WaitOptions wait{};
};

/// Calls body(Transport&) once for each rank, each on a thread of its own; for one rank, on the
/// calling thread. Returns when all have returned, and then throws what the rank threw that failed
/// first: the others, which had to stop, threw PeerError because of it.
template <class Body>
void run_threads(const ThreadsOptions& options, Body&& body) {
  Segment segment = Segment::in_process(options.ranks, options.arena_bytes, options.common_bytes);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(options.ranks));
  const auto run = [&](int rank) {
    try {
      SharedMemory transport(segment, rank, "threads", options.wait);
      body(static_cast<Transport&>(transport));
    } catch (const std::exception& error) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      segment.fail(rank, core::text("failed: ", error.what()));
    } catch (...) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
      segment.fail(rank, "failed with something that is no std::exception");
    }
    segment.end(rank);
  };
  if (options.ranks == 1) {
    run(0);
  } else {
    std::vector<std::thread> threads;
    try {
      for (int rank = 0; rank < options.ranks; ++rank)
        threads.emplace_back(run, rank);
    } catch (const std::system_error& error) {
      segment.fail(static_cast<int>(threads.size()), "got no thread of the system");
      for (std::thread& thread : threads)
        thread.join();
      core::fail<MemoryError>("dist::run_threads: the system refused thread ", threads.size() + 1,
                              " of ", options.ranks, " (", error.what(), ")");
    }
    for (std::thread& thread : threads)
      thread.join();
  }
  const int first = segment.failed_rank();
  if (first >= 0) std::rethrow_exception(errors[static_cast<std::size_t>(first)]);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
