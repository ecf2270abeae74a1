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
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/gelu.hpp>
#include <halfstep/numeric/element.hpp>

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
      kernels::gelu_backward<T, form>(c.compute(), {c.input<T>(0), n}, {c.output_gradient<T>(), n},
                                      {dx, n});
    }
  }
  static void forward_tangents(Forward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::gelu_backward<T, form>(c.compute(), {c.input<T>(0), n}, {c.input<T>(0, 1), n},
                                    {c.output<T>(0, 1), n});
  }
  static void backward_tangents(Backward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    if (T* const out = c.input_gradient<T>(0, 1)) {
      kernels::gelu_backward_tangents<T, form>(c.compute(), {c.input<T>(0), n},
                                               {c.input<T>(0, 1), n}, {c.output_gradient<T>(), n},
                                               {c.output_gradient<T>(0, 1), n}, {out, n});
    }
  }
  static constexpr Op op{form == kernels::GeluForm::tanh ? "gelu" : "gelu_erf", &infer, &forward,
                         &backward};
};
}  // namespace autograd::ops

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), rounded once to T. Keeps x for backward.
template <numeric::element_type T>
[[nodiscard]] Variable<T> gelu(Variable<T> x) {
  return autograd::tape_of(x, "gelu").template handle<T>(x.tape->record(
      autograd::op_on<T, autograd::ops::Gelu<numeric::plane_t<T>, kernels::GeluForm::tanh>>(), {x},
      {}, autograd::NoPayload{}));
}
/// 0.5 x (1 + erf(x / sqrt(2))), rounded once to T. Keeps x for backward.
template <numeric::element_type T>
[[nodiscard]] Variable<T> gelu_erf(Variable<T> x) {
  return autograd::tape_of(x, "gelu_erf")
      .template handle<T>(x.tape->record(
          autograd::op_on<T, autograd::ops::Gelu<numeric::plane_t<T>, kernels::GeluForm::erf>>(),
          {x}, {}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
