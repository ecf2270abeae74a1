// SPDX-License-Identifier: MIT
// Dropout by counters: the mask is a pure function of seed, module and sample, so that recompute,
// restarts and any number of ranks see the same one.
#pragma once

#include <cstdint>
#include <string_view>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/dropout.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct Dropout {
  struct Payload {
    float probability;
    std::uint64_t seed, stream;
  };
  static void infer(Infer& c) {
    const std::int64_t rows = c.micro().rows;
    if (rows > 0 && c.input_shape(0).elements() % rows != 0) {
      core::fail<ShapeError>("dropout: input ", to_string(c.input_shape(0)),
                             " does not divide into the micro-batch's ", rows,
                             " rows, by which its mask is keyed");
    }
    c.output<T>(c.input_shape(0));
    c.backward_reads({}, {});
    c.repeatable();
    const auto n = static_cast<double>(c.input_shape(0).elements());
    c.flops(n, n);
  }
  static void forward(Forward& c) { run(c, c.input<T>(0), c.output<T>()); }
  static void backward(Backward& c) {
    if (T* const dx = c.input_gradient<T>(0)) run(c, c.output_gradient<T>(), dx);
  }
  static void forward_tangents(Forward& c) { run(c, c.input<T>(0, 1), c.output<T>(0, 1)); }
  static void backward_tangents(Backward& c) {
    if (T* const dx = c.input_gradient<T>(0, 1)) run(c, c.output_gradient<T>(0, 1), dx);
  }
  // Element e of the micro-batch's sample i is element (first_sample + i) x (elements a sample) +
  // e.
  static void run(const Context& c, const T* in, T* out) {
    const auto& p = c.payload<Payload>();
    const std::int64_t n = c.input_shape(0).elements();
    const std::int64_t per_sample = c.micro().rows > 0 ? n / c.micro().rows : n;
    const auto size = static_cast<std::size_t>(n);
    kernels::dropout<T>(c.compute(), {in, size}, {out, size}, p.probability, p.seed, p.stream,
                        static_cast<std::uint64_t>(c.micro().first_sample * per_sample));
  }
  static constexpr Op op{"dropout", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// x with each element zero with that probability and divided by 1 - probability otherwise; x
/// itself where the tape records nothing, or for probability 0. `stream` is the module's:
/// core::stream(scope.name(), "dropout"). Keeps no mask.
/// @throws OptionError for a probability outside [0, 1).
template <numeric::element_type T>
[[nodiscard]] Variable<T> dropout(Variable<T> x, float probability, std::uint64_t stream) {
  using Op = autograd::ops::Dropout<numeric::plane_t<T>>;
  Tape& tape = autograd::tape_of(x, "dropout");
  if (!(probability >= 0.0F && probability < 1.0F)) {
    core::fail<OptionError>("dropout: probability ", probability, " is not in [0, 1)");
  }
  if (probability == 0.0F || !tape.training()) return x;
  return tape.handle<T>(
      tape.record(autograd::op_on<T, Op>(), {x}, {},
                  typename Op::Payload{probability, tape.runtime().seed(), stream}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
