// SPDX-License-Identifier: MIT
// The first pass over a step's summed gradient: is every number finite, and what is its norm. The
// second pass updates (adamw.hpp, sgd.hpp). Changes nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/reduce.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// What is wrong with a gradient.
struct NonFinite {
  std::int64_t count = 0;   ///< infinities and NaNs
  std::int64_t first = -1;  ///< index of the first; -1 if there is none
};

/// Writes the sum of squares of each block of 1024 elements of one tensor's gradient, and counts
/// what is not finite.
///
///   gradient [n]              read once, and a second time only where something is not finite
///   blocks   [sum_blocks(n)]  written: squares and sums in double, 16 lanes, folded 8, 4, 2, 1
///
/// The norm of all gradients is the root of fold_blocks over the blocks of all tensors, in order of
/// registration. Squares of float cannot overflow in double.
/// @throws ShapeError if blocks has another length.
template <std::floating_point G>
[[nodiscard]] NonFinite gradient_pass(const core::Compute& compute, std::span<const G> gradient,
                                      std::span<double> blocks) {
  const std::int64_t n = std::ssize(gradient);
  if (std::ssize(blocks) != sum_blocks(n)) {
    core::fail<ShapeError>("gradient_pass: ", n, " elements make ", sum_blocks(n),
                           " blocks of 1024, but there is room for ", blocks.size(),
                           ". Size it with sum_blocks().");
  }
  const auto body = HALFSTEP_PICK(compute.isa, block_squares<G>);
  compute.parallel(std::ssize(blocks), 16, [&](std::int64_t begin, std::int64_t end, int) {
    body(gradient.data(), n, begin, end, blocks.data());
  });
  // A number that is not finite leaves its block's sum so; only such blocks are looked at again.
  NonFinite found;
  for (std::int64_t b = 0; b < std::ssize(blocks); ++b) {
    if (std::isfinite(blocks[static_cast<std::size_t>(b)])) continue;
    const std::int64_t end = std::min(n, (b + 1) * detail::block_elements);
    for (std::int64_t i = b * detail::block_elements; i < end; ++i) {
      if (std::isfinite(gradient[static_cast<std::size_t>(i)])) continue;
      if (found.count++ == 0) found.first = i;
    }
  }
  return found;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
