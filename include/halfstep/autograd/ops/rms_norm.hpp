// SPDX-License-Identifier: MIT
// RMSNorm over the innermost dimension, with a gain: layer_norm without mean and bias.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/rms_norm.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct RmsNorm {
  using A = numeric::accumulator_t<T>;
  struct Payload {
    double eps;
  };
  static void infer(Infer& c) {
    const Shape x = c.input_shape(0);
    for (std::size_t p = 0; p < c.parameters(); ++p) {
      if (c.parameter_info(p).elements == x.width()) continue;
      core::fail<ShapeError>(tensor::layer_name(c.parameter_info(p)), ": input has width ", x.width(), ", '",
                             c.parameter_info(p).name, "' has ", c.parameter_info(p).elements, " elements");
    }
    c.output<T>(x);
    c.backward_reads({0}, {});
    c.repeatable();
    c.save<A>(x.rows());  // rstd
    const auto n = static_cast<double>(x.elements());
    c.flops(8.0 * n, 16.0 * n);
  }
  static void forward(Forward& c) {
    const auto rows = static_cast<std::size_t>(c.input_shape(0).rows());
    const auto width = static_cast<std::size_t>(c.input_shape(0).width());
    const auto gain = c.parameter<T>(0);
    kernels::rms_norm<T>(c.compute(), {c.input<T>(0), rows * width}, {gain.data(), width}, {c.output<T>(), rows * width},
                         {c.saved<A>(0), rows}, {.eps = c.payload<Payload>().eps});
  }
  static void backward(Backward& c) {
    const auto rows = static_cast<std::size_t>(c.input_shape(0).rows());
    const auto width = static_cast<std::size_t>(c.input_shape(0).width());
    const std::span<const T> dy{c.output_gradient<T>(), rows * width};
    const std::span<const T> x{c.input<T>(0), rows * width};
    const std::span<const A> rstd{c.saved<A>(0), rows};
    if (T* const dx = c.input_gradient<T>(0)) {
      const auto gain = c.parameter<T>(0);
      kernels::rms_norm_backward_input<T>(c.compute(), dy, x, {gain.data(), width}, rstd, {dx, rows * width});
    }
    if (const auto dgain = c.parameter_gradient<A>(0)) {
      kernels::rms_norm_backward_gain<T>(c.compute(), dy, x, rstd, {dgain.data, width}, dgain.accumulate);
    }
  }
  static constexpr Op op{"rms_norm", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x / sqrt(mean(x^2) + eps) * gain over the innermost dimension, rounded once to T. Keeps x and one
/// number per row. @throws ShapeError naming the layer if gain does not have x's width.
template <numeric::real_element T>
[[nodiscard]] Variable<T> rms_norm(Variable<T> x, Parameter<T> gain, double eps = 1e-5) {
  using Op = autograd::ops::RmsNorm<T>;
  Tape& tape = autograd::tape_of(x, "rms_norm");
  return tape.handle<T>(tape.record(Op::op, {x}, {gain}, typename Op::Payload{eps}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
