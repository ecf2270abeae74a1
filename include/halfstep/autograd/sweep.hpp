// SPDX-License-Identifier: MIT
// How the tape records a node and how it sweeps back: the functions that autograd/tape.hpp declares.
// Included by it; not for inclusion by others.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

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
    core::fail<StateError>(op.name, ": the tape has swept backward already. Begin it again for the next pass.");
  }
  if (inputs.size() > 32) core::fail<ShapeError>(op.name, ": ", inputs.size(), " inputs; an op has at most 32");
  const Mark before = mark();
  const auto id = static_cast<std::uint32_t>(graph_.nodes.size());
  bool wants = false;
  try {
    autograd::Node node;
    node.op = &op;
    node.inputs = {static_cast<std::uint32_t>(graph_.links.size()), static_cast<std::uint32_t>(inputs.size())};
    node.outputs.first = static_cast<std::uint32_t>(graph_.values.size());
    node.parameters = {static_cast<std::uint32_t>(graph_.parameters.size()), static_cast<std::uint32_t>(parameters.size())};
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
    // Payloads start at multiples of 16, which new memory of a vector is aligned to.
    graph_.payloads.resize(node.payload + (payload.size() + 15) / 16 * 16);
    std::memcpy(graph_.payloads.data() + node.payload, payload.data(), payload.size());
    graph_.nodes.push_back(node);

    autograd::Infer infer(graph_, id);
    op.infer(infer);
    run_forward(id);
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
    if (!dry()) parameter.table->lay_out();
    graph_.parameters.push_back({parameter.table, parameter.id, parameter.table->info(parameter.id).version, false});
    // A dry run has no sinks: it counts as if every parameter wanted its gradient.
    if (dry() && binding(parameter.table) == nullptr) {
      graph_.bindings.push_back({parameter.table, nullptr, std::vector<autograd::Leaf>(parameter.table->size())});
    }
    if (auto* const bound = binding(parameter.table)) {
      wants = true;
      if (bound->leaves.size() < parameter.table->size()) bound->leaves.resize(parameter.table->size());
    }
  }
}

inline void Tape::run_forward(std::uint32_t id) {
  autograd::Node& node = graph_.nodes[id];
  const bool wants = node.wants_gradient;
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& value = graph_.values[node.outputs.first + i];
    value.wants_gradient = wants;
    value.data = graph_.arena.allocate(value.bytes(), graph_.category);
  }
  const auto saved_category = wants ? graph_.category : core::Category::workspace;
  for (std::uint32_t i = 0; i < node.saved.count; ++i) {
    auto& saved = graph_.saved[node.saved.first + i];
    saved.block = graph_.arena.allocate(saved.bytes, saved_category);
  }
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
  flops_ += graph_.nodes[id].flops_forward;
  if (!wants) {
    for (std::uint32_t i = 0; i < node.saved.count; ++i) graph_.arena.release(graph_.saved[node.saved.first + i].block);
  }
}

inline void Tape::sweep(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t id = last; id-- > first;) sweep_node(id);
}

inline void Tape::sweep_node(std::uint32_t id) {
  if (graph_.nodes[id].segment >= 0) return sweep_segment(id);
  const autograd::Node node = graph_.nodes[id];
  bool reached = false;
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    reached = reached || graph_.values[node.outputs.first + i].gradient >= 0;
  }
  const std::size_t contributions = graph_.contributions.size();
  const std::size_t targets = graph_.leaf_targets.size();
  if (reached) {
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      const auto& input = graph_.values[graph_.links[node.inputs.first + i]];
      std::int32_t contribution = -1;
      if (input.wants_gradient && (node.passes >> i & 1U) != 0) {
        contribution = graph_.values[node.outputs.first].gradient;
        HALFSTEP_ASSERT(contribution >= 0);  // such an op has one output
        ++graph_.gradients[static_cast<std::size_t>(contribution)].owners;
      } else if (input.wants_gradient) {
        // What lies outside of a segment outlives its second run.
        const bool inside = graph_.links[node.inputs.first + i] >= replay_values_;
        contribution = new_gradient(input.bytes(), inside ? graph_.category : core::Category::activations);
      }
      graph_.contributions.push_back(contribution);
    }
    for (std::uint32_t i = 0; i < node.parameters.count; ++i) open_leaf(graph_.parameters[node.parameters.first + i]);
    graph_.workspace = graph_.arena.allocate(node.workspace_backward, core::Category::workspace);
    try {
      if (!dry()) {
        autograd::Backward backward(graph_, id, contributions, targets);
        node.op->backward(backward);
      }
    } catch (...) {
      graph_.arena.release(graph_.workspace);
      throw;
    }
    graph_.arena.release(graph_.workspace);
    flops_ += node.flops_backward;
  }
  // The outputs are used up: nothing before this node reads them.
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& value = graph_.values[node.outputs.first + i];
    if (value.gradient >= 0) release_gradient(value.gradient);
    value.gradient = -1;
    value.dropped = true;
    graph_.arena.release(value.data);
  }
  for (std::uint32_t i = 0; i < node.saved.count; ++i) graph_.arena.release(graph_.saved[node.saved.first + i].block);
  if (reached) {
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      const std::int32_t contribution = graph_.contributions[contributions + i];
      if (contribution >= 0) merge(graph_.links[node.inputs.first + i], contribution);
    }
  }
  for (std::uint32_t i = 0; i < node.parameters.count; ++i) {
    pass_leaf(graph_.parameters[node.parameters.first + i]);
  }
  graph_.contributions.resize(contributions);
  graph_.leaf_targets.resize(targets);
}

// A value's gradient is the sum of its consumers' contributions, each rounded to the value's format
// and then added in the order of the sweep, one rounding each.
inline void Tape::merge(std::uint32_t id, std::int32_t contribution) {
  auto& value = graph_.values[id];
  if (value.gradient < 0) {
    value.gradient = contribution;
    return;
  }
  const auto owners = [&](std::int32_t g) { return graph_.gradients[static_cast<std::size_t>(g)].owners; };
  const std::int32_t old = value.gradient;
  std::int32_t into = owners(old) == 1 ? old : contribution;
  if (owners(into) != 1) into = new_gradient(value.bytes(), id >= replay_values_ ? graph_.category : core::Category::activations);
  if (!dry()) {
    for (int plane = 0; plane < value.planes; ++plane) {
      const auto offset = plane * value.plane_bytes();
      add(value.dtype, value.shape.elements(), gradient_data(old) + offset, gradient_data(contribution) + offset,
          gradient_data(into) + offset);
    }
  }
  if (into != old) release_gradient(old);
  if (into != contribution) release_gradient(contribution);
  value.gradient = into;
}

// Decides where this node's contribution to a parameter's gradient goes. The only use writes straight
// to the sink; several are summed here first, since a leaf is finished within its micro-batch before
// it enters the tree over micro-batches.
inline void Tape::open_leaf(const autograd::ParameterRef& ref) {
  if (ref.table->info(ref.id).version != ref.version) {
    core::fail<StateError>("Tape::backward: parameter '", ref.table->info(ref.id).name, "' was at version ", ref.version,
                           " in the forward pass and is at ", ref.table->info(ref.id).version,
                           " now. Was it written (an optimizer step, a load) between the two?");
  }
  tensor::LeafTarget target;
  if (auto* const bound = binding(ref.table)) {
    auto& leaf = bound->leaves[ref.id.index];
    if (leaf.uses == 0) {
      core::fail<StateError>("Tape::backward: the sink of parameter '", ref.table->info(ref.id).name,
                             "' was attached after the ops that read it. Attach it before the forward pass.");
    }
    if (leaf.uses == 1) {
      if (!dry()) target = bound->sink->open(ref.id);
      leaf.opened = true;
    } else {
      target.accumulate = leaf.partial.bytes != 0;
      if (leaf.partial.bytes == 0) {
        const auto bytes = ref.table->info(ref.id).elements * ref.table->planes() *
                           static_cast<std::int64_t>(numeric::size_of(ref.table->gradient_dtype()));
        leaf.partial = graph_.arena.allocate(bytes, core::Category::gradients);
      }
      if (!dry()) target.data = graph_.arena.data(leaf.partial);
    }
  }
  graph_.leaf_targets.push_back(target);
}

// After a node's backward: once no node is left that reads the parameter, its leaf is finished.
inline void Tape::pass_leaf(const autograd::ParameterRef& ref) {
  auto* const bound = binding(ref.table);
  if (bound == nullptr) return;
  auto& leaf = bound->leaves[ref.id.index];
  if (leaf.pending == 0 || --leaf.pending > 0) return;
  if (leaf.partial.bytes != 0) {
    if (!dry()) {
      const tensor::LeafTarget target = bound->sink->open(ref.id);
      const auto elements = ref.table->info(ref.id).elements * ref.table->planes();
      const std::byte* partial = graph_.arena.data(leaf.partial);
      if (target.accumulate) {
        add(ref.table->gradient_dtype(), elements, target.data, partial, target.data);
      } else {
        std::memcpy(target.data, partial,
                    static_cast<std::size_t>(elements) * numeric::size_of(ref.table->gradient_dtype()));
      }
    }
    graph_.arena.release(leaf.partial);
    leaf.opened = true;
  }
  if (leaf.opened && !dry()) bound->sink->finish(ref.id);
}

inline void Tape::release_gradient(std::int32_t index) {
  auto& gradient = graph_.gradients[static_cast<std::size_t>(index)];
  if (--gradient.owners == 0) graph_.arena.release(gradient.block);
}

inline void Tape::add(numeric::DType dtype, std::int64_t elements, const void* x, const void* y, void* out) {
  const auto run = [&]<class S>(S*) {
    const auto n = static_cast<std::size_t>(elements);
    kernels::add<S>(graph_.compute, {static_cast<const S*>(x), n}, {static_cast<const S*>(y), n}, {static_cast<S*>(out), n});
  };
  switch (dtype) {
    case numeric::DType::f32: return run(static_cast<float*>(nullptr));
    case numeric::DType::f64: return run(static_cast<double*>(nullptr));
    case numeric::DType::bf16: return run(static_cast<bf16*>(nullptr));
    case numeric::DType::f16: return run(static_cast<fp16*>(nullptr));
    default: HALFSTEP_ASSERT(false);
  }
}

inline autograd::Segment& Tape::next_segment() {
  if (segments_used_ == segments_.size()) segments_.emplace_back();
  return segments_[segments_used_++];
}

inline constexpr autograd::Op segment_op{"segment", nullptr, nullptr, nullptr};

// Notes what the segment recorded, takes its output's memory over into one node, and forgets the rest.
// The uses of parameters stay counted: the second run's sweep passes them.
inline std::uint32_t Tape::fold_segment(const Mark& before, std::uint32_t output) {
  autograd::Segment& segment = segments_[segments_used_ - 1];
  for (std::size_t i = before.nodes; i < graph_.nodes.size(); ++i) {
    const auto& node = graph_.nodes[i];
    const auto& value = graph_.values[node.outputs.first];
    segment.ops.push_back({node.op, value.shape, value.dtype, node.parameters.count});
  }
  segment.output = output - before.values;
  segment.parameters.assign(graph_.parameters.begin() + static_cast<std::ptrdiff_t>(before.parameters), graph_.parameters.end());
  autograd::Value kept = graph_.values[output];
  graph_.values[output].data = {};
  rewind(before);
  kept.serial = ++graph_.serial;
  autograd::Node node;
  node.op = &segment_op;
  node.segment = static_cast<std::int32_t>(segments_used_ - 1);
  node.outputs = {static_cast<std::uint32_t>(graph_.values.size()), 1};
  graph_.values.push_back(kept);
  graph_.nodes.push_back(node);
  return node.outputs.first;
}

inline void Tape::sweep_segment(std::uint32_t id) {
  const std::uint32_t output = graph_.nodes[id].outputs.first;
  const autograd::Segment& segment = segments_[static_cast<std::size_t>(graph_.nodes[id].segment)];
  const std::int32_t gradient = std::exchange(graph_.values[output].gradient, -1);
  graph_.values[output].dropped = true;
  graph_.arena.release(graph_.values[output].data);
  if (gradient < 0) {  // nothing used the output: its parameters' uses have passed all the same
    for (const auto& ref : segment.parameters) {
      if (ref.counted) pass_leaf(ref);
    }
    return;
  }
  const Mark before = mark();
  struct Restore {
    Tape& tape;
    core::Category category;
    std::size_t values;
    ~Restore() {
      tape.graph_.replaying = false;
      tape.graph_.category = category;
      tape.replay_values_ = values;
    }
  } const restore{*this, std::exchange(graph_.category, core::Category::recompute),
                  std::exchange(replay_values_, before.values)};
  graph_.replaying = true;
  const std::uint32_t again = segment.run();
  graph_.replaying = false;
  verify_segment(segment, before, again);
  replayed_ops_ += static_cast<std::int64_t>(graph_.nodes.size() - before.nodes);
  graph_.values[again].gradient = gradient;
  sweep(static_cast<std::uint32_t>(before.nodes), static_cast<std::uint32_t>(graph_.nodes.size()));
  rewind(before);
}

inline void Tape::verify_segment(const autograd::Segment& segment, const Mark& before, std::uint32_t output) const {
  const std::size_t count = graph_.nodes.size() - before.nodes;
  for (std::size_t i = 0; i < std::max(count, segment.ops.size()); ++i) {
    const bool first = i < segment.ops.size(), second = i < count;
    const autograd::Node* const node = second ? &graph_.nodes[before.nodes + i] : nullptr;
    const autograd::Value* const value = second ? &graph_.values[node->outputs.first] : nullptr;
    if (first && second && segment.ops[i].op == node->op && segment.ops[i].shape == value->shape &&
        segment.ops[i].dtype == value->dtype && segment.ops[i].parameters == node->parameters.count) {
      continue;
    }
    const auto describe = [](bool there, const auto* op, const Shape& shape) {
      return there ? core::text("'", op->name, "' ", to_string(shape)) : std::string("nothing");
    };
    core::fail<StateError>("checkpoint: the second run differs from the first: op ", i, " was ",
                           describe(first, first ? segment.ops[i].op : nullptr, first ? segment.ops[i].shape : Shape{}),
                           " and is ", describe(second, second ? node->op : nullptr, second ? value->shape : Shape{}),
                           ". Does the callable depend on something that has changed since?");
  }
  for (std::size_t i = 0; i < segment.parameters.size(); ++i) {
    const auto& then = segment.parameters[i];
    const auto& now = graph_.parameters[before.parameters + i];
    if (then.table == now.table && then.id == now.id && then.version == now.version) continue;
    core::fail<StateError>("checkpoint: the second run reads parameter '", now.table->info(now.id).name, "' at version ",
                           now.version, ", the first read '", then.table->info(then.id).name, "' at version ", then.version,
                           ". Was it written (an optimizer step, a load) between forward and backward?");
  }
  if (output - before.values != segment.output) {
    core::fail<StateError>("checkpoint: the second run returns another variable than the first. Does the callable depend ",
                           "on something that has changed since?");
  }
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
  for (std::size_t i = to.values; i < graph_.values.size(); ++i) graph_.arena.release(graph_.values[i].data);
  for (std::size_t i = to.saved; i < graph_.saved.size(); ++i) graph_.arena.release(graph_.saved[i].block);
  graph_.nodes.resize(to.nodes), graph_.values.resize(to.values), graph_.links.resize(to.links);
  graph_.parameters.resize(to.parameters), graph_.saved.resize(to.saved), graph_.payloads.resize(to.payloads);
}

inline std::string_view Tape::producer(std::uint32_t value) const {
  for (const auto& node : graph_.nodes) {
    if (value >= node.outputs.first && value < node.outputs.first + node.outputs.count) return node.op->name;
  }
  return "?";
}

inline autograd::Binding* Tape::binding(const tensor::ParameterTable* table) {
  for (auto& bound : graph_.bindings) {
    if (bound.table == table) return &bound;
  }
  return nullptr;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
