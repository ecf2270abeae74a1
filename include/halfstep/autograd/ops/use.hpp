// SPDX-License-Identifier: MIT
// A parameter as a variable, for ops that take variables only. Not for the weights of linear or
// layer_norm, which read theirs in place.
#pragma once

#include <cstdint>
#include <cstring>

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
struct Use {
  using A = numeric::accumulator_t<T>;
  static void infer(Infer& c) {
    c.output<T>(c.parameter_info(0).shape);
    c.backward_reads({}, {});
    c.backward_reads_parameters({});
  }
  static void forward(Forward& c) { forward_plane(c, 0); }
  static void backward(Backward& c) { backward_plane(c, 0); }
  static void forward_tangents(Forward& c) { forward_plane(c, 1); }
  static void backward_tangents(Backward& c) { backward_plane(c, 1); }
  static void forward_plane(Forward& c, int plane) {
    const auto values = c.parameter<T>(0);
    const std::int64_t n = c.output_shape().elements();
    std::memcpy(c.output<T>(0, plane), values.data() + plane * n,
                static_cast<std::size_t>(n) * sizeof(T));
  }
  static void backward_plane(Backward& c, int plane) {
    const auto target = c.parameter_gradient<A>(0, plane);
    if (!target) return;
    const auto n = static_cast<std::size_t>(c.output_shape().elements());
    kernels::cast<T, A>(c.compute(), {c.output_gradient<T>(0, plane), n}, {target.data, n},
                        target.accumulate ? kernels::Write::accumulate : kernels::Write::overwrite);
  }
  static constexpr Op op{"use", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// The parameter's values as a variable of its shape; its gradient is that variable's.
template <numeric::element_type T>
[[nodiscard]] Variable<T> use(Tape& tape, Parameter<T> parameter) {
  return tape.handle<T>(tape.record(autograd::op_on<T, autograd::ops::Use<numeric::plane_t<T>>>(),
                                    {}, {parameter}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
