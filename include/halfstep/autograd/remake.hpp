// SPDX-License-Identifier: MIT
// How the tape forgets values that it can make again, makes them again, and lets go of each after
// the last backward that reads it: functions that autograd/tape.hpp declares. Included by it; not
// for inclusion by others.
#pragma once

#include <algorithm>
#include <span>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/numeric/bf16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

inline void Tape::count_reads(std::uint32_t id) {
  autograd::Node& node = graph_.nodes[id];
  node.counted = true;
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    if (autograd::reads_input(node, i))
      ++graph_.values[graph_.links[node.inputs.first + i]].readers;
  }
}

// The node itself is to be run again in the backward pass, so its inputs stay for that, or what
// they are made from.
inline void Tape::hold_inputs(std::uint32_t id) {
  autograd::Node& node = graph_.nodes[id];
  if (node.holds) return;
  node.holds = true;
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    autograd::Value& input = graph_.values[graph_.links[node.inputs.first + i]];
    ++input.readers;
    if (input.data.bytes == 0) hold_inputs(input.node);
  }
}

// Takes back what count_reads and hold_inputs have counted, of values before `end`. Values that
// nobody reads any more go, where the sweep is done with the node.
inline void Tape::uncount_reads(std::uint32_t id, std::size_t end, bool release) {
  autograd::Node& node = graph_.nodes[id];
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    const std::uint32_t link = graph_.links[node.inputs.first + i];
    if (link >= end) continue;
    autograd::Value& value = graph_.values[link];
    value.readers -=
        (node.counted && autograd::reads_input(node, i) ? 1U : 0U) + (node.holds ? 1U : 0U);
    if (!release || value.readers != 0 || value.pinned || reads_own(value)) continue;
    graph_.arena.release(value.data);
    graph_.arena.release(value.narrow);
  }
  node.counted = node.holds = false;
}

inline bool Tape::reads_own(const autograd::Value& value) const {
  const std::uint32_t reads = graph_.nodes[value.node].reads_outputs;
  return reads != 0 &&
         (reads >> value.number & 1U) != 0;  // an op has few outputs, a segment reads none
}

// After node `id` has run: what was read before it and not by it is let go where it can be made
// again, and its own inputs wait for the next node. So an op that several in a row read is not made
// again for each.
inline void Tape::note_reads(std::uint32_t id) {
  const autograd::Node& node = graph_.nodes[id];
  const auto first = graph_.links.begin() + node.inputs.first;
  const auto last = first + node.inputs.count;
  std::erase_if(read_, [&](std::uint32_t value) {
    if (std::find(first, last, value) != last) return false;
    try_drop(value);
    return true;
  });
  for (auto link = first; link != last; ++link) {
    if (std::find(read_.begin(), read_.end(), *link) == read_.end()) read_.push_back(*link);
  }
}

inline void Tape::settle() {
  for (const std::uint32_t value : read_)
    try_drop(value);
  read_.clear();
}

inline void Tape::try_drop(std::uint32_t id) {
  autograd::Value& value = graph_.values[id];
  const autograd::Node& node = graph_.nodes[value.node];
  // What is outside of a segment is not the segment's to drop.
  if (value.data.bytes == 0 || value.pinned || value.between || !value.wants_gradient ||
      !node.repeatable || node.inputs.count == 0 || reads_own(value) || id < frame_.before.values) {
    return;
  }
  const Keep keep = value.readers == 0 ? Keep::recompute : keep_(node.op->name);
  if (keep == Keep::save) return;
  if (keep == Keep::as_bf16) {
    if (value.dtype == numeric::DType::f32 && value.planes == 1) narrow(value);
    return;
  }
  // At most three ops run one after the other to make it again. More may run in all: an op has
  // several inputs.
  std::uint32_t depth = 1;
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    const auto& input = graph_.values[graph_.links[node.inputs.first + i]];
    if (input.data.bytes == 0) depth = std::max(depth, input.depth + 1);
  }
  if (depth > 3) return;
  value.depth = depth;
  value.away = true;
  if (value.readers > 0) hold_inputs(value.node);
  graph_.arena.release(value.data);
}

inline void Tape::narrow(autograd::Value& value) {
  const auto n = static_cast<std::size_t>(value.shape.elements());
  value.narrow =
      graph_.arena.allocate(static_cast<std::int64_t>(n * sizeof(bf16)), graph_.category);
  if (!dry()) {
    kernels::cast<float, bf16>(graph_.compute,
                               {reinterpret_cast<const float*>(graph_.arena.data(value.data)), n},
                               {reinterpret_cast<bf16*>(graph_.arena.data(value.narrow)), n});
  }
  value.away = true;
  graph_.arena.release(value.data);
}

// Gives value `id` its values again. Nothing happens where they are there, or cannot be made:
// whoever reads them then says so.
inline void Tape::make_again(std::uint32_t id) {
  if (graph_.values[id].data.bytes != 0 || graph_.values[id].shape.elements() == 0) return;
  const auto category = state_ == State::swept ? core::Category::recompute : graph_.category;
  if (graph_.values[id].narrow.bytes != 0) {
    autograd::Value& value = graph_.values[id];
    const auto n = static_cast<std::size_t>(value.shape.elements());
    value.data = graph_.arena.allocate(value.bytes(), category);
    value.away = false;
    if (!dry()) {
      kernels::cast<bf16, float>(
          graph_.compute, {reinterpret_cast<const bf16*>(graph_.arena.data(value.narrow)), n},
          {reinterpret_cast<float*>(graph_.arena.data(value.data)), n});
    }
    graph_.arena.release(value.narrow);
    return;
  }
  const std::uint32_t maker = graph_.values[id].node;
  const autograd::Node node = graph_.nodes[maker];
  if (!node.repeatable) return;
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    const std::uint32_t input = graph_.links[node.inputs.first + i];
    make_again(input);
    if (graph_.values[input].data.bytes == 0 && graph_.values[input].shape.elements() != 0) return;
  }
  for (std::uint32_t i = 0; i < node.parameters.count; ++i)
    require_version(graph_.parameters[node.parameters.first + i]);
  // Of an op that has run, what it saved is there, and is written as it was; of one that a second
  // run has left out, it is nobody's.
  const auto saved = std::span(graph_.saved).subspan(node.saved.first, node.saved.count);
  const bool without_saved = node.saved.count > 0 && saved[0].block.bytes == 0;
  const auto let_go_of_saved = [&] {
    for (autograd::Saved& buffer : saved) {
      if (without_saved) graph_.arena.release(buffer.block);
    }
  };
  const auto outputs = std::span(graph_.values).subspan(node.outputs.first, node.outputs.count);
  try {
    for (autograd::Value& value : outputs) {
      value.away = value.data.bytes == 0;  // until all is well
      if (value.away) value.data = graph_.arena.allocate(value.bytes(), category);
    }
    for (autograd::Saved& buffer : saved) {
      if (without_saved)
        buffer.block = graph_.arena.allocate(buffer.bytes, core::Category::workspace);
    }
    run_kernel(maker);
  } catch (...) {
    for (autograd::Value& value : outputs) {
      if (value.away) graph_.arena.release(value.data);
    }
    let_go_of_saved();
    throw;
  }
  for (autograd::Value& value : outputs)
    value.away = false;
  let_go_of_saved();
  ++remade_ops_;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
