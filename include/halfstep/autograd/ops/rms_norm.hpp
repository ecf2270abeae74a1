// SPDX-License-Identifier: MIT
// RMSNorm over the innermost dimension, with a gain: layer_norm without mean and bias.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/autograd/detail/norm_tangents.hpp>
#include <halfstep/autograd/dual_op.hpp>
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
      core::fail<ShapeError>(tensor::layer_name(c.parameter_info(p)), ": input has width ",
                             x.width(), ", '", c.parameter_info(p).name, "' has ",
                             c.parameter_info(p).elements, " elements");
    }
    c.output<T>(x);
    c.backward_reads({0}, {});
    c.backward_reads_parameters({});
    if (c.input_wants_gradient(0)) c.backward_reads_parameters({0});
    c.repeatable();
    c.save<A>(x.rows());  // rstd
    const auto n = static_cast<double>(x.elements());
    c.flops(8.0 * n, 16.0 * n);
  }
  static void forward(Forward& c) {
    const auto rows = static_cast<std::size_t>(c.input_shape(0).rows());
    const auto width = static_cast<std::size_t>(c.input_shape(0).width());
    const auto gain = c.parameter<T>(0);
    kernels::rms_norm<T>(c.compute(), {c.input<T>(0), rows * width}, {gain.data(), width},
                         {c.output<T>(), rows * width}, {c.saved<A>(0), rows},
                         {.eps = c.payload<Payload>().eps});
  }
  static void backward(Backward& c) {
    const auto rows = static_cast<std::size_t>(c.input_shape(0).rows());
    const auto width = static_cast<std::size_t>(c.input_shape(0).width());
    const std::span<const T> dy{c.output_gradient<T>(), rows * width};
    const std::span<const T> x{c.input<T>(0), rows * width};
    const std::span<const A> rstd{c.saved<A>(0), rows};
    if (T* const dx = c.input_gradient<T>(0)) {
      const auto gain = c.parameter<T>(0);
      kernels::rms_norm_backward_input<T>(c.compute(), dy, x, {gain.data(), width}, rstd,
                                          {dx, rows * width});
    }
    if (const auto dgain = c.parameter_gradient<A>(0)) {
      kernels::rms_norm_backward_gain<T>(c.compute(), dy, x, rstd, {dgain.data, width},
                                         dgain.accumulate);
    }
  }
  static void infer_tangents(Infer& c) {
    c.workspace(
        0, c.input_shape(0).rows() * static_cast<std::int64_t>(sizeof(detail::RowStatistics<T>)));
  }
  static void forward_tangents(Forward& c) {
    const std::int64_t rows = c.input_shape(0).rows(), width = c.input_shape(0).width();
    const auto gain = c.parameter<T>(0);
    detail::norm_tangents<false, T>(c.compute(), input_duals<T>(c, 0),
                                    {gain.data(), gain.data() + width}, nullptr, c.output<T>(0, 1),
                                    rows, width, c.payload<Payload>().eps);
  }
  static void backward_tangents(Backward& c) {
    const std::int64_t rows = c.input_shape(0).rows(), width = c.input_shape(0).width();
    const double eps = c.payload<Payload>().eps;
    const auto dy = gradient_duals<T>(c), x = input_duals<T>(c, 0);
    if (T* const dx = c.input_gradient<T>(0, 1)) {
      const auto gain = c.parameter<T>(0);
      detail::norm_input_tangents<false>(c.compute(), dy, x, {gain.data(), gain.data() + width}, dx,
                                         rows, width, eps);
    }
    if (const auto dgain = c.parameter_gradient<T>(0, 1)) {
      detail::norm_gain_tangents<false>(c.compute(), dy, x, dgain.data, dgain.accumulate, rows,
                                        width, eps, c.workspace().data());
    }
  }
  static constexpr Op op{"rms_norm", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x / sqrt(mean(x^2) + eps) * gain over the innermost dimension, rounded once to T. Keeps x and
/// one number per row. @throws ShapeError naming the layer if gain does not have x's width.
template <numeric::element_type T>
[[nodiscard]] Variable<T> rms_norm(Variable<T> x, Parameter<T> gain, double eps = 1e-5) {
  using Op = autograd::ops::RmsNorm<numeric::plane_t<T>>;
  Tape& tape = autograd::tape_of(x, "rms_norm");
  return tape.handle<T>(
      tape.record(autograd::op_on<T, Op>(), {x}, {gain}, typename Op::Payload{eps}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
