// SPDX-License-Identifier: MIT
// How the tape sweeps back over its nodes, and what becomes of their gradients: functions that
// autograd/tape.hpp declares. Included by it; not for inclusion by others.
#pragma once

#include <cstring>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

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
    const auto held = hold(node.parameters, node.reads_parameters);
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

}  // namespace halfstep::inline HALFSTEP_CONFIG
