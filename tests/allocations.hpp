// SPDX-License-Identifier: MIT
// What the C++ of a test program allocates, on all of its threads, counted, and refused from a
// number on. Replaces operator new: included by one unit of a program. Not part of the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace halfstep_tests {

/// So far.
inline std::atomic<std::int64_t> allocations{0};
inline constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
/// When there were so many, the next ones throw std::bad_alloc.
inline std::atomic<std::int64_t> allocations_allowed{unlimited};

}  // namespace halfstep_tests

// g++ takes the pair below for a mismatch wherever it inlines one of the two.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (halfstep_tests::allocations++ >= halfstep_tests::allocations_allowed) throw std::bad_alloc();
  if (void* const p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t /*size*/) noexcept { std::free(p); }
