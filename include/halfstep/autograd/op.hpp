// SPDX-License-Identifier: MIT
// What an op is: a table of three functions, and what each of them is handed. The library's ops and
// a user's own are written against this page alone. A recipe is in include/halfstep/README.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include <halfstep/autograd/graph.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

class Infer;
class Forward;
class Backward;

/// An op, one constant per op and element type.
///
///   infer     checks shapes, declares outputs, saved buffers, workspace, FLOPs; touches no data.
///             A tape in dry mode calls nothing else.
///   forward   writes every output and saved buffer from inputs and parameters.
///   backward  writes (never adds to) the gradient of each input that wants one; writes, or adds to
///             where told so, the gradient of each parameter that wants one.
struct Op {
  std::string_view name;
  void (*infer)(Infer&);
  void (*forward)(Forward&);
  void (*backward)(Backward&);
};

/// What the three contexts share: the node's inputs, parameters and payload.
class Context {
 public:
  Context(Graph& graph, std::uint32_t node) : graph_(graph), node_(node) {}

  [[nodiscard]] std::string_view op_name() const { return node().op->name; }
  [[nodiscard]] std::size_t inputs() const { return node().inputs.count; }
  [[nodiscard]] Shape input_shape(std::size_t i) const { return value(node().inputs, i).shape; }
  [[nodiscard]] Shape output_shape(std::size_t i = 0) const { return value_of_output(i).shape; }
  [[nodiscard]] std::size_t parameters() const { return node().parameters.count; }
  [[nodiscard]] const tensor::ParameterInfo& parameter_info(std::size_t i) const {
    const auto& ref = parameter_ref(i);
    return ref.table->info(ref.id);
  }
  /// The constants that the op was recorded with: the P that was passed to `Tape::record`.
  template <class P>
  [[nodiscard]] const P& payload() const {
    return *reinterpret_cast<const P*>(graph_.payloads.data() + node().payload);
  }
  [[nodiscard]] const core::Compute& compute() const { return graph_.compute; }
  /// The micro-batch that the tape began with: its first sample keys random draws.
  [[nodiscard]] const MicroBatch& micro() const { return graph_.micro; }
  /// Whether backward may be called: false where nothing is recorded or nothing wants a gradient.
  [[nodiscard]] bool wants_gradient() const { return node().wants_gradient; }
  /// Of it, whether backward follows this run of forward. Not in a segment's first run, which is
  /// forgotten: what is saved there is scratch memory, and infer declares it as in the second.
  [[nodiscard]] bool keeps_saved() const { return node().keeps_saved; }
  [[nodiscard]] bool input_wants_gradient(std::size_t i) const {
    return value(node().inputs, i).wants_gradient;
  }
  /// Whether a sink takes parameter i's gradient, as every one does in a dry run.
  [[nodiscard]] bool parameter_wants_gradient(std::size_t i) const {
    const auto& bindings = graph_.bindings;
    return std::any_of(bindings.begin(), bindings.end(),
                       [&](const Binding& b) { return b.table == parameter_ref(i).table; });
  }
  /// True while a segment runs again in the backward pass.
  [[nodiscard]] bool is_replay() const { return graph_.replaying; }

 protected:
  [[nodiscard]] Node& node() const { return graph_.nodes[node_]; }
  [[nodiscard]] Value& value(Range range, std::size_t i) const {
    return graph_.values[graph_.links[range.first + i]];
  }
  [[nodiscard]] Value& value_of_output(std::size_t i) const {
    return graph_.values[node().outputs.first + i];
  }
  [[nodiscard]] const ParameterRef& parameter_ref(std::size_t i) const {
    return graph_.parameters[node().parameters.first + i];
  }
  /// The data of plane `plane` of a value, as S.
  template <class S>
  [[nodiscard]] S* data(const Value& v, const tensor::Block& block, int plane) const {
    if (block.bytes == 0 && v.shape.elements() != 0) {
      core::fail<StateError>(
          op_name(),
          ": backward reads the values of an input or output that infer does not declare by ",
          "backward_reads");
    }
    HALFSTEP_ASSERT(v.dtype == numeric::dtype_of<std::remove_const_t<S>> && plane < v.planes);
    return reinterpret_cast<S*>(graph_.arena.data(block) + plane * v.plane_bytes());
  }

  Graph& graph_;
  std::uint32_t node_;
};

/// Handed to `infer`.
class Infer : public Context {
 public:
  using Context::Context;

  /// Declares the next output, of element type T.
  template <class T>
  void output(const Shape& shape) {
    graph_.add_output(node_, shape, numeric::dtype_of<numeric::plane_t<T>>, numeric::planes<T>);
  }
  /// Gives each output declared so far a second plane, of tangents (autograd/dual_op.hpp).
  void add_tangents() {
    for (std::uint32_t i = 0; i < node().outputs.count; ++i)
      value_of_output(i).planes = 2;
  }
  /// Declares a buffer of `count` elements of S that forward writes and backward reads.
  template <class S>
  void save(std::int64_t count) {
    graph_.add_saved(node_, count * static_cast<std::int64_t>(sizeof(S)));
  }
  /// Declares scratch memory, in bytes, for the length of one call.
  void workspace(std::int64_t forward_bytes, std::int64_t backward_bytes) {
    node().workspace_forward = forward_bytes;
    node().workspace_backward = backward_bytes;
  }
  /// What has been declared of it.
  [[nodiscard]] std::int64_t workspace_forward() const { return node().workspace_forward; }
  [[nodiscard]] std::int64_t workspace_backward() const { return node().workspace_backward; }
  [[nodiscard]] double flops_forward() const { return node().flops_forward; }
  [[nodiscard]] double flops_backward() const { return node().flops_backward; }
  /// Declares useful floating-point operations: a product and a sum are two.
  void flops(double forward, double backward) {
    node().flops_forward = forward;
    node().flops_backward = backward;
  }
  /// Declares that the gradient of input i is the gradient of the op's only output itself: nothing
  /// is copied and backward has nothing to write for it.
  void passes_gradient(std::size_t i) { node().passes |= std::uint32_t{1} << i; }
  /// Declares that forward may run again at any time before backward, with the same result: it
  /// depends on inputs, parameters and constants that the payload holds itself, not on memory it
  /// points to. Its outputs need not be kept then (autograd/keep.hpp).
  void repeatable() { node().repeatable = true; }
  /// Declares whose values backward reads, by number; without it, those of every input and output.
  /// What no backward reads is not computed again in a segment's second run, and backward fails
  /// where it reads more than is declared.
  void backward_reads(std::initializer_list<std::size_t> inputs,
                      std::initializer_list<std::size_t> outputs) {
    node().reads_inputs = bits(inputs);
    node().reads_outputs = bits(outputs);
  }
  /// Declares which parameters' values backward reads, by number; without it, all. Where weights
  /// are sharded the others are not brought here for it. Backward fails where it reads more.
  void backward_reads_parameters(std::initializer_list<std::size_t> parameters) {
    node().reads_parameters = bits(parameters);
  }

 private:
  [[nodiscard]] static std::uint32_t bits(std::initializer_list<std::size_t> numbers) {
    std::uint32_t mask = 0;
    for (const std::size_t i : numbers)
      mask |= std::uint32_t{1} << i;
    return mask;
  }
};

/// Handed to `forward`.
class Forward : public Context {
 public:
  using Context::Context;

  template <class S>
  [[nodiscard]] const S* input(std::size_t i, int plane = 0) const {
    const Value& v = value(node().inputs, i);
    return data<const S>(v, v.data, plane);
  }
  template <class S>
  [[nodiscard]] S* output(std::size_t i = 0, int plane = 0) const {
    const Value& v = value_of_output(i);
    return data<S>(v, v.data, plane);
  }
  template <class S>
  [[nodiscard]] S* saved(std::size_t i) const {
    return reinterpret_cast<S*>(graph_.arena.data(graph_.saved[node().saved.first + i].block));
  }
  /// A parameter's values, acquired until the result is destroyed; of a dual all values, then all
  /// tangents.
  template <class T>
  [[nodiscard]] tensor::Acquired<numeric::plane_t<T>> parameter(std::size_t i) const {
    const auto& ref = parameter_ref(i);
    return {static_cast<tensor::StoredTable<numeric::plane_t<T>>*>(ref.table)->store(), ref.id};
  }
  [[nodiscard]] std::span<std::byte> workspace() const {
    return {graph_.workspace_data(), static_cast<std::size_t>(graph_.workspace.bytes)};
  }
};

/// Where backward puts a gradient: nothing if data is null, added to if `accumulate`.
template <class S>
struct GradientTarget {
  S* data = nullptr;
  bool accumulate = false;
  explicit operator bool() const { return data != nullptr; }
};

/// Handed to `backward`. Values of inputs and outputs are as forward left them.
class Backward : public Forward {
 public:
  /// The two numbers say where this node's entries start: sweeps nest when a segment runs again.
  Backward(Graph& graph, std::uint32_t node, std::size_t contributions, std::size_t leaf_targets)
      : Forward(graph, node), contributions_(contributions), leaf_targets_(leaf_targets) {}

  /// The gradient of the loss with respect to an output, scaled by the step's seed. Null for an
  /// output that nothing used (of an op with several).
  template <class S>
  [[nodiscard]] const S* output_gradient(std::size_t i = 0, int plane = 0) const {
    const Value& v = value_of_output(i);
    return v.gradient < 0
               ? nullptr
               : data<const S>(v, graph_.gradients[static_cast<std::size_t>(v.gradient)].block,
                               plane);
  }
  /// Where to write the contribution to an input's gradient; null if it wants none. Each call for
  /// the same i returns the same place.
  template <class S>
  [[nodiscard]] S* input_gradient(std::size_t i, int plane = 0) const {
    const auto gradient = graph_.contributions[contributions_ + i];
    return gradient < 0 || (node().passes >> i & 1U) != 0
               ? nullptr
               : data<S>(value(node().inputs, i),
                         graph_.gradients[static_cast<std::size_t>(gradient)].block, plane);
  }
  /// A parameter's values, of those that infer declares.
  template <class T>
  [[nodiscard]] tensor::Acquired<numeric::plane_t<T>> parameter(std::size_t i) const {
    if (!reads_parameter(node().reads_parameters, i)) {
      core::fail<StateError>(op_name(), ": backward reads parameter '", parameter_info(i).name,
                             "', which infer does not declare by backward_reads_parameters");
    }
    return Forward::parameter<T>(i);
  }
  /// Where to write a parameter's gradient, of its store's gradient type G (float; double for
  /// double).
  template <class G>
  [[nodiscard]] GradientTarget<G> parameter_gradient(std::size_t i, int plane = 0) const {
    const tensor::LeafTarget target = graph_.leaf_targets[leaf_targets_ + i];
    G* const first = static_cast<G*>(target.data);
    return {first == nullptr ? first : first + plane * parameter_info(i).elements,
            target.accumulate};
  }
  /// Whether this sweep is one for a Gauss-Newton product (autograd/dual_op.hpp).
  [[nodiscard]] bool gauss_newton() const { return graph_.gauss_newton; }

 private:
  std::size_t contributions_, leaf_targets_;
};

/// The payload of an op without constants.
struct NoPayload {};

/// The tape of an op's first input. @throws StateError if the variable is on none.
template <class T>
[[nodiscard]] Tape& tape_of(const Variable<T>& x, std::string_view op) {
  if (x.tape == nullptr)
    core::fail<StateError>(op, ": the variable is on no tape. Was it default-constructed?");
  return *x.tape;
}

/// @throws ShapeError unless inputs 0 and 1 have one shape.
inline void require_equal_shapes(const Infer& c) {
  if (c.input_shape(0) == c.input_shape(1)) return;
  core::fail<ShapeError>(c.op_name(), ": shapes ", to_string(c.input_shape(0)), " and ",
                         to_string(c.input_shape(1)), " differ. Nothing is broadcast.");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
