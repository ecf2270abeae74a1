// SPDX-License-Identifier: MIT
// An op on duals, made of the same op on real numbers and the rule of its tangents: second
// derivatives by a forward and a backward pass that both carry one direction along.
// Not for asking for them: hessian.hpp.
#pragma once

#include <cstdint>

#include <halfstep/autograd/op.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

/// The table of `Real`, an op on float or double, for duals of those. Values and their gradients
/// are made by Real's own functions and have its bits; what Real defines besides makes the
/// tangents:
///
///   forward_tangents   writes plane 1 of every output from both planes of inputs and parameters
///   backward_tangents  writes plane 1 of every gradient that is wanted, after plane 0 is written
///   infer_tangents     (may be missing) asks for more workspace than Real::infer has
///
/// An op whose output is a loss has a member `loss_tag`. A loss is a real number, its tangent is
/// not kept, and what is made of losses is their sum: so the tangent of its output's gradient is 0.
/// Its backward_tangents takes the plane to write to, and writes the Hessian of the loss, by its
/// input, times the input's tangent. The tape refuses an op on losses of duals whose derivative may
/// depend on their values.
///
/// FLOPs count threefold: the product rule makes two of each product, besides the product itself.
template <class Real>
struct DualOp {
  static constexpr bool is_loss = requires { typename Real::loss_tag; };

  static void infer(Infer& c) {
    Real::infer(c);
    c.flops(3.0 * c.flops_forward(), 3.0 * c.flops_backward());
    if constexpr (!is_loss) c.add_tangents();
    if constexpr (requires { Real::infer_tangents(c); }) Real::infer_tangents(c);
  }
  static void forward(Forward& c) {
    Real::forward(c);
    if constexpr (!is_loss) Real::forward_tangents(c);
  }
  // For the Gauss-Newton product the sweep starts from the loss's Hessian times the tangents of the
  // model's output, and is the plain one from there on.
  static void backward(Backward& c) {
    if constexpr (is_loss) {
      if (c.gauss_newton()) return Real::backward_tangents(c, 0);
      Real::backward(c);
      Real::backward_tangents(c, 1);
    } else {
      Real::backward(c);
      if (!c.gauss_newton()) Real::backward_tangents(c);
    }
  }
  static constexpr Op op{Real::op.name, &infer, &forward, &backward};
};

/// The table that a function on Variable<T> records: Real is the op on T's planes.
template <class T, class Real>
[[nodiscard]] constexpr const Op& op_on() {
  if constexpr (numeric::is_dual<T>) {
    return DualOp<Real>::op;
  } else {
    return Real::op;
  }
}

/// Two planes read as one array of duals.
template <class T>
struct Duals {
  const T* values;
  const T* tangents;
  [[nodiscard]] dual<T> operator[](std::int64_t i) const { return {values[i], tangents[i]}; }
};
template <class T>
[[nodiscard]] Duals<T> input_duals(const Forward& c, std::size_t i) {
  return {c.input<T>(i, 0), c.input<T>(i, 1)};
}
template <class T>
[[nodiscard]] Duals<T> gradient_duals(const Backward& c) {
  return {c.output_gradient<T>(0, 0), c.output_gradient<T>(0, 1)};
}

/// out[i] = the tangent of f(i), for i below n.
template <class T, class F>
void write_tangents(const core::Compute& compute, std::int64_t n, T* out, const F& f) {
  compute.parallel(n, 2048, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      out[i] = f(i).tangent;
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
