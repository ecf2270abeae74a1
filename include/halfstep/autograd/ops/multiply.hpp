// SPDX-License-Identifier: MIT
// x * y, element by element: gates. Shapes are equal; nothing is broadcast.
#pragma once

#include <halfstep/autograd/dual_op.hpp>
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
      if (out != nullptr)
        kernels::multiply<T>(c.compute(), {c.output_gradient<T>(), n}, {c.input<T>(1 - i), n},
                             {out, n});
    }
  }
  static void forward_tangents(Forward& c) {
    const auto x = input_duals<T>(c, 0), y = input_duals<T>(c, 1);
    write_tangents(c.compute(), c.output_shape().elements(), c.output<T>(0, 1),
                   [=](std::int64_t i) { return x[i] * y[i]; });
  }
  static void backward_tangents(Backward& c) {
    const auto dz = gradient_duals<T>(c);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto other = input_duals<T>(c, 1 - i);
      T* const out = c.input_gradient<T>(i, 1);
      if (out == nullptr) continue;
      write_tangents(c.compute(), c.output_shape().elements(), out,
                     [=](std::int64_t j) { return dz[j] * other[j]; });
    }
  }
  static constexpr Op op{"multiply", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x * y, rounded once to T. @throws ShapeError if the shapes differ.
template <numeric::element_type T>
[[nodiscard]] Variable<T> operator*(Variable<T> x, Variable<T> y) {
  return autograd::tape_of(x, "multiply")
      .template handle<T>(
          x.tape->record(autograd::op_on<T, autograd::ops::Multiply<numeric::plane_t<T>>>(), {x, y},
                         {}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
