// SPDX-License-Identifier: MIT
// What a tape has recorded: nodes, values, saved buffers and leaves as append-only arrays with
// 32-bit indices, their bytes in an arena. Filled by Tape, read by the contexts of autograd/op.hpp;
// not a part of the user's interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/sink.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

struct Op;

/// A run of entries in one of the arrays.
struct Range {
  std::uint32_t first = 0, count = 0;
};

/// The op that made a value, by its place in the log of a segment that is running, and which of its
/// outputs the value is.
struct Maker {
  static constexpr std::uint32_t outside = 0xFFFF'FFFF;  ///< of any segment
  std::uint32_t op = outside, output = 0;
  friend bool operator==(const Maker&, const Maker&) = default;
};

/// A tensor: an output of a node.
struct Value {
  Shape shape;
  numeric::DType dtype = numeric::DType::f32;
  int planes = 1;
  bool wants_gradient = false;
  bool lacks_tangents = false;  ///< one plane, made of values of two: a loss of duals
  bool dropped = false;         ///< the sweep has passed its node
  std::uint32_t serial = 0;     ///< the generation of handles to it
  std::int32_t gradient = -1;   ///< in `gradients`, or none yet
  Maker maker;
  std::uint32_t node = 0, number = 0;  ///< whose output it is, and which
  std::uint32_t readers = 0;           ///< backward passes to come that read its values
  std::uint32_t depth = 0;             ///< ops that run again to make it again, one after the other
  bool pinned = false;                 ///< the user has read it, or a segment returns it: stays
  bool between = false;                ///< two layers of a chain: stays until it has been read
  bool away = false;                   ///< forgotten, to be made again
  tensor::Block data;
  tensor::Block narrow;  ///< its values in bf16, while they are kept so

  /// Planes start on a cache line each.
  [[nodiscard]] std::int64_t plane_bytes() const {
    const auto bytes = shape.elements() * static_cast<std::int64_t>(numeric::size_of(dtype));
    return planes == 1 ? bytes
                       : (bytes + tensor::Arena::alignment - 1) / tensor::Arena::alignment *
                             tensor::Arena::alignment;
  }
  [[nodiscard]] std::int64_t bytes() const { return plane_bytes() * planes; }
};

struct Node {
  const Op* op = nullptr;
  Range inputs;      ///< in `links`
  Range outputs;     ///< in `values`
  Range parameters;  ///< in `parameters`
  Range saved;       ///< in `saved`
  std::size_t payload = 0;
  std::int32_t segment =
      -1;  ///< the recompute segment that this node stands for and that runs again
  std::uint32_t passes = 0;  ///< bit i: input i's gradient is output 0's
  std::uint32_t reads_inputs = ~0U, reads_outputs = ~0U;  ///< bit i: backward reads its values
  std::uint32_t reads_parameters = ~0U;                   ///< as above
  bool wants_gradient = false;                            ///< backward may be called
  bool keeps_saved = false;  ///< what forward saves is there for backward
  bool repeatable = false;   ///< forward may run again, whenever
  bool counted = false;      ///< among the readers of its inputs
  bool holds = false;        ///< once more, since its own outputs will be made again
  std::int64_t workspace_forward = 0, workspace_backward = 0;
  double flops_forward = 0.0, flops_backward = 0.0;
};

/// Whether the backward of `node` reads the values of its input i. A segment's second run reads
/// all.
[[nodiscard]] inline bool reads_input(const Node& node, std::uint32_t i) {
  return node.reads_inputs == ~0U || (node.reads_inputs >> i & 1U) != 0;
}

/// Whether `which`, such as Node::reads_parameters, names a node's parameter i.
[[nodiscard]] inline bool reads_parameter(std::uint32_t which, std::size_t i) {
  return which == ~0U || (i < 32 && (which >> i & 1U) != 0);
}

struct ParameterRef {
  tensor::ParameterTable* table = nullptr;
  ParameterId id;
  std::uint32_t version = 0;  ///< when it was read
  bool counted = false;       ///< as one of its leaf's uses
};

/// A buffer that forward leaves for backward.
struct Saved {
  std::int64_t bytes = 0;  ///< as declared
  tensor::Block block;     ///< empty until the arena gave it, and again once it was used
};

/// A gradient of a value. Shared by several values where an op passes it on unchanged; then nobody
/// adds to it in place.
struct Gradient {
  tensor::Block block;
  std::uint32_t owners = 0;
};

/// The gradient of one parameter within a micro-batch.
struct Leaf {
  std::uint32_t uses = 0;     ///< nodes that read it
  std::uint32_t pending = 0;  ///< of which the sweep has not passed
  bool opened = false;
  tensor::Block partial;  ///< the sum of the uses so far, where there are several
};

/// The parameters of one store on this tape, and where their gradients go.
struct Binding {
  tensor::ParameterTable* table = nullptr;
  tensor::Sink* sink = nullptr;  ///< null in a dry run
  std::vector<Leaf> leaves;
};

/// What is noted of an op that runs inside of a segment, to hold its second run against.
struct LoggedOp {
  const Op* op = nullptr;
  Shape shape;  ///< of output 0
  numeric::DType dtype = numeric::DType::f32;
  std::uint32_t parameters = 0;
  std::uint64_t others = 0;  ///< a hash of further outputs' shapes and formats
  std::uint64_t values = 0;  ///< a hash of all outputs' bytes, where the segment asks for it
};

class Graph {
 public:
  Graph(const core::Compute& how, core::Ledger& ledger, tensor::Arena::Kind kind)
      : compute(how), arena(ledger, kind) {}

  void clear() {
    nodes.clear(), values.clear(), links.clear(), parameters.clear(), saved.clear(),
        payloads.clear();
    gradients.clear(), contributions.clear(), leaf_targets.clear(), log.clear();
    workspace = {};
    replaying = false;
    category = core::Category::activations;
    arena.clear();
  }

  void add_output(std::uint32_t node, const Shape& shape, numeric::DType dtype, int planes) {
    Value value;
    value.shape = shape;
    value.dtype = dtype;
    value.planes = planes;
    value.serial = ++serial;
    value.node = node;
    value.number = nodes[node].outputs.count;
    values.push_back(value);
    ++nodes[node].outputs.count;
  }
  void add_saved(std::uint32_t node, std::int64_t bytes) {
    saved.push_back({bytes, {}});
    ++nodes[node].saved.count;
  }
  [[nodiscard]] std::byte* workspace_data() const {
    return workspace.bytes == 0 ? nullptr : arena.data(workspace);
  }

  core::Compute compute;
  MicroBatch micro;
  bool replaying = false;
  /// Losses start the sweep from their Hessian times the output's tangents.
  bool gauss_newton = false;
  std::uint32_t serial = 0;
  core::Category category = core::Category::activations;

  std::vector<Node> nodes;
  std::vector<Value> values;
  std::vector<std::uint32_t> links;
  std::vector<ParameterRef> parameters;
  std::vector<Saved> saved;
  std::vector<std::byte> payloads;
  std::vector<Gradient> gradients;
  std::vector<LoggedOp> log;  ///< of the segments that are running, the outermost first
  std::vector<Binding> bindings;

  tensor::Block workspace;  ///< of the call that is running
  /// Of the nodes in the sweep: per input, in `gradients`.
  std::vector<std::int32_t> contributions;
  std::vector<tensor::LeafTarget> leaf_targets;  ///< of the nodes in the sweep: per parameter

  tensor::Arena arena;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
