// SPDX-License-Identifier: MIT
// Counts what a test program takes by operator new, on all threads, and refuses from a number on.
// Included by one unit of a program. Not seen: malloc, mmap, over-aligned new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace halfstep_tests {

/// Calls of operator new since the program began.
inline std::atomic<std::int64_t> allocations{0};
inline constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
/// Once `allocations` has reached this, operator new throws std::bad_alloc.
inline std::atomic<std::int64_t> allocations_allowed{unlimited};

}  // namespace halfstep_tests

#if defined(__has_feature)
#define COUNTS_ALLOCATIONS (!__has_feature(thread_sanitizer))
#elif defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
#endif

#if COUNTS_ALLOCATIONS  // the thread sanitizer's operator new cannot be replaced
// g++ takes the pair below for a mismatch wherever it inlines one of the two.
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (halfstep_tests::allocations++ >= halfstep_tests::allocations_allowed) throw std::bad_alloc();
  if (void* const p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t /*size*/) noexcept { std::free(p); }
#endif
