// SPDX-License-Identifier: MIT
// The loss of a regression: the summed square of differences.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/squared_error.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct SquaredError {
  using A = numeric::accumulator_t<T>;
  struct Payload {
    const float* targets;
    std::int64_t count;
  };
  static void infer(Infer& c) {
    const Shape y = c.input_shape(0);
    if (y.elements() != c.payload<Payload>().count) {
      core::fail<ShapeError>("squared_error: ", c.payload<Payload>().count,
                             " targets for an output of shape ", to_string(y), ", which has ",
                             y.elements(), " elements");
    }
    c.output<double>({});
    c.backward_reads({0}, {});
    c.save<A>(y.elements());
    c.workspace(
        kernels::squared_error_blocks(y.elements()) * static_cast<std::int64_t>(sizeof(double)), 0);
    const auto n = static_cast<double>(y.elements());
    c.flops(3.0 * n, 3.0 * n);
  }
  static void forward(Forward& c) {
    const auto& p = c.payload<Payload>();
    const auto n = static_cast<std::size_t>(p.count);
    A* const targets = c.saved<A>(0);
    numeric::convert(c.compute(), std::span<const float>(p.targets, n), std::span<A>(targets, n));
    const auto bytes = c.workspace();
    *c.output<double>() = kernels::squared_error<T>(c.compute(), {c.input<T>(0), n}, {targets, n},
                                                    {reinterpret_cast<double*>(bytes.data()),
                                                     bytes.size() / sizeof(double)})
                              .sum;
  }
  static void backward(Backward& c) {
    const auto n = static_cast<std::size_t>(c.payload<Payload>().count);
    T* const gradient = c.input_gradient<T>(0);
    if (gradient == nullptr) return;
    kernels::squared_error_backward<T>(c.compute(), {c.input<T>(0), n}, {c.saved<A>(0), n},
                                       static_cast<A>(*c.output_gradient<double>()), {gradient, n});
  }
  using loss_tag = void;
  static void backward_tangents(Backward& c, int plane) {
    T* const out = c.input_gradient<T>(0, plane);
    if (out == nullptr) return;
    const auto n = static_cast<std::size_t>(c.payload<Payload>().count);
    kernels::scale<T>(c.compute(), {c.input<T>(0, 1), n},
                      static_cast<T>(2.0 * *c.output_gradient<double>()), {out, n});
  }
  static constexpr Op op{"squared_error", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// The sum of (output - target)^2 over all elements, and their number. Keeps output and targets.
/// @throws ShapeError if there is not one target per element.
template <numeric::element_type T>
[[nodiscard]] Loss squared_error(Variable<T> output, std::span<const float> targets) {
  using Op = autograd::ops::SquaredError<numeric::plane_t<T>>;
  Tape& tape = autograd::tape_of(output, "squared_error");
  const auto count = static_cast<std::int64_t>(targets.size());
  const auto id = tape.record(autograd::op_on<T, Op>(), {output}, {},
                              typename Op::Payload{targets.data(), count});
  const auto loss = tape.handle<double>(id);
  return {loss, tape.dry() ? 0.0 : loss.value()[0], static_cast<double>(count)};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
