// SPDX-License-Identifier: MIT
// The sum of squared differences and its gradient: the loss of a regression. Not a mean and without
// a factor of one half: the divisor belongs to the step.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

struct SquaredErrorSum {
  double sum = 0;          ///< of (y - target)^2
  std::int64_t count = 0;  ///< elements
};

/// Doubles of workspace that squared_error wants for n elements.
[[nodiscard]] constexpr std::int64_t squared_error_blocks(std::int64_t n) {
  return (n + 1023) / 1024;
}

/// The sum of (y - target)^2, differences and squares in double.
///
///   y, target  [n]  any shape, flat
///   blocks     squared_error_blocks(n) doubles, overwritten
///
/// Order: blocks of 1024 elements, element j of a block in lane j mod 16, lanes folded 8, 4, 2, 1;
/// the blocks' sums pairwise, 2i and 2i + 1 on each level.
/// @throws ShapeError if sizes do not fit.
template <numeric::real_element E>
SquaredErrorSum squared_error(const core::Compute& compute, std::span<const E> y,
                              std::span<const numeric::accumulator_t<E>> target,
                              std::span<double> blocks) {
  const auto n = static_cast<std::int64_t>(y.size());
  const std::int64_t wanted = squared_error_blocks(n);
  if (target.size() != y.size() || static_cast<std::int64_t>(blocks.size()) < wanted) {
    core::fail<ShapeError>("squared_error: y has ", n, " elements, target ", target.size(),
                           " and blocks ", blocks.size(), "; wanted ", n, " and at least ", wanted,
                           ". Do the targets have the shape of the model's output?");
  }
  SquaredErrorSum result{0, n};
  const auto body = HALFSTEP_PICK(compute.isa, squared_error_blocks<E>);
  compute.parallel(wanted, 16, [&](std::int64_t begin, std::int64_t end, int) {
    body(y.data(), target.data(), blocks.data(), n, begin, end);
  });
  result.sum = fold_blocks<double>(compute, blocks.first(static_cast<std::size_t>(wanted)));
  return result;
}

/// gradient = 2 (y - target) * seed, computed in float (double for double) and rounded once to E.
///
///   y, target, gradient  [n]  gradient may be y
///   seed                 gradient of the sum: the loss scale and the step's divisor
///
/// @throws ShapeError if sizes do not fit.
template <numeric::real_element E>
void squared_error_backward(const core::Compute& compute, std::span<const E> y,
                            std::span<const numeric::accumulator_t<E>> target,
                            numeric::accumulator_t<E> seed, std::span<E> gradient) {
  if (target.size() != y.size() || gradient.size() != y.size()) {
    core::fail<ShapeError>("squared_error_backward: y has ", y.size(), " elements, target ",
                           target.size(), " and gradient ", gradient.size(),
                           "; all want the same number. Do the targets have the shape of the "
                           "model's output?");
  }
  const auto n = static_cast<std::int64_t>(y.size());
  const auto body = HALFSTEP_PICK(compute.isa, squared_error_gradient<E>);
  compute.parallel((n + 15) / 16, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    body(y.data(), target.data(), seed, gradient.data(), n, begin, end);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
