// SPDX-License-Identifier: MIT
// Runs a chain of layers by a schedule: which are kept, which are forgotten and run again, in
// segments within segments. The values and gradients are those of the plain loop.
// Not for choosing the schedule (schedule.hpp, chain_plans.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd {

template <class Layer, class T>
[[nodiscard]] Variable<T> run_parts(std::span<const Layer> layers, std::span<const Part> parts,
                                    Variable<T> x);

/// A segment of a chain. In its first run every layer is forgotten as soon as the next one's input
/// is there, so that it takes one layer at a time.
template <class Layer, class T>
struct ChainSegment {
  std::span<const Layer> layers;
  std::span<const Part> inside;
  Part part;
  Variable<T> x;
  void operator()(Tape& tape) const { tape.give(run_parts(layers, inside, x)); }
  void forget(Tape& tape) const {
    Variable<T> v = x;
    for (int i = part.first; i < part.last; ++i)
      v = tape.keep_only(layers[static_cast<std::size_t>(i)](v));
    tape.give(v);
  }
};

template <class Layer, class T>
Variable<T> run_parts(std::span<const Layer> layers, std::span<const Part> parts, Variable<T> x) {
  for_each_part(parts, [&](std::size_t i, const Part& part) {
    if (part.inside == 0) {
      x = layers[static_cast<std::size_t>(part.first)](x);
      x.tape->settle(x);
      return;
    }
    Tape& tape = *x.tape;
    const ChainSegment<Layer, T> segment{
        layers, parts.subspan(i + 1, static_cast<std::size_t>(part.inside)), part, x};
    x = tape.record_segment(
        segment, false, [&](std::span<const std::uint32_t> ids) { return tape.handle<T>(ids[0]); });
  });
  return x;
}

}  // namespace autograd

/// layers[n - 1](… layers[1](layers[0](x))), recomputed as `schedule` says. Where the tape records
/// nothing, each layer runs once and is forgotten when the next has. A layer takes and returns a
/// Variable<T> and does the same every time: it is called once for each of
/// `schedule.forwards_by_step()`, and each further time is compared with the first as `checkpoint`
/// does.
///
/// Layers and schedule outlive the backward pass: the tape keeps pointers to them.
/// @throws OptionError if the schedule is for another number of layers, or is none.
template <class Layer, class T>
[[nodiscard]] Variable<T> run_chain(std::span<const Layer> layers,
                                    const autograd::Schedule& schedule, Variable<T> x) {
  if (schedule.steps != static_cast<int>(layers.size())) {
    core::fail<OptionError>("run_chain: the schedule is for ", schedule.steps,
                            " layers, but there are ", layers.size());
  }
  autograd::require_valid(schedule);
  if (x.tape == nullptr)
    core::fail<StateError>("run_chain: the variable is on no tape. Was it default-constructed?");
  x.tape->settle(x);
  if (x.tape->training())
    return autograd::run_parts(layers, std::span<const autograd::Part>(schedule.parts), x);
  // Nothing to sweep back through: each layer is forgotten once the next has run.
  Tape& tape = *x.tape;
  const autograd::ChainSegment<Layer, T> all{layers, {}, {0, schedule.steps, 0}, x};
  return tape.record_segment(
      all, false, [&](std::span<const std::uint32_t> ids) { return tape.handle<T>(ids[0]); });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
