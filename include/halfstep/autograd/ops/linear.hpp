// SPDX-License-Identifier: MIT
// The linear layer, and the head that keeps its logits in float.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/linear.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
/// y = x W^T + b with y in Out: T for a layer, the accumulator type for logits.
template <numeric::real_element T, numeric::real_element Out>
struct Linear {
  using A = numeric::accumulator_t<T>;
  struct Sizes {
    std::int64_t rows, in, out;
  };
  static Sizes sizes(const Context& c) {
    return {c.input_shape(0).rows(), c.input_shape(0).width(), c.parameter_info(0).shape[0]};
  }
  static void infer(Infer& c) {
    const auto& weight = c.parameter_info(0);
    const std::int64_t width = c.input_shape(0).width();
    if (weight.shape.rank() != 2 || weight.shape[1] != width) {
      core::fail<ShapeError>(tensor::layer_name(weight), ": input has width ", width,
                             ", weight is ", to_string(weight.shape), " and wants ",
                             weight.shape.width(), ". Is a layer before it of another width?");
    }
    if (c.parameters() == 2 && c.parameter_info(1).elements != weight.shape[0]) {
      core::fail<ShapeError>(tensor::layer_name(weight), ": bias has ",
                             c.parameter_info(1).elements, " elements, weight is ",
                             to_string(weight.shape));
    }
    const auto s = sizes(c);
    c.output<Out>(c.input_shape(0).with_width(s.out));
    c.backward_reads({0}, {});
    c.backward_reads_parameters({});
    if (c.input_wants_gradient(0)) c.backward_reads_parameters({0});
    c.repeatable();
    c.workspace(
        kernels::linear_forward_workspace<T>(c.compute(), s.rows, s.in, s.out),
        kernels::linear_backward_workspace<T>(c.compute(), s.rows, s.in, s.out) + rounded_bytes(s));
    const double product =
        2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
    c.flops(product, 2.0 * product);
  }
  static void forward(Forward& c) {
    const auto s = sizes(c);
    const auto weight = c.parameter<T>(0);
    const auto run = [&](const T* bias) {
      kernels::linear_forward<T, Out>(c.compute(), core::row_major(c.input<T>(0), s.rows, s.in),
                                      core::row_major(weight.data(), s.out, s.in), bias,
                                      core::row_major(c.output<Out>(), s.rows, s.out),
                                      c.workspace());
    };
    if (c.parameters() == 1) return run(nullptr);
    const auto bias = c.parameter<T>(1);
    run(bias.data());
  }
  static void backward(Backward& c) {
    const auto s = sizes(c);
    const auto x = core::row_major(c.input<T>(0), s.rows, s.in);
    const auto [dy, workspace] = gradient_in_format(c, s);
    if (T* const dx = c.input_gradient<T>(0)) {
      const auto weight = c.parameter<T>(0);
      kernels::linear_backward_input<T>(
          c.compute(), dy, core::row_major(weight.data(), s.out, s.in),
          core::row_major(dx, s.rows, s.in), kernels::Write::overwrite, workspace);
    }
    if (const auto dweight = c.parameter_gradient<A>(0)) {
      kernels::linear_backward_weight<T>(
          c.compute(), dy, x, core::row_major(dweight.data, s.out, s.in),
          dweight.accumulate ? kernels::Write::accumulate : kernels::Write::overwrite, workspace);
    }
    if (c.parameters() == 1) return;
    if (const auto dbias = c.parameter_gradient<A>(1)) {
      kernels::linear_backward_bias<T>(
          c.compute(), dy, {dbias.data, static_cast<std::size_t>(s.out)},
          dbias.accumulate ? kernels::Write::accumulate : kernels::Write::overwrite);
    }
  }
  static void forward_tangents(Forward& c) {
    const auto s = sizes(c);
    const auto weight = c.parameter<T>(0);
    const auto run = [&](const T* bias) {
      kernels::linear_forward<T, T>(c.compute(), core::row_major(c.input<T>(0), s.rows, s.in),
                                    core::row_major(weight.data() + s.out * s.in, s.out, s.in),
                                    bias, core::row_major(c.output<T>(0, 1), s.rows, s.out),
                                    c.workspace());
    };
    if (c.parameters() == 1) {
      run(nullptr);
    } else {
      const auto bias = c.parameter<T>(1);
      run(bias.data() + s.out);
    }
    kernels::gemm<T, T>(c.compute(), core::row_major(c.input<T>(0, 1), s.rows, s.in),
                        core::row_major(weight.data(), s.out, s.in).transposed(), c.output<T>(0, 1),
                        s.out, {.accumulate = true}, c.workspace());
  }
  static void backward_tangents(Backward& c) {
    const auto s = sizes(c);
    const auto x = [&](int plane) { return core::row_major(c.input<T>(0, plane), s.rows, s.in); };
    const auto dy = [&](int plane) {
      return core::row_major(c.output_gradient<T>(0, plane), s.rows, s.out);
    };
    if (T* const dx = c.input_gradient<T>(0, 1)) {
      const auto weight = c.parameter<T>(0);
      const auto w = [&](int plane) {
        return core::row_major(weight.data() + plane * s.out * s.in, s.out, s.in);
      };
      const auto to = core::row_major(dx, s.rows, s.in);
      kernels::linear_backward_input<T>(c.compute(), dy(1), w(0), to, kernels::Write::overwrite,
                                        c.workspace());
      kernels::linear_backward_input<T>(c.compute(), dy(0), w(1), to, kernels::Write::accumulate,
                                        c.workspace());
    }
    if (const auto dweight = c.parameter_gradient<T>(0, 1)) {
      const auto to = core::row_major(dweight.data, s.out, s.in);
      kernels::linear_backward_weight<T>(
          c.compute(), dy(1), x(0), to,
          dweight.accumulate ? kernels::Write::accumulate : kernels::Write::overwrite,
          c.workspace());
      kernels::linear_backward_weight<T>(c.compute(), dy(0), x(1), to, kernels::Write::accumulate,
                                         c.workspace());
    }
    if (c.parameters() == 1) return;
    if (const auto dbias = c.parameter_gradient<T>(1, 1)) {
      kernels::linear_backward_bias<T>(
          c.compute(), dy(1), {dbias.data, static_cast<std::size_t>(s.out)},
          dbias.accumulate ? kernels::Write::accumulate : kernels::Write::overwrite);
    }
  }
  // Float logits of a 16-bit model: their gradient rounds to T before the products, as the house's
  // rounding points say of every activation gradient.
  static constexpr bool rounds = !std::is_same_v<T, Out>;
  static std::int64_t rounded_bytes(const Sizes& s) {
    return rounds ? core::round_up(s.rows * s.out * static_cast<std::int64_t>(sizeof(T)), 64) : 0;
  }
  static std::pair<core::MatrixView<const T>, std::span<std::byte>> gradient_in_format(
      Backward& c, const Sizes& s) {
    const auto workspace = c.workspace();
    if constexpr (!rounds) {
      return {core::row_major(c.output_gradient<T>(), s.rows, s.out), workspace};
    } else {
      const auto n = static_cast<std::size_t>(s.rows * s.out);
      T* const dy = reinterpret_cast<T*>(workspace.data());
      kernels::cast<Out, T>(c.compute(), {c.output_gradient<Out>(), n}, {dy, n});
      const T* const read = dy;
      return {core::row_major(read, s.rows, s.out),
              workspace.subspan(static_cast<std::size_t>(rounded_bytes(s)))};
    }
  }
  static constexpr Op op{rounds ? "logits" : "linear", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x [..., in] times weight [out, in] transposed, plus bias [out]: [..., out], each element one
/// chain over `in`, plus the bias, rounded once to T. Keeps x. A default-constructed `bias` is
/// none.
/// @throws ShapeError naming the layer: "blocks.3.up: input has width 128, weight is [1536, 384]
/// …".
template <numeric::element_type T>
[[nodiscard]] Variable<T> linear(Variable<T> x, Parameter<T> weight, Parameter<T> bias = {}) {
  using Plane = numeric::plane_t<T>;
  constexpr const autograd::Op& op = autograd::op_on<T, autograd::ops::Linear<Plane, Plane>>();
  Tape& tape = autograd::tape_of(x, "linear");
  return tape.handle<T>(bias.store == nullptr
                            ? tape.record(op, {x}, {weight}, autograd::NoPayload{})
                            : tape.record(op, {x}, {weight, bias}, autograd::NoPayload{}));
}

/// x [..., in] times weight [classes, in] transposed, in float (double for double): logits are
/// never rounded to 16 bits. The weight may be an embedding's table (a tied head).
template <numeric::element_type T>
[[nodiscard]] Variable<numeric::accumulator_t<T>> logits(Variable<T> x, Parameter<T> weight) {
  using A = numeric::accumulator_t<T>;
  using Op = autograd::ops::Linear<numeric::plane_t<T>, numeric::plane_t<A>>;
  Tape& tape = autograd::tape_of(x, "logits");
  return tape.handle<A>(
      tape.record(autograd::op_on<T, Op>(), {x}, {weight}, autograd::NoPayload{}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
