// SPDX-License-Identifier: MIT
// Dropout by counter-based random numbers: nothing is saved for the backward or a replay, which
// draw the same mask. Its backward is the same function.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/dropout_mask.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// y[i] = x[i] / (1 - p) with probability 1 - p, else +0. y may be x. For the backward pass the
/// gradient of y as x: dx[i] is dy[i] / (1 - p) or +0 at the same places.
///
///   p         in [0, 1); taken to the next multiple of 2^-32
///   element0  number of x[0] in the whole run: see core::random_bits
///
/// Element i is kept if random_bits(seed, stream, element0 + i) >= p * 2^32. The factor 1 / (1 - p)
/// is rounded to the accumulator's type, the product once more to E.
///
/// Cost: a Philox call for four elements, as many at once as the path has 64-bit lanes.
/// @throws ShapeError if the spans differ in length, OptionError if p is not in [0, 1).
template <numeric::real_element E>
void dropout(const core::Compute& compute, std::span<const E> x, std::span<E> y, float p,
             std::uint64_t seed, std::uint64_t stream, std::uint64_t element0) {
  using A = numeric::accumulator_t<E>;
  detail::check_sizes("dropout", "x", x.size(), "y", y.size());
  const auto mask = detail::dropout_mask<A>(compute, "dropout", p, seed, stream, element0);
  const auto body = HALFSTEP_PICK(compute.isa, dropout_elements<E, detail::DropoutMask<A>>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data(), y.data(), mask, begin, end);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
