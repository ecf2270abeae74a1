// SPDX-License-Identifier: MIT
// Activation checkpointing: keep a segment's input, forget what it computed, run it again in the
// backward pass. The gradients are the same bits; the memory is one segment's at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// A struct of parameter handles that says so by `using layer_tag = void;`.
template <class F>
concept layer = requires { typename F::layer_tag; };

/// What `owns_its_captures` makes of a lambda.
template <class F>
struct OwnsItsCaptures {
  F callable;
  template <class... In>
  auto operator()(In... inputs) const {
    return callable(inputs...);
  }
};

/// The author's word that everything the lambda captured by reference outlives the backward pass.
template <class F>
[[nodiscard]] OwnsItsCaptures<F> owns_its_captures(F callable) {
  return {std::move(callable)};
}

namespace autograd {
template <class F>
inline constexpr bool owns_captures = false;
template <class F>
inline constexpr bool owns_captures<OwnsItsCaptures<F>> = true;
}  // namespace autograd

/// callable(x), recorded as one node: only x and the result are kept, and the callable runs again
/// when the sweep reaches it. It is taken by value and must do the same both times: the ops, their
/// shapes and the versions of the parameters they read are compared, and the first that differs is
/// named. Dropout draws the same mask, being keyed by sample and module. Cost: one more forward pass
/// of the segment; it holds its inside's activations (category recompute) while it is swept.
///
/// Not for the last segment before the loss: it would be forgotten and run again at once. Where the
/// tape records nothing, this is callable(x). A segment inside another is a part of it.
///
/// @throws StateError in the backward pass if the second run differs from the first.
template <class F, class T>
[[nodiscard]] Variable<T> checkpoint(F callable, Variable<T> x) {
  static_assert(layer<F> || std::is_empty_v<F> || autograd::owns_captures<F>,
                "checkpoint: the callable runs again during backward. Pass a layer, a lambda without captures, or "
                "owns_its_captures(lambda) if everything it captured by reference outlives the backward pass.");
  static_assert(std::same_as<decltype(callable(x)), Variable<T>>,
                "checkpoint: the callable takes and returns a Variable of one element type.");
  Tape& tape = autograd::tape_of(x, "checkpoint");
  if (!tape.training() || tape.is_replay() || tape.inside_segment()) return callable(x);
  tape.check(x, "checkpoint");
  const auto call = [callable = std::move(callable), x] { return callable(x).id; };
  return tape.handle<T>(tape.record_segment(call));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
