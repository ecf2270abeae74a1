// SPDX-License-Identifier: MIT
// Ranks for tests: threads of this process, over a shared segment or over sockets, each with a
// group and with buffers inside or outside of the segment. Not part of the library.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/sockets.hpp>
#include <halfstep/dist/transport/threads.hpp>

namespace ranks {

using halfstep::Runtime;
using halfstep::dist::Group;
using halfstep::dist::Transport;

/// What carries the data: shared memory with buffers in it, or private ones; sockets.
enum class Over : std::uint8_t { arena, heap, sockets };
inline constexpr std::array<Over, 3> all{Over::arena, Over::heap, Over::sockets};
inline std::string_view to_string(Over over) {
  constexpr std::array<std::string_view, 3> names{"arena", "heap", "sockets"};
  return names[static_cast<std::size_t>(over)];
}

/// A buffer of one rank, where `over` says; `shift` elements off its natural start.
template <class T>
class Buffer {
 public:
  Buffer(Group& group, Over over, const std::vector<T>& values, std::int64_t shift = 0) {
    const auto n = static_cast<std::int64_t>(values.size());
    if (over == Over::arena) {
      span_ = group.transport().shared()->allocate<T>(n + shift);
    } else {
      heap_.resize(static_cast<std::size_t>(n + shift));
      span_ = heap_;
    }
    span_ = span_.subspan(static_cast<std::size_t>(shift));
    std::copy(values.begin(), values.end(), span_.begin());
  }
  [[nodiscard]] std::span<T> span() { return span_; }
  [[nodiscard]] std::span<const T> read() const { return span_; }
  [[nodiscard]] std::vector<T> copy() const { return {span_.begin(), span_.end()}; }

 private:
  std::vector<T> heap_;
  std::span<T> span_;
};

/// Calls body(Transport&) on n threads joined by sockets; throws what the lowest rank threw.
template <class Body>
void run_sockets(int n, Body&& body, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  auto files = halfstep::dist::Sockets::connect(n);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      try {
        halfstep::dist::Sockets transport(rank, std::move(files[i]), timeout);
        body(static_cast<Transport&>(transport));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

struct Options {
  std::int64_t arena_bytes = std::int64_t{8} << 20;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

/// Calls body(Group&) on n ranks, each of one thread.
template <class Body>
void run(int n, Over over, Body&& body, const Options& options = {}) {
  const auto with_group = [&](Transport& transport) {
    Runtime runtime({.threads = 1});
    Group group(transport, runtime);
    body(group);
  };
  if (over == Over::sockets) {
    run_sockets(n, with_group, options.timeout);
  } else {
    halfstep::dist::run_threads({.ranks = n,
                                 .arena_bytes = over == Over::arena ? options.arena_bytes : 0,
                                 .common_bytes = over == Over::arena ? options.arena_bytes : 0,
                                 .wait = {.timeout = options.timeout, .crowded = true}},
                                with_group);
  }
}

}  // namespace ranks
