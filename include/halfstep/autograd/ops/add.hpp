// SPDX-License-Identifier: MIT
// x + y, element by element: the residual stream. Shapes are equal; nothing is broadcast.
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
struct Add {
  static void infer(Infer& c) {
    require_equal_shapes(c);
    c.output<T>(c.input_shape(0));
    c.backward_reads({}, {});
    c.repeatable();
    c.passes_gradient(0);
    c.passes_gradient(1);
    c.flops(static_cast<double>(c.input_shape(0).elements()), 0.0);
  }
  static void forward(Forward& c) { run(c, 0); }
  static void backward(Backward& /*c*/) {}
  static void forward_tangents(Forward& c) { run(c, 1); }
  static void backward_tangents(Backward& /*c*/) {}
  static void run(Forward& c, int plane) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::add<T>(c.compute(), {c.input<T>(0, plane), n}, {c.input<T>(1, plane), n},
                    {c.output<T>(0, plane), n});
  }
  static constexpr Op op{"add", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x + y, rounded once to T. @throws ShapeError if the shapes differ.
template <numeric::element_type T>
[[nodiscard]] Variable<T> operator+(Variable<T> x, Variable<T> y) {
  return autograd::tape_of(x, "add").template handle<T>(
      x.tape->record(autograd::op_on<T, autograd::ops::Add<numeric::plane_t<T>>>(), {x, y}, {},
                     autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
