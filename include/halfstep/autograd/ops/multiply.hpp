// SPDX-License-Identifier: MIT
// x * y, element by element: gates. Shapes are equal; nothing is broadcast.
#pragma once

#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct Multiply {
  static void infer(Infer& c) {
    require_equal_shapes(c);
    c.output<T>(c.input_shape(0));
    c.backward_reads({0, 1}, {});
    c.repeatable();
    const auto n = static_cast<double>(c.input_shape(0).elements());
    c.flops(n, 2.0 * n);
  }
  static void forward(Forward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::multiply<T>(c.compute(), {c.input<T>(0), n}, {c.input<T>(1), n}, {c.output<T>(), n});
  }
  static void backward(Backward& c) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    for (std::size_t i = 0; i < 2; ++i) {
      T* const out = c.input_gradient<T>(i);
      if (out != nullptr) kernels::multiply<T>(c.compute(), {c.output_gradient<T>(), n}, {c.input<T>(1 - i), n}, {out, n});
    }
  }
  static constexpr Op op{"multiply", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x * y, rounded once to T. @throws ShapeError if the shapes differ.
template <numeric::real_element T>
[[nodiscard]] Variable<T> operator*(Variable<T> x, Variable<T> y) {
  return autograd::tape_of(x, "multiply").template handle<T>(
      x.tape->record(autograd::ops::Multiply<T>::op, {x, y}, {}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
