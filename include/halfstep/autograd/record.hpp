// SPDX-License-Identifier: MIT
// How the tape records a node and runs it, and takes back what an error has left half recorded:
// functions that autograd/tape.hpp declares. Included by it; not for inclusion by others.
#pragma once

#include <cstring>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

inline std::uint32_t Tape::record_node(const autograd::Op& op, std::span<const AnyVariable> inputs,
                                       std::span<const AnyParameter> parameters,
                                       std::span<const std::byte> payload) {
  if (state_ == State::idle) {
    core::fail<StateError>(op.name, ": the tape has not begun. Call tape.begin(micro) first.");
  }
  if (state_ == State::swept && !graph_.replaying) {
    core::fail<StateError>(
        op.name, ": the tape has swept backward already. Begin it again for the next pass.");
  }
  if (inputs.size() > 32)
    core::fail<ShapeError>(op.name, ": ", inputs.size(), " inputs; an op has at most 32");
  const Mark before = mark();
  const auto id = static_cast<std::uint32_t>(graph_.nodes.size());
  bool wants = false;
  try {
    autograd::Node node;
    node.op = &op;
    node.inputs = {static_cast<std::uint32_t>(graph_.links.size()),
                   static_cast<std::uint32_t>(inputs.size())};
    node.outputs.first = static_cast<std::uint32_t>(graph_.values.size());
    node.parameters = {static_cast<std::uint32_t>(graph_.parameters.size()),
                       static_cast<std::uint32_t>(parameters.size())};
    node.saved.first = static_cast<std::uint32_t>(graph_.saved.size());
    node.payload = graph_.payloads.size();
    for (const AnyVariable& input : inputs) {
      check(input, op.name);
      graph_.links.push_back(input.id);
      wants = wants || graph_.values[input.id].wants_gradient;
    }
    read_parameters(parameters, wants);
    wants = wants && record_ == Record::gradients;
    node.wants_gradient = wants;
    node.keeps_saved = wants && !frame_.forgetting;
    // Payloads start at multiples of 16, which new memory of a vector is aligned to.
    graph_.payloads.resize(node.payload + (payload.size() + 15) / 16 * 16);
    std::memcpy(graph_.payloads.data() + node.payload, payload.data(), payload.size());
    graph_.nodes.push_back(node);

    autograd::Infer infer(graph_, id);
    op.infer(infer);
    if (wants) require_sum_of_losses(id);
    if (wants) count_reads(id);
    const bool computed = log_op(id, wants);
    if (!computed && graph_.nodes[id].repeatable && keep_(op.name) == Keep::recompute)
      hold_inputs(id);
    run_forward(id, computed);
    if (computed) log_values(id);
    if (wants) note_reads(id);
  } catch (...) {
    rewind(before);
    throw;
  }
  const auto& node = graph_.nodes[id];
  for (std::uint32_t i = 0; wants && !graph_.replaying && i < node.parameters.count; ++i) {
    auto& ref = graph_.parameters[node.parameters.first + i];
    if (auto* const bound = binding(ref.table)) {
      ref.counted = true;
      ++bound->leaves[ref.id.index].uses;
      ++bound->leaves[ref.id.index].pending;
    }
  }
  return graph_.nodes[id].outputs.first;
}

// A loss of duals has no tangents (autograd/dual_op.hpp), so what is made of it has to have a
// derivative that no value enters: then backward reads none and nothing is saved for it.
inline void Tape::require_sum_of_losses(std::uint32_t id) {
  const autograd::Node& node = graph_.nodes[id];
  bool of_losses = false, of_duals = false;
  for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
    const auto& input = graph_.values[graph_.links[node.inputs.first + i]];
    of_losses = of_losses || input.lacks_tangents;
    of_duals = of_duals || input.planes == 2;
  }
  for (std::uint32_t i = 0; i < node.parameters.count; ++i) {
    of_duals = of_duals || graph_.parameters[node.parameters.first + i].table->planes() == 2;
  }
  const bool constant = node.reads_inputs == 0 && node.reads_outputs == 0 && node.saved.count == 0;
  if (of_losses && (of_duals || !constant)) {
    core::fail<StateError>(
        node.op->name, ": a loss of duals has no tangents, so a second derivative ",
        "through this op would be wrong. Sum losses, or weight them by constants, in ",
        "an op whose infer says backward_reads({}, {}) and saves nothing; put the ",
        "rest into an op that makes the loss.");
  }
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& output = graph_.values[node.outputs.first + i];
    output.lacks_tangents = output.planes == 1 && (of_duals || of_losses);
  }
}

inline void Tape::read_parameters(std::span<const AnyParameter> parameters, bool& wants) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const AnyParameter& parameter = parameters[i];
    if (parameter.table == nullptr) {
      core::fail<StateError>("Tape: the parameter is in no store. Was it default-constructed?");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (parameters[j].table == parameter.table && parameters[j].id == parameter.id) {
        core::fail<StateError>("Tape: parameter '", parameter.table->info(parameter.id).name,
                               "' appears twice in one op. Pass it to two ops.");
      }
    }
    if (!own_account_) parameter.table->lay_out();
    graph_.parameters.push_back(
        {parameter.table, parameter.id, parameter.table->info(parameter.id).version, false});
    // A dry run has no sinks: it counts as if every parameter wanted its gradient.
    if (dry() && binding(parameter.table) == nullptr) {
      graph_.bindings.push_back(
          {parameter.table, nullptr, std::vector<autograd::Leaf>(parameter.table->size())});
    }
    if (auto* const bound = binding(parameter.table)) {
      wants = true;
      if (bound->leaves.size() < parameter.table->size())
        bound->leaves.resize(parameter.table->size());
    }
  }
}

// An op that is not computed is one of a segment's second run whose values no backward reads.
inline void Tape::run_forward(std::uint32_t id, bool computed) {
  const autograd::Node& node = graph_.nodes[id];
  const bool wants = node.wants_gradient;
  for (std::uint32_t i = 0; computed && i < node.inputs.count; ++i)
    make_again(graph_.links[node.inputs.first + i]);
  using Phase = core::Event::Phase;
  ledger().set_event({graph_.replaying ? Phase::replay : Phase::forward, node.op->name, id});
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& value = graph_.values[node.outputs.first + i];
    value.wants_gradient = wants;
    if (computed) value.data = graph_.arena.allocate(value.bytes(), graph_.category);
  }
  if (!computed) return ledger().set_event({});
  const bool keeps = node.keeps_saved;
  const auto saved_category = keeps ? graph_.category : core::Category::workspace;
  for (std::uint32_t i = 0; i < node.saved.count; ++i) {
    auto& saved = graph_.saved[node.saved.first + i];
    saved.block = graph_.arena.allocate(saved.bytes, saved_category);
  }
  run_kernel(id);
  ledger().set_event({});
  if (graph_.replaying) {
    ++replayed_ops_;
    replayed_flops_ += node.flops_forward;
  }
  for (std::uint32_t i = 0; i < node.saved.count && !keeps; ++i) {
    graph_.arena.release(graph_.saved[node.saved.first + i].block);
  }
}

inline void Tape::run_kernel(std::uint32_t id) {
  const autograd::Node& node = graph_.nodes[id];
  const auto held = hold(node.parameters, ~0U);
  graph_.workspace = graph_.arena.allocate(node.workspace_forward, core::Category::workspace);
  try {
    if (!dry()) {
      autograd::Forward forward(graph_, id);
      node.op->forward(forward);
    }
  } catch (...) {
    graph_.arena.release(graph_.workspace);
    throw;
  }
  graph_.arena.release(graph_.workspace);
  flops_ += node.flops_forward;
}

// After a segment's first run has thrown: what it read will not be swept.
inline void Tape::forget_uses(std::size_t first_parameter) {
  for (std::size_t i = first_parameter; i < graph_.parameters.size(); ++i) {
    if (!graph_.parameters[i].counted) continue;
    auto& leaf = binding(graph_.parameters[i].table)->leaves[graph_.parameters[i].id.index];
    --leaf.uses, --leaf.pending;
  }
}

inline void Tape::rewind(const Mark& to) {
  for (std::size_t i = to.nodes; i < graph_.nodes.size(); ++i)
    uncount_reads(static_cast<std::uint32_t>(i), to.values, false);
  std::erase_if(read_, [&](std::uint32_t value) { return value >= to.values; });
  for (std::size_t i = to.values; i < graph_.values.size(); ++i) {
    graph_.arena.release(graph_.values[i].data);
    graph_.arena.release(graph_.values[i].narrow);
  }
  for (std::size_t i = to.saved; i < graph_.saved.size(); ++i)
    graph_.arena.release(graph_.saved[i].block);
  graph_.nodes.resize(to.nodes), graph_.values.resize(to.values), graph_.links.resize(to.links);
  graph_.parameters.resize(to.parameters), graph_.saved.resize(to.saved),
      graph_.payloads.resize(to.payloads);
  graph_.log.resize(to.log);
  while (segments_used_ > to.segments)
    segments_[--segments_used_].reset();
}

inline std::string_view Tape::producer(std::uint32_t value) const {
  return graph_.nodes[graph_.values[value].node].op->name;
}

inline autograd::Binding* Tape::binding(const tensor::ParameterTable* table) {
  for (auto& bound : graph_.bindings) {
    if (bound.table == table) return &bound;
  }
  return nullptr;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
