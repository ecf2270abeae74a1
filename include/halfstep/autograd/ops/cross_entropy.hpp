// SPDX-License-Identifier: MIT
// The loss of a language model: the summed negative log-likelihood of targets under logits.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/cross_entropy.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <std::floating_point A>
struct CrossEntropy {
  struct Payload {
    const std::int32_t* targets;
    std::int64_t count;
    std::int32_t ignore;
    kernels::CrossEntropySum* result;
  };
  static void infer(Infer& c) {
    const Shape logits = c.input_shape(0);
    const std::int64_t targets = c.payload<Payload>().count;
    if (logits.rows() != targets) {
      core::fail<ShapeError>("cross_entropy: ", targets, " targets for logits ", to_string(logits),
                             ", which are ", logits.rows(),
                             " rows. Do inputs and targets have the same length?");
    }
    c.output<double>({});
    c.backward_reads({0}, {});
    c.save<std::int32_t>(targets);
    c.save<A>(targets);                                              // log-sum-exp
    c.workspace(targets * static_cast<std::int64_t>(sizeof(A)), 0);  // losses
    const auto n = static_cast<double>(logits.elements());
    c.flops(12.0 * n, 10.0 * n);
  }
  static void forward(Forward& c) {
    const auto& p = c.payload<Payload>();
    const auto rows = static_cast<std::size_t>(p.count);
    std::copy_n(p.targets, rows, c.saved<std::int32_t>(0));
    auto* const losses = reinterpret_cast<A*>(c.workspace().data());
    *p.result =
        kernels::cross_entropy<A>(c.compute(), logits(c), {c.saved<std::int32_t>(0), rows},
                                  {losses, rows}, {c.saved<A>(1), rows}, {.ignore = p.ignore});
    *c.output<double>() = p.result->sum;
  }
  static void backward(Backward& c) {
    const auto rows = static_cast<std::size_t>(c.payload<Payload>().count);
    A* const gradient = c.input_gradient<A>(0);
    if (gradient == nullptr) return;
    kernels::cross_entropy_backward<A, A>(
        c.compute(), logits(c), {c.saved<std::int32_t>(0), rows}, {c.saved<A>(1), rows},
        static_cast<A>(*c.output_gradient<double>()), {gradient, logits(c).size()},
        {.ignore = c.payload<Payload>().ignore});
  }
  using loss_tag = void;
  // With p the softmax, its tangent: p (t - p . t), which is the Hessian of a row's loss times t.
  static void backward_tangents(Backward& c, int plane) {
    A* const out = c.input_gradient<A>(0, plane);
    if (out == nullptr) return;
    const std::int64_t classes = c.input_shape(0).width();
    const auto x = input_duals<A>(c, 0);
    const std::int32_t ignore = c.payload<Payload>().ignore;
    const std::int32_t* const targets = c.saved<std::int32_t>(0);
    const A* const lse = c.saved<A>(1);
    const A seed = static_cast<A>(*c.output_gradient<double>());
    c.compute().parallel(c.payload<Payload>().count, 1,
                         [&](std::int64_t begin, std::int64_t end, int) {
                           for (std::int64_t row = begin; row < end; ++row) {
                             A* const to = out + row * classes;
                             const A* const logit = x.values + row * classes;
                             const A* const tangent = x.tangents + row * classes;
                             if (targets[row] == ignore) {
                               std::fill_n(to, classes, A(0));
                               continue;
                             }
                             A mean{};
                             for (std::int64_t j = 0; j < classes; ++j) {
                               to[j] = numeric::exp(logit[j] - lse[row]);
                               mean += core::rounded(to[j] * tangent[j]);
                             }
                             for (std::int64_t j = 0; j < classes; ++j)
                               to[j] *= (tangent[j] - mean) * seed;
                           }
                         });
  }
  static std::span<const A> logits(const Forward& c) {
    return {c.input<A>(0), static_cast<std::size_t>(c.input_shape(0).elements())};
  }
  static constexpr Op op{"cross_entropy", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// The sum over rows of -log softmax(logits)[target], and the number of rows whose target is not
/// ignored: what a mean over micro-batches and ranks is made of. Keeps logits and one number per
/// row.
///
///   logits   [..., classes], float (double in the double model)
///   targets  one per row; copied
///
/// With every target ignored the loss is 0 of 0 and all gradients are zero.
/// @throws ShapeError, or DataError naming the row of a target that is no class.
template <numeric::element_type A>
requires std::floating_point<numeric::plane_t<A>>
[[nodiscard]] Loss cross_entropy(Variable<A> logits, std::span<const std::int32_t> targets,
                                 std::int32_t ignore = -1) {
  using Op = autograd::ops::CrossEntropy<numeric::plane_t<A>>;
  Tape& tape = autograd::tape_of(logits, "cross_entropy");
  kernels::CrossEntropySum result;
  const auto id =
      tape.record(autograd::op_on<A, Op>(), {logits}, {},
                  typename Op::Payload{targets.data(), static_cast<std::int64_t>(targets.size()),
                                       ignore, &result});
  return {tape.handle<double>(id), result.sum, static_cast<double>(result.count)};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
