// SPDX-License-Identifier: MIT
// A variable in another format: each value rounded once. Nodes of all formats share a tape.
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
template <numeric::real_element From, numeric::real_element To>
struct Cast {
  static void infer(Infer& c) {
    c.output<To>(c.input_shape(0));
    c.backward_reads({}, {});
    c.repeatable();
  }
  static void forward(Forward& c) { forward_plane(c, 0); }
  static void backward(Backward& c) { backward_plane(c, 0); }
  static void forward_tangents(Forward& c) { forward_plane(c, 1); }
  static void backward_tangents(Backward& c) { backward_plane(c, 1); }
  static void forward_plane(Forward& c, int plane) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::cast<From, To>(c.compute(), {c.input<From>(0, plane), n}, {c.output<To>(0, plane), n});
  }
  static void backward_plane(Backward& c, int plane) {
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    From* const dx = c.input_gradient<From>(0, plane);
    if (dx != nullptr)
      kernels::cast<To, From>(c.compute(), {c.output_gradient<To>(0, plane), n}, {dx, n});
  }
  static constexpr Op op{"cast", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x in format U, duals in duals. The gradient is rounded to x's format on its way back.
template <numeric::element_type U, numeric::element_type T>
requires(numeric::planes<U> == numeric::planes<T>) [[nodiscard]] Variable<U> cast(Variable<T> x) {
  return autograd::tape_of(x, "cast").template handle<U>(x.tape->record(
      autograd::op_on<T, autograd::ops::Cast<numeric::plane_t<T>, numeric::plane_t<U>>>(), {x}, {},
      autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
