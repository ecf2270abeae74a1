// SPDX-License-Identifier: MIT
// Sums of many numbers in the house's order, which no number of threads changes: blocks of 1024 in
// 16 lanes each, the blocks by a binary tree. Not for gradients: gradient_pass.hpp checks them too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// Elements of a block: where sums of squares begin anew, and shards are cut.
inline constexpr std::int64_t block_elements = detail::block_elements;

/// Blocks of 1024 that n elements make: the length of the `blocks` below.
[[nodiscard]] constexpr std::int64_t sum_blocks(std::int64_t n) {
  return core::divide_up(n, detail::block_elements);
}

/// The sum of `blocks` by the binary tree: on each level numbers 2i and 2i + 1 are added, an odd
/// last one moves up. 0 if there is none. Uses `blocks` as its workspace. One thread.
template <class S>
[[nodiscard]] S fold_blocks(const core::Compute& compute, std::span<S> blocks) {
  S result{0};
  const auto body = HALFSTEP_PICK(compute.isa, fold_tree<S>);
  const auto n = std::ssize(blocks);
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) { result = body(blocks.data(), n); });
  return result;
}

namespace detail {

template <class E, class S, class Body>
[[nodiscard]] S sum_by_blocks(const char* function, const core::Compute& compute,
                              std::span<const E> x, std::span<S> blocks, Body body) {
  const std::int64_t count = sum_blocks(std::ssize(x));
  if (std::ssize(blocks) != count) {
    core::fail<ShapeError>(function, ": ", x.size(), " elements make ", count,
                           " blocks of 1024, but there is room for ", blocks.size(),
                           ". Size it with sum_blocks().");
  }
  compute.parallel(count, 16, [&](std::int64_t begin, std::int64_t end, int) {
    body(x.data(), std::ssize(x), begin, end, blocks.data());
  });
  return fold_blocks(compute, blocks);
}

}  // namespace detail

/// The sum of x in double. blocks [sum_blocks(n)]: workspace.
/// @throws ShapeError if blocks has another length.
template <numeric::real_element E>
[[nodiscard]] double sum(const core::Compute& compute, std::span<const E> x,
                         std::span<double> blocks) {
  return detail::sum_by_blocks("sum", compute, x, blocks,
                               HALFSTEP_PICK(compute.isa, block_sums<E>));
}

/// The same, every addition rounded to E's accumulator.
template <numeric::real_element E>
[[nodiscard]] numeric::accumulator_t<E> sum_in_accumulator(
    const core::Compute& compute, std::span<const E> x,
    std::span<numeric::accumulator_t<E>> blocks) {
  return detail::sum_by_blocks("sum_in_accumulator", compute, x, blocks,
                               HALFSTEP_PICK(compute.isa, block_accumulator_sums<E>));
}

/// The sum of x[i]^2, squares and sums in double: the house's norm is its root.
template <numeric::real_element E>
[[nodiscard]] double sum_of_squares(const core::Compute& compute, std::span<const E> x,
                                    std::span<double> blocks) {
  return detail::sum_by_blocks("sum_of_squares", compute, x, blocks,
                               HALFSTEP_PICK(compute.isa, block_squares<E>));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
