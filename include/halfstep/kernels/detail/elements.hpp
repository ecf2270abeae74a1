// SPDX-License-Identifier: MIT
// What the fronts of elementwise kernels share: the check that sizes agree and the cut of a long
// range between threads. No arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/views.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// Elements between the places where ranges are cut: the house's block.
inline constexpr std::int64_t block_elements = 1024;

/// Calls body(begin, end) on ranges of [0, n) that start at multiples of block_elements, at least
/// 16 K elements each: less costs more to hand out than to do.
template <class Body>
void parallel_elements(const core::Compute& compute, std::int64_t n, Body&& body) {
  compute.share(core::divide_up(n, block_elements), 16,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(begin * block_elements, std::min(end * block_elements, n));
                   });
}

inline void check_sizes(const char* function, const char* name, std::size_t size,
                        const char* other_name, std::size_t other) {
  if (size != other) {
    core::fail<ShapeError>(function, ": ", name, " has ", size, " elements but ", other_name,
                           " has ", other, ". Were they made for different batches or layers?");
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
