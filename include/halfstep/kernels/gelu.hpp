// SPDX-License-Identifier: MIT
// GELU, x times the normal distribution's function, in GPT-2's form with tanh and in the exact one
// with erf, and their backward. Not fused into a product: it continues from the rounded value.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// tanh: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, as GPT-2; erf: x (1 + erf(x/sqrt 2)) / 2.
/// They differ by up to 5e-4: a model trained with one is wrong with the other.
enum class GeluForm : std::uint8_t { tanh, erf };

/// y[i] = gelu(x[i]), rounded once to E. y may be x.
///
/// Computed in the accumulator's type, the tanh form as x / (1 + exp(-2u)). Neither infinite nor
/// NaN for finite x. Errors of float: tanh form below 4 x 2^-24 of |y| where x > -1, below 40 x
/// 2^-24 where it is smaller and y vanishes; erf form below 2^-23 of |x|.
/// @throws ShapeError if the spans differ in length.
/// Source: Hendrycks & Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.
template <numeric::real_element E, GeluForm form>
void gelu_forward(const core::Compute& compute, std::span<const E> x, std::span<E> y) {
  detail::check_sizes("gelu_forward", "x", x.size(), "y", y.size());
  constexpr bool with_erf = form == GeluForm::erf;
  const auto body = HALFSTEP_PICK(compute.isa, gelu_elements<E, with_erf>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, y.data() + begin, end - begin);
  });
}

/// dx[i] = dy[i] * gelu'(x[i]), rounded once to E; x is the forward's input. dx may be dy or x.
/// @throws ShapeError if the spans differ in length.
template <numeric::real_element E, GeluForm form>
void gelu_backward(const core::Compute& compute, std::span<const E> x, std::span<const E> dy,
                   std::span<E> dx) {
  detail::check_sizes("gelu_backward", "x", x.size(), "dy", dy.size());
  detail::check_sizes("gelu_backward", "x", x.size(), "dx", dx.size());
  constexpr bool with_erf = form == GeluForm::erf;
  const auto body = HALFSTEP_PICK(compute.isa, gelu_backward_elements<E, with_erf>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, dy.data() + begin, dx.data() + begin, end - begin);
  });
}

/// The derivative of gelu_backward along a direction: out[i] = dy[i] gelu''(x[i]) tx[i] +
/// tdy[i] gelu'(x[i]), where tx and tdy are the tangents of x and dy. out may be any of them.
/// @throws ShapeError if the spans differ in length.
template <std::floating_point E, GeluForm form>
void gelu_backward_tangents(const core::Compute& compute, std::span<const E> x,
                            std::span<const E> tx, std::span<const E> dy, std::span<const E> tdy,
                            std::span<E> out) {
  for (const std::size_t size : {tx.size(), dy.size(), tdy.size()}) {
    detail::check_sizes("gelu_backward_tangents", "x", x.size(), "tx, dy or tdy", size);
  }
  detail::check_sizes("gelu_backward_tangents", "x", x.size(), "out", out.size());
  constexpr bool with_erf = form == GeluForm::erf;
  const auto body = HALFSTEP_PICK(compute.isa, gelu_tangent_elements<E, with_erf>);
  detail::parallel_elements(compute, std::ssize(x), [&](std::int64_t begin, std::int64_t end) {
    body(x.data() + begin, tx.data() + begin, dy.data() + begin, tdy.data() + begin,
         out.data() + begin, end - begin);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
