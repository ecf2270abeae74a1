// SPDX-License-Identifier: MIT
// Activation checkpointing: keep a segment's inputs, forget what it computed, run it again in the
// backward pass. The gradients are the same bits; the memory is one segment's at a time.
// Not for choosing what to forget (schedule.hpp, plan_recompute.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
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

struct CheckpointOptions {
  /// Also compare a hash of every op's values: one more read of what the segment writes, in both
  /// runs, and no op of the second is left out. For finding out which op is not repeatable.
  bool hash_values = false;
};

namespace autograd {

template <class R>
inline constexpr bool is_variable = false;
template <class T>
inline constexpr bool is_variable<Variable<T>> = true;

/// Calls f on a Variable, or on each of a pair, tuple or array.
template <class R, class F>
void for_each_variable(R&& result, const F& f) {
  if constexpr (is_variable<std::remove_cvref_t<R>>) {
    f(result);
  } else {
    std::apply([&](auto&&... variables) { (f(variables), ...); }, result);
  }
}

template <class R>
inline constexpr bool holds_variables = is_variable<R>;
template <class... V>
inline constexpr bool holds_variables<std::tuple<V...>> = (is_variable<V> && ...);
template <class A, class B>
inline constexpr bool holds_variables<std::pair<A, B>> = is_variable<A>&& is_variable<B>;
template <class V, std::size_t n>
inline constexpr bool holds_variables<std::array<V, n>> = is_variable<V>;

/// What the tape keeps of a segment.
template <class F, class... T>
struct Replay {
  F callable;
  std::tuple<Variable<T>...> inputs;
  void operator()(Tape& tape) const {
    for_each_variable(std::apply(callable, inputs), [&](const auto& v) { tape.give(v); });
  }
  void forget(Tape& tape) const { (*this)(tape); }
};

}  // namespace autograd

/// callable(inputs...), recorded as one node: of all that it records only the results are kept, and
/// it runs again when the sweep reaches them. It takes Variables and returns one, or a pair, a tuple
/// or an array of them; parameters and variables that it captures get their gradients too, wherever
/// they were made, frozen ones excepted. It is taken by value and must do the same both times: the
/// ops, their shapes and formats and the versions of the parameters they read are compared, and the
/// first that differs is named. Dropout draws the same mask, being keyed by sample and module;
/// formats and casts are what the callable says, not a setting that could have changed. Side effects
/// that must happen once ask `tape.is_replay()`.
///
/// Cost: the forward passes of the ops up to the last whose values some backward reads, once more.
/// That is known from the first run: the last product of a block, and what follows it, is not
/// computed again. Its inside's activations (category recompute) are held while it is swept.
///
/// Segments nest: the inner one is forgotten in each run of the outer and runs again in the sweep of
/// that; so its ops run three times in all. In a second run the values of ops after the last needed
/// one are not there; those that the callable reads by `value()` in the first are.
///
/// Not for the last segment before the loss: it would be forgotten and run again at once. Where the
/// tape records nothing, this is callable(inputs...).
///
/// @throws StateError in the backward pass if the second run differs from the first.
template <class F, class... T>
[[nodiscard]] auto checkpoint(const CheckpointOptions& options, F callable, Variable<T>... inputs) {
  static_assert(layer<F> || std::is_empty_v<F> || autograd::owns_captures<F>,
                "checkpoint: the callable runs again during backward. Pass a layer, a lambda without captures, or "
                "owns_its_captures(lambda) if everything it captured by reference outlives the backward pass.");
  using Result = std::remove_cvref_t<decltype(callable(inputs...))>;
  static_assert(autograd::holds_variables<Result>,
                "checkpoint: the callable returns a Variable, or a pair, tuple or array of Variables.");
  Tape& tape = autograd::tape_of(std::get<0>(std::tie(inputs...)), "checkpoint");
  (tape.check(inputs, "checkpoint"), ...);
  if (!tape.training()) return Result(callable(inputs...));
  const autograd::Replay<F, T...> replay{std::move(callable), {inputs...}};
  return tape.record_segment(replay, options.hash_values, [&](std::span<const std::uint32_t> ids) {
    Result result{};
    std::size_t next = 0;
    autograd::for_each_variable(result, [&]<class U>(Variable<U>& v) { v = tape.handle<U>(ids[next++]); });
    return result;
  });
}
template <class F, class... T>
[[nodiscard]] auto checkpoint(F callable, Variable<T>... inputs) {
  return checkpoint(CheckpointOptions{}, std::move(callable), inputs...);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
