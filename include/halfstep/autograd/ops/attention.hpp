// SPDX-License-Identifier: MIT
// Causal self-attention over packed queries, keys and values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <halfstep/autograd/detail/attention_tangents.hpp>
#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/attention.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct Attention {
  using A = numeric::accumulator_t<T>;
  struct Payload {
    int heads;
    float dropout_probability;
    std::uint64_t seed, stream;
  };
  static kernels::AttentionShape sizes(const Context& c) {
    const Shape qkv = c.input_shape(0);
    const std::int64_t heads = c.payload<Payload>().heads;
    return {qkv[0], qkv[1], heads, qkv[2] / 3 / heads};
  }
  static void infer(Infer& c) {
    const Shape qkv = c.input_shape(0);
    const std::int64_t heads = c.payload<Payload>().heads;
    if (qkv.rank() != 3 || heads < 1 || qkv[2] % (3 * heads) != 0) {
      core::fail<ShapeError>("attention: input is ", to_string(qkv),
                             ", wanted [batch, tokens, 3 x width] with a width that ", heads,
                             " heads divide");
    }
    const auto s = sizes(c);
    c.output<T>({qkv[0], qkv[1], qkv[2] / 3});
    c.backward_reads({0}, {0});
    c.repeatable();
    c.save<A>(s.batch * s.heads * s.tokens);  // log-sum-exp
    c.workspace(kernels::attention_workspace<T>(s, c.compute().threads()),
                kernels::attention_backward_workspace<T>(s, c.compute().threads()));
    c.flops(static_cast<double>(kernels::attention_flops(s)),
            static_cast<double>(kernels::attention_backward_flops(s)));
  }
  static void forward(Forward& c) {
    const auto s = sizes(c);
    const auto n = static_cast<std::size_t>(s.rows() * s.channels());
    kernels::attention<T>(c.compute(), s, {c.input<T>(0), 3 * n}, {c.output<T>(), n}, lse(c, s),
                          c.workspace(), dropout(c));
  }
  static void backward(Backward& c) {
    const auto s = sizes(c);
    const auto n = static_cast<std::size_t>(s.rows() * s.channels());
    T* const dqkv = c.input_gradient<T>(0);
    if (dqkv == nullptr) return;
    kernels::attention_backward<T>(c.compute(), s, {c.output_gradient<T>(), n}, {c.output<T>(), n},
                                   {c.input<T>(0), 3 * n}, lse(c, s), {dqkv, 3 * n}, c.workspace(),
                                   dropout(c));
  }
  static void infer_tangents(Infer& c) {
    const std::int64_t bytes = detail::AttentionTangents<T>::workspace(c.compute(), sizes(c));
    c.workspace(std::max(c.workspace_forward(), bytes), std::max(c.workspace_backward(), bytes));
  }
  static void forward_tangents(Forward& c) { tangents(c).forward(c.output<T>(0, 1)); }
  static void backward_tangents(Backward& c) {
    T* const dqkv = c.input_gradient<T>(0, 1);
    if (dqkv != nullptr)
      tangents(c).backward(gradient_duals<T>(c), {c.output<T>(0, 0), c.output<T>(0, 1)}, dqkv);
  }
  static detail::AttentionTangents<T> tangents(const Forward& c) {
    const auto s = sizes(c);
    return {c.compute(), s, input_duals<T>(c, 0), lse(c, s).data(), dropout(c), c.workspace()};
  }
  // Sequence 0 of the micro-batch is first_sample x (sequences a sample, one as a rule).
  static kernels::AttentionDropout dropout(const Context& c) {
    const auto& p = c.payload<Payload>();
    const std::int64_t batch = c.input_shape(0)[0];
    const std::int64_t per_sample = c.micro().rows > 0 ? batch / c.micro().rows : batch;
    return {p.dropout_probability, p.seed, p.stream,
            static_cast<std::uint64_t>(c.micro().first_sample * per_sample)};
  }
  static std::span<A> lse(const Forward& c, const kernels::AttentionShape& s) {
    return {c.saved<A>(0), static_cast<std::size_t>(s.rows() * s.heads)};
  }
  static constexpr Op op{"attention", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// Causal attention: qkv [batch, tokens, 3 x width] holds queries, keys and values of all heads
/// side by side; the result is [batch, tokens, width]. Keeps qkv, the output and one float per head
/// and token; probabilities are never stored. Definition and order of sums: kernels/attention.hpp.
///
/// Each probability is zero with dropout_probability and divided by 1 - dropout_probability
/// otherwise, where the tape records gradients; nowhere else. `stream` is the module's:
/// core::stream(scope.name(), "probabilities"). Keeps no mask.
/// @throws ShapeError for another rank or a width that `heads` does not divide, OptionError for a
/// probability outside [0, 1).
template <numeric::element_type T>
[[nodiscard]] Variable<T> attention(Variable<T> qkv, int heads, float dropout_probability = 0.0F,
                                    std::uint64_t stream = 0) {
  using Op = autograd::ops::Attention<numeric::plane_t<T>>;
  Tape& tape = autograd::tape_of(qkv, "attention");
  if (!(dropout_probability >= 0.0F && dropout_probability < 1.0F)) {
    core::fail<OptionError>("attention: dropout probability ", dropout_probability,
                            " is not in [0, 1)");
  }
  const float share = tape.training() ? dropout_probability : 0.0F;
  return tape.handle<T>(
      tape.record(autograd::op_on<T, Op>(), {qkv}, {},
                  typename Op::Payload{heads, share, tape.runtime().seed(), stream}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
