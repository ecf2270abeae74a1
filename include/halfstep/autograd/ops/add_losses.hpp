// SPDX-License-Identifier: MIT
// The sum of two losses, as one to sweep back from.
#pragma once

#include <cstdint>

#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
struct AddLosses {
  static void infer(Infer& c) {
    c.output<double>({});
    c.backward_reads({}, {});
    c.passes_gradient(0);
    c.passes_gradient(1);
  }
  static void forward(Forward& c) {
    c.compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      *c.output<double>() = *c.input<double>(0) + *c.input<double>(1);
    });
  }
  static void backward(Backward& /*c*/) {}
  static constexpr Op op{"add_losses", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// Sums add and counts add: two heads over disjoint targets. @throws StateError for different tapes.
[[nodiscard]] inline Loss operator+(const Loss& x, const Loss& y) {
  Tape& tape = autograd::tape_of(x.variable, "add_losses");
  const auto id = tape.record(autograd::ops::AddLosses::op, {x.variable, y.variable}, {}, autograd::NoPayload{});
  const auto sum = tape.handle<double>(id);
  return {sum, tape.dry() ? 0.0 : sum.value()[0], x.count + y.count};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
