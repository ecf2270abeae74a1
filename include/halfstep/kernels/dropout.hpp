// SPDX-License-Identifier: MIT
// Dropout by counter-based random numbers: nothing is saved for the backward or a replay, which
// draw the same mask. Its backward is the same function.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
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
/// Cost: a Philox call for four elements, 3 to 4 ns each.
/// @throws ShapeError if the spans differ in length, OptionError if p is not in [0, 1).
template <numeric::real_element E>
void dropout(const core::Compute& compute, std::span<const E> x, std::span<E> y, float p,
             std::uint64_t seed, std::uint64_t stream, std::uint64_t element0) {
  using A = numeric::accumulator_t<E>;
  detail::check_sizes("dropout", "x", x.size(), "y", y.size());
  if (!(p >= 0.0F && p < 1.0F)) {
    core::fail<OptionError>("dropout: p is ", p,
                            "; wanted at least 0 and below 1. It is the share that is dropped.");
  }
  // Both exact in double for every float p but for the quotient, which rounds as the caller's mode
  // says: so it is computed inside.
  const auto threshold = static_cast<std::uint64_t>(std::ceil(static_cast<double>(p) * 0x1p32));
  A factor{};
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    factor = static_cast<A>(1.0 / (1.0 - static_cast<double>(p)));
  });
  const auto body = HALFSTEP_PICK(compute.isa, dropout_elements<E>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, y.data() + begin, end - begin, threshold, factor, seed, stream,
         element0 + static_cast<std::uint64_t>(begin));
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
