// SPDX-License-Identifier: MIT
// How the tape records a node and how it sweeps back: the functions that autograd/tape.hpp
// declares. Included by it; not for inclusion by others.
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

// Those parameters of a node that a pass over it reads, held in their stores until destroyed: so a
// store sees one hold of each, whatever the op does, and in a dry run the same ones.
class Tape::Held {
 public:
  Held(const Tape& tape, autograd::Range parameters, std::uint32_t which)
      : Held(tape, parameters.first, which) {  // from here on it is destroyed if a store throws
    for (const auto end = first_ + parameters.count; end_ < end; ++end_) {
      if (auto* const store = store_of(end_)) store->hold(tape_.graph_.parameters[end_].id);
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    while (end_-- > first_) {
      if (auto* const store = store_of(end_)) store->release(tape_.graph_.parameters[end_].id);
    }
  }

 private:
  Held(const Tape& tape, std::uint32_t first, std::uint32_t which)
      : tape_(tape), first_(first), end_(first), which_(which) {}
  [[nodiscard]] tensor::AnyStore* store_of(std::uint32_t i) const {
    if (!autograd::reads_parameter(which_, i - first_)) return nullptr;
    return tape_.dry() ? tape_.dry_store_ : &tape_.graph_.parameters[i].table->store();
  }

  const Tape& tape_;
  std::uint32_t first_, end_, which_;  // in the graph's parameters; bit i: the node's parameter i
};

inline void Tape::run_kernel(std::uint32_t id) {
  const autograd::Node& node = graph_.nodes[id];
  const Held held(*this, node.parameters, ~0U);
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

inline void Tape::sweep(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t id = last; id-- > first;)
    sweep_node(id);
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
  ledger().set_event({core::Event::Phase::backward, node.op->name, id});
  if (reached) {
    // Held while inputs are made again, too: of another layer's weights, perhaps.
    const Held held(*this, node.parameters, node.reads_parameters);
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      if (autograd::reads_input(node, i)) make_again(graph_.links[node.inputs.first + i]);
    }
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
        contribution =
            new_gradient(input.bytes(), inside ? graph_.category : core::Category::activations);
      }
      graph_.contributions.push_back(contribution);
    }
    for (std::uint32_t i = 0; i < node.parameters.count; ++i)
      open_leaf(graph_.parameters[node.parameters.first + i]);
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
    graph_.arena.release(value.narrow);
  }
  uncount_reads(id, graph_.values.size(), true);
  for (std::uint32_t i = 0; i < node.saved.count; ++i)
    graph_.arena.release(graph_.saved[node.saved.first + i].block);
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
  ledger().set_event({});
}

// A value's gradient is the sum of its consumers' contributions, each rounded to the value's format
// and then added in the order of the sweep, one rounding each.
inline void Tape::merge(std::uint32_t id, std::int32_t contribution) {
  auto& value = graph_.values[id];
  if (value.gradient < 0) {
    value.gradient = contribution;
    return;
  }
  const auto owners = [&](std::int32_t g) {
    return graph_.gradients[static_cast<std::size_t>(g)].owners;
  };
  const std::int32_t old = value.gradient;
  std::int32_t into = owners(old) == 1 ? old : contribution;
  if (owners(into) != 1)
    into = new_gradient(value.bytes(),
                        id >= replay_values_ ? graph_.category : core::Category::activations);
  if (!dry()) {
    for (int plane = 0; plane < value.planes; ++plane) {
      const auto offset = plane * value.plane_bytes();
      add(value.dtype, value.shape.elements(), gradient_data(old) + offset,
          gradient_data(contribution) + offset, gradient_data(into) + offset);
    }
  }
  if (into != old) release_gradient(old);
  if (into != contribution) release_gradient(contribution);
  value.gradient = into;
}

inline void Tape::require_version(const autograd::ParameterRef& ref) {
  if (ref.table->info(ref.id).version != ref.version) {
    core::fail<StateError>("Tape::backward: parameter '", ref.table->info(ref.id).name,
                           "' was at version ", ref.version, " in the forward pass and is at ",
                           ref.table->info(ref.id).version,
                           " now. Was it written (an optimizer step, a load) between the two?");
  }
}

// Decides where this node's contribution to a parameter's gradient goes. The only use writes
// straight to the sink; several are summed here first, since a leaf is finished within its
// micro-batch before it enters the tree over micro-batches.
inline void Tape::open_leaf(const autograd::ParameterRef& ref) {
  require_version(ref);
  tensor::LeafTarget target;
  if (auto* const bound = binding(ref.table)) {
    auto& leaf = bound->leaves[ref.id.index];
    if (leaf.uses == 0) {
      core::fail<StateError>(
          "Tape::backward: the sink of parameter '", ref.table->info(ref.id).name,
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
        std::memcpy(
            target.data, partial,
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

inline void Tape::add(numeric::DType dtype, std::int64_t elements, const void* x, const void* y,
                      void* out) {
  const auto run = [&]<class S>(S*) {
    const auto n = static_cast<std::size_t>(elements);
    kernels::add<S>(graph_.compute, {static_cast<const S*>(x), n}, {static_cast<const S*>(y), n},
                    {static_cast<S*>(out), n});
  };
  switch (dtype) {
    case numeric::DType::f32:
      return run(static_cast<float*>(nullptr));
    case numeric::DType::f64:
      return run(static_cast<double*>(nullptr));
    case numeric::DType::bf16:
      return run(static_cast<bf16*>(nullptr));
    case numeric::DType::f16:
      return run(static_cast<fp16*>(nullptr));
    default:
      HALFSTEP_ASSERT(false);
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
