// SPDX-License-Identifier: MIT
// The GELU, by tanh as GPT-2 has it and by erf as the paper defines it: two ops, since their values
// differ by up to 5e-4.
#pragma once

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/gelu.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T, kernels::GeluForm form>
struct Gelu {
  static void infer(Infer& c) {
    c.output<T>(c.input_shape(0));
    c.backward_reads({0}, {});
    c.repeatable();
    const auto n = static_cast<double>(c.input_shape(0).elements());
    c.flops(20.0 * n, 30.0 * n);
  }
  static void forward(Forward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::gelu_forward<T, form>(c.compute(), {c.input<T>(0), n}, {c.output<T>(), n});
  }
  static void backward(Backward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    T* const dx = c.input_gradient<T>(0);
    if (dx != nullptr) {
      kernels::gelu_backward<T, form>(c.compute(), {c.input<T>(0), n}, {c.output_gradient<T>(), n}, {dx, n});
    }
  }
  static void forward_tangents(Forward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::gelu_backward<T, form>(c.compute(), {c.input<T>(0), n}, {c.input<T>(0, 1), n}, {c.output<T>(0, 1), n});
  }
  static void backward_tangents(Backward& c) {
    T* const out = c.input_gradient<T>(0, 1);
    if (out == nullptr) return;
    const auto x = input_duals<T>(c, 0), dy = gradient_duals<T>(c);
    write_tangents(c.compute(), c.output_shape().elements(), out, [=](std::int64_t i) { return dy[i] * slope(x[i]); });
  }
  // The derivative, by the kernel's formulas. Where it is flat for a double its own is 0; beyond, the
  // tangent of exp would be infinite in float.
  template <class S>
  static dual<S> slope(dual<S> x) {
    const S most = form == kernels::GeluForm::tanh ? S(9) : S(12);
    if (!(x.value > -most && x.value < most)) return {x.value > S(0) ? S(1) : S(0)};
    if constexpr (form == kernels::GeluForm::tanh) {
      constexpr double c0 = 0.79788456080286535588, c1 = 0.044715;  // sqrt(2 / pi), and GPT-2's
      const S v = x.value, square = core::rounded(v * v);
      const S u = v * (S(2 * c0) + core::rounded(S(2 * c0 * c1) * square));
      const S du = S(2 * c0) + core::rounded(S(6 * c0 * c1) * square), ddu = S(12 * c0 * c1) * v;
      const S s = S(1) / (S(1) + numeric::exp(-u)), q = core::rounded(s * (S(1) - s));  // ds / du
      const S bend = core::rounded(ddu * q) + core::rounded(du * du * q * (S(1) - S(2) * s));
      const S second = core::rounded(S(2) * du * q) + core::rounded(v * bend);
      return {s + core::rounded(v * du * q), core::rounded(second * x.tangent)};
    } else {
      const dual<S> half(S(0.5));
      const dual<S> density = dual<S>(S(0.39894228040143267794)) * exp(-half * x * x);
      return half + half * erf(x * dual<S>(S(0.70710678118654752440))) + x * density;
    }
  }
  static constexpr Op op{form == kernels::GeluForm::tanh ? "gelu" : "gelu_erf", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), rounded once to T. Keeps x for backward.
template <numeric::element_type T>
[[nodiscard]] Variable<T> gelu(Variable<T> x) {
  return autograd::tape_of(x, "gelu").template handle<T>(
      x.tape->record(autograd::op_on<T, autograd::ops::Gelu<numeric::plane_t<T>, kernels::GeluForm::tanh>>(), {x}, {}, autograd::NoPayload{}));
}
/// 0.5 x (1 + erf(x / sqrt(2))), rounded once to T. Keeps x for backward.
template <numeric::element_type T>
[[nodiscard]] Variable<T> gelu_erf(Variable<T> x) {
  return autograd::tape_of(x, "gelu_erf").template handle<T>(
      x.tape->record(autograd::op_on<T, autograd::ops::Gelu<numeric::plane_t<T>, kernels::GeluForm::erf>>(), {x}, {}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
