// SPDX-License-Identifier: MIT
// HALFSTEP_ASSERT: our own invariants, compiled in by -DHALFSTEP_ASSERTIONS=1 for a whole program.
// Not for a caller's mistakes, which throw (core/error.hpp).
#pragma once

#include <cstdio>
#include <cstdlib>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core::detail {
[[noreturn]] inline void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: halfstep: assertion failed: %s. This is a bug in halfstep.\n", file,
               line, condition);
  std::abort();
}
}  // namespace halfstep::inline HALFSTEP_CONFIG::core::detail

/// Ends the program with the condition and its place if assertions are on and it does not hold.
#define HALFSTEP_ASSERT(condition)     \
  (!HALFSTEP_ASSERTIONS || (condition) \
       ? static_cast<void>(0)          \
       : ::halfstep::core::detail::assertion_failed(#condition, __FILE__, __LINE__))
