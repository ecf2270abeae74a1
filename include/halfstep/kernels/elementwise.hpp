// SPDX-License-Identifier: MIT
// Kernels that treat each element alone: sum, product, scaling, filling, change of format. Outputs
// may be inputs. Not for functions with a name of their own (gelu.hpp, dropout.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/write.hpp>
#include <halfstep/numeric/element.hpp>

// All of them: allocate nothing, compute in the accumulator's type (float for the 16-bit formats),
// round once to the output's format, and throw ShapeError if spans differ in length.

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// out[i] = x[i] + y[i].
template <numeric::real_element E>
void add(const core::Compute& compute, std::span<const E> x, std::span<const E> y,
         std::span<E> out) {
  detail::check_sizes("add", "x", x.size(), "y", y.size());
  detail::check_sizes("add", "x", x.size(), "out", out.size());
  const auto body = HALFSTEP_PICK(compute.isa, add_elements<E>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, y.data() + begin, out.data() + begin, end - begin);
  });
}

/// out[i] = x[i] * y[i].
template <numeric::real_element E>
void multiply(const core::Compute& compute, std::span<const E> x, std::span<const E> y,
              std::span<E> out) {
  detail::check_sizes("multiply", "x", x.size(), "y", y.size());
  detail::check_sizes("multiply", "x", x.size(), "out", out.size());
  const auto body = HALFSTEP_PICK(compute.isa, multiply_elements<E>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, y.data() + begin, out.data() + begin, end - begin);
  });
}

/// out[i] = x[i] * factor.
template <numeric::real_element E>
void scale(const core::Compute& compute, std::span<const E> x, numeric::accumulator_t<E> factor,
           std::span<E> out) {
  detail::check_sizes("scale", "x", x.size(), "out", out.size());
  const auto body = HALFSTEP_PICK(compute.isa, scale_elements<E>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, factor, out.data() + begin, end - begin);
  });
}

/// out[i] = value, bit for bit.
template <numeric::real_element E>
void fill(const core::Compute& compute, E value, std::span<E> out) {
  const auto body = HALFSTEP_PICK(compute.isa, fill_elements<E>);
  detail::parallel_elements(compute, std::ssize(out), [&](std::int64_t begin, std::int64_t end) {
    body(value, out.data() + begin, end - begin);
  });
}

/// out[i] = x[i] in out's format, or out[i] += x[i], the sum in out's accumulator.
///
/// Differs from numeric::convert in that subnormal floats may come out as zeros, as in every kernel
/// (they do where arithmetic is needed: in a sum, and between float and double). To a 16-bit format
/// they are kept.
template <numeric::real_element From, numeric::real_element To>
void cast(const core::Compute& compute, std::span<const From> x, std::span<To> out,
          Write write = Write::overwrite) {
  detail::check_sizes("cast", "x", x.size(), "out", out.size());
  const auto overwrite = HALFSTEP_PICK(compute.isa, cast_elements<From, To>);
  const auto accumulate = HALFSTEP_PICK(compute.isa, accumulate_elements<From, To>);
  const auto body = write == Write::overwrite ? overwrite : accumulate;
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, out.data() + begin, end - begin);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
