// SPDX-License-Identifier: MIT
// Several arrays reduced to one, element by element, by the house's tree over the arrays: what
// collectives compute. Not for sums within an array (reduce.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

enum class Reduction : std::uint8_t { sum, average, min, max, product };

[[nodiscard]] constexpr std::string_view to_string(Reduction reduction) {
  constexpr std::array<std::string_view, 5> names{"sum", "average", "min", "max", "product"};
  return names[static_cast<std::size_t>(reduction)];
}

/// Arrays that one fold takes at most.
inline constexpr std::size_t max_folded = 64;

/// targets[t][i] = sources[0][i] o sources[1][i] o …, o by the binary tree over the sources: on
/// each level numbers 2j and 2j + 1 are combined, an odd last one moves up unchanged.
///
///   sources  1 to max_folded arrays of n elements
///   targets  all given the same bits; each may be one of the sources
///   divisor  what an average divides by: the number of contributions in the sources
///
/// Sums and products are kept in E's accumulator and rounded to E once. Averages are kept in
/// double, so they do not overflow where the sum does nor vanish where each share does; then one
/// division, rounded to float and from there to E. (An average of doubles does overflow where their
/// sum does.) Minimum and maximum compare bits: any NaN gives the quiet NaN, -0 < +0, subnormals
/// are kept. Allocates nothing. Moves sizeof(E) (sources + targets) n bytes.
/// @throws ShapeError for a number of sources out of range.
template <numeric::real_element E>
void fold(const core::Compute& compute, Reduction reduction, std::span<const E* const> sources,
          std::span<E* const> targets, std::int64_t n, int divisor) {
  if (sources.empty() || sources.size() > max_folded) {
    core::fail<ShapeError>("fold: ", sources.size(), " arrays; wanted 1 to ", max_folded);
  }
  constexpr std::size_t kinds = 5;
  const std::array<decltype(&detail::portable::fold_sums<E>), kinds> bodies{
      HALFSTEP_PICK(compute.isa, fold_sums<E>), HALFSTEP_PICK(compute.isa, fold_averages<E>),
      HALFSTEP_PICK(compute.isa, fold_minima<E>), HALFSTEP_PICK(compute.isa, fold_maxima<E>),
      HALFSTEP_PICK(compute.isa, fold_products<E>)};
  const auto body = bodies[static_cast<std::size_t>(reduction)];
  const auto from = static_cast<int>(sources.size()), to = static_cast<int>(targets.size());
  detail::parallel_elements(compute, n, [&](std::int64_t begin, std::int64_t end) {
    body(sources.data(), from, targets.data(), to, begin, end, divisor);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
