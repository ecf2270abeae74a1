// SPDX-License-Identifier: MIT
// The floating-point environment of every kernel: round to nearest, exceptions masked, subnormals
// flushed (FTZ) and read as zero (DAZ), whatever the caller's is; and the caller's is as before
// afterwards. Both compilers move arithmetic across a write of MXCSR, so the guard stands in a
// function that is never inlined and the arithmetic behind a pointer.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// MXCSR of the kernels: 0x1F80 (the default) with FTZ and DAZ.
inline constexpr unsigned kernel_mxcsr = 0x9FC0;

[[nodiscard]] inline unsigned read_mxcsr() {
  unsigned value = 0;
  asm volatile("stmxcsr %0" : "=m"(value) : : "memory");
  return value;
}
inline void write_mxcsr(unsigned value) { asm volatile("ldmxcsr %0" : : "m"(value) : "memory"); }

/// A piece of work on items [begin, end), on a worker with that number.
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end, int worker);

/// Calls function(context, begin, end, worker) under the kernels' environment and restores the
/// caller's, exceptions included.
HALFSTEP_NOINLINE inline void call_in_float_environment(RangeFunction function, void* context,
                                                        std::int64_t begin, std::int64_t end,
                                                        int worker) {
  // A compiler that knew the callee could clone this function for it and inline it here.
  asm("" : "+r"(function));
  struct Restore {
    unsigned saved = read_mxcsr();
    Restore() { write_mxcsr(kernel_mxcsr); }
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;
    ~Restore() { write_mxcsr(saved); }
  } const restore;
  function(context, begin, end, worker);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
