// SPDX-License-Identifier: MIT
// The first pass over a step's summed gradient: is every number finite, what is its norm, and,
// where asked, what would a format round to zero. The second pass updates (adamw.hpp, sgd.hpp).
// Changes nothing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

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

/// Telemetry of a gradient: what is asked, and the answer. Answers are added to, so that one of
/// these takes in any number of tensors, and no order of them shows.
template <std::floating_point G>
struct Underflows {
  std::array<G, 3> limits{};             ///< magnitudes, of underflow_limit say; 0 counts nothing
  std::array<std::int64_t, 3> counts{};  ///< non-zero elements of at most that magnitude
  std::int64_t nonzero = 0;              ///< finite elements, subnormals among them
  G largest{};                           ///< magnitude, of the finite elements
};

namespace detail {
template <class G>
using bits_of = std::conditional_t<sizeof(G) == 4, std::uint32_t, std::uint64_t>;
}

/// The largest magnitude that F rounds to zero once it is multiplied by `factor` in double: half of
/// F's smallest number is a tie, and rounds to zero. Needs factor > 0.
template <class F, std::floating_point G>
[[nodiscard]] G underflow_limit(const core::Compute& compute, double factor) {
  G limit{};
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    const double half = static_cast<double>(std::numeric_limits<F>::denorm_min()) / 2;
    using Bits = detail::bits_of<G>;
    const auto value = [](Bits bits) {
      if constexpr (sizeof(G) == 8) return std::bit_cast<double>(bits);
      return bits < 0x80'0000U ? static_cast<double>(bits) * 0x1p-149  // which DAZ would read as 0
                               : static_cast<double>(std::bit_cast<G>(bits));
    };
    // Bits of magnitudes are in their order: the last one that is still lost, by halving.
    Bits lost = 0, kept = std::bit_cast<Bits>(std::numeric_limits<G>::infinity());
    while (kept - lost > 1) {
      const Bits middle = lost + (kept - lost) / 2;
      (value(middle) * factor <= half ? lost : kept) = middle;
    }
    limit = std::bit_cast<G>(lost);
  });
  return limit;
}

namespace detail {

template <class G, class Body>
void tally(const core::Compute& compute, std::span<const G> gradient, double* blocks,
           Underflows<G>& underflows, Body body) {
  using Bits = bits_of<G>;
  std::array<std::atomic<std::int64_t>, 4> counts{};
  std::atomic<Bits> largest{std::bit_cast<Bits>(underflows.largest)};
  const std::int64_t n = std::ssize(gradient);
  compute.parallel(sum_blocks(n), 16, [&](std::int64_t begin, std::int64_t end, int) {
    GradientTally<Bits> part;
    for (std::size_t i = 0; i < 3; ++i)
      part.limits[i] = std::bit_cast<Bits>(underflows.limits[i]);
    body(gradient.data(), n, begin, end, blocks, part);
    for (std::size_t i = 0; i < 3; ++i)
      counts[i] += part.counts[i];
    counts[3] += part.nonzero;
    Bits seen = largest;
    while (part.largest > seen && !largest.compare_exchange_weak(seen, part.largest)) {
    }
  });
  for (std::size_t i = 0; i < 3; ++i)
    underflows.counts[i] += counts[i];
  underflows.nonzero += counts[3];
  underflows.largest = std::bit_cast<G>(largest.load());
}

}  // namespace detail

/// Writes the sum of squares of each block of 1024 elements of one tensor's gradient, and counts
/// what is not finite.
///
///   gradient   [n]              read once, and a second time only where something is not finite
///   blocks     [sum_blocks(n)]  written: squares and sums in double, 16 lanes, folded 8, 4, 2, 1
///   underflows                  if not null, counted in the same read; else it costs nothing
///
/// The norm of all gradients is the root of fold_blocks over the blocks of all tensors, in order of
/// registration. Squares of float cannot overflow in double.
/// @throws ShapeError if blocks has another length.
template <std::floating_point G>
[[nodiscard]] NonFinite gradient_pass(const core::Compute& compute, std::span<const G> gradient,
                                      std::span<double> blocks,
                                      Underflows<G>* underflows = nullptr) {
  const std::int64_t n = std::ssize(gradient);
  if (std::ssize(blocks) != sum_blocks(n)) {
    core::fail<ShapeError>("gradient_pass: ", n, " elements make ", sum_blocks(n),
                           " blocks of 1024, but there is room for ", blocks.size(),
                           ". Size it with sum_blocks().");
  }
  if (underflows != nullptr) {
    detail::tally<G>(compute, gradient, blocks.data(), *underflows,
                     HALFSTEP_PICK(compute.isa, tally_blocks<G>));
  } else {
    const auto body = HALFSTEP_PICK(compute.isa, block_squares<G>);
    compute.parallel(std::ssize(blocks), 16, [&](std::int64_t begin, std::int64_t end, int) {
      body(gradient.data(), n, begin, end, blocks.data());
    });
  }
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
