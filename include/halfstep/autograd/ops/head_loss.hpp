// SPDX-License-Identifier: MIT
// A language model's head and its loss as one op, which keeps no logits: their gradient is computed
// in the forward pass, some rows at a time. Not for sampling, which wants the logits themselves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/head_loss.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct HeadLoss {
  using A = numeric::accumulator_t<T>;
  struct Payload {
    const std::int32_t* targets;
    std::int64_t count;
    std::int32_t ignore;
    double seed;
    kernels::CrossEntropySum* result;
  };
  struct Sizes {
    std::int64_t rows, width, classes;
  };
  static Sizes sizes(const Context& c) {
    return {c.input_shape(0).rows(), c.input_shape(0).width(), c.parameter_info(0).shape[0]};
  }
  static void infer(Infer& c) {
    const auto& weight = c.parameter_info(0);
    if (weight.shape.rank() != 2 || weight.shape[1] != c.input_shape(0).width()) {
      core::fail<ShapeError>(tensor::layer_name(weight), ": input has width ",
                             c.input_shape(0).width(), ", weight is ", to_string(weight.shape),
                             ". Is a layer before the head of another width?");
    }
    const auto s = sizes(c);
    if (s.rows != c.payload<Payload>().count) {
      core::fail<ShapeError>("head_loss: ", c.payload<Payload>().count, " targets for an input ",
                             to_string(c.input_shape(0)), ", which is ", s.rows,
                             " rows. Do inputs and targets have the same length?");
    }
    c.output<double>({});
    c.backward_reads({0}, {});
    const std::int64_t workspace =
        kernels::head_loss_workspace<T>(c.compute(), s.rows, s.width, s.classes);
    c.workspace(workspace, c.wants_gradient() ? workspace : 0);
    const bool to_input = c.wants_gradient() && c.input_wants_gradient(0);
    const bool to_weight = c.wants_gradient() && c.parameter_wants_gradient(0);
    if (c.wants_gradient()) {
      c.save<std::int32_t>(s.rows);
      c.save<T>(to_input ? s.rows * s.width : 0);
      c.save<A>(to_weight ? s.classes * s.width : 0);
    }
    const auto n = static_cast<double>(s.rows) * static_cast<double>(s.classes);
    const double product = 2.0 * n * static_cast<double>(s.width);
    const double products = (to_input ? product : 0.0) + (to_weight ? product : 0.0);
    c.flops(product + 12.0 * n + (c.keeps_saved() ? products + 10.0 * n : 0.0), 0.0);
  }
  static void forward(Forward& c) {
    const auto& p = c.payload<Payload>();
    const std::span<const std::int32_t> targets{p.targets, static_cast<std::size_t>(p.count)};
    if (c.keeps_saved()) std::copy(targets.begin(), targets.end(), c.saved<std::int32_t>(0));
    *p.result = run(c, targets, p.seed, c.keeps_saved());
    *c.output<double>() = p.result->sum;
  }
  // The saved gradients are those of the step's seed. A loss that something else than the step's
  // end was made of has another gradient, of which neither a multiple nor a rounding is right in 16
  // bits.
  static void backward(Backward& c) {
    const auto s = sizes(c);
    const auto& p = c.payload<Payload>();
    const double seed = *c.output_gradient<double>();
    if (seed != p.seed) {
      run(c, {c.saved<std::int32_t>(0), static_cast<std::size_t>(s.rows)}, seed, true);
    }
    if (T* const dx = c.input_gradient<T>(0))
      copy(c.compute(), c.saved<T>(1), dx, s.rows * s.width);
    if (const auto dweight = c.parameter_gradient<A>(0)) {
      const auto n = static_cast<std::size_t>(s.classes * s.width);
      if (dweight.accumulate) {
        kernels::add<A>(c.compute(), {dweight.data, n}, {c.saved<A>(2), n}, {dweight.data, n});
      } else {
        copy(c.compute(), c.saved<A>(2), dweight.data, s.classes * s.width);
      }
    }
  }
  static kernels::CrossEntropySum run(const Forward& c, std::span<const std::int32_t> targets,
                                      double seed, bool gradients) {
    const auto s = sizes(c);
    T* const dx = gradients && c.input_wants_gradient(0) ? c.saved<T>(1) : nullptr;
    A* const dw = gradients && c.parameter_wants_gradient(0) ? c.saved<A>(2) : nullptr;
    const auto weight = c.parameter<T>(0);
    return kernels::head_loss<T>(c.compute(), core::row_major(c.input<T>(0), s.rows, s.width),
                                 core::row_major(weight.data(), s.classes, s.width), targets,
                                 static_cast<A>(seed), dx, dw, c.workspace(),
                                 {.ignore = c.payload<Payload>().ignore});
  }
  template <class S>
  static void copy(const core::Compute& compute, const S* from, S* to, std::int64_t n) {
    compute.parallel(n, std::int64_t{1} << 16, [&](std::int64_t begin, std::int64_t end, int) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(S));
    });
  }
  static constexpr Op op{"head_loss", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// cross_entropy(logits(x, weight), targets), bit for bit, without the logits: x [..., width] and
/// the head's weight [classes, width], which may be an embedding's table, give the summed negative
/// log-likelihood and the number of targets that are not `ignore`. There are no weights per token.
///
/// Logits are computed, used and forgotten some rows at a time. Where gradients are recorded, the
/// forward pass computes those that are wanted too, for the seed that the tape has then (a window
/// sets it), and keeps them: width numbers a row and one float a weight. A backward pass that
/// arrives with another seed computes them again, which no declared FLOPs foresee. Within a
/// recompute segment the first run computes the loss alone, and the second all of it: keep the head
/// out of segments. On duals it is cross_entropy(logits(x, weight), targets), logits and all.
/// @throws ShapeError, or DataError naming the row of a target that is no class.
template <numeric::element_type T>
[[nodiscard]] Loss head_loss(Variable<T> x, Parameter<T> weight,
                             std::span<const std::int32_t> targets, std::int32_t ignore = -1) {
  if constexpr (numeric::is_dual<T>) {
    return cross_entropy(logits(x, weight), targets, ignore);
  } else {
    using Op = autograd::ops::HeadLoss<T>;
    Tape& tape = autograd::tape_of(x, "head_loss");
    kernels::CrossEntropySum result;
    const auto id =
        tape.record(Op::op, {x}, {weight},
                    typename Op::Payload{targets.data(), static_cast<std::int64_t>(targets.size()),
                                         ignore, tape.seed(), &result});
    return {tape.handle<double>(id), result.sum, static_cast<double>(result.count)};
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
