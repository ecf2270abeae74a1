// SPDX-License-Identifier: MIT
// What a pass holds in memory, tensor by tensor: what each is, how large, and why it is there; and
// which of them make the peak. Of dry passes, which cost nothing. Not for totals: core/ledger.hpp
// has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/shape.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd {

/// One block of a tape's memory.
struct LiveTensor {
  std::string what;  ///< "output of 'linear' [64, 384] BF16"
  std::string why;   ///< "read by the backward of 'gelu'"
  std::uint32_t node = 0;
  std::int64_t bytes = 0;  ///< of the account, a multiple of 64
  core::Category category = core::Category::activations;
};

}  // namespace autograd

/// Tensors that were live at one moment of a pass, whatever else was live, and what was going on.
struct MemoryReport {
  std::int64_t bytes = 0;  ///< live in all: the tensors' and what the account held besides
  core::Event event;
  std::vector<autograd::LiveTensor> tensors;

  /// A table, the largest first; at most `rows` of it.
  [[nodiscard]] std::string text(std::size_t rows = 20) const {
    std::string out = core::text(bytes, " bytes, ", core::to_string(event.phase));
    if (!event.op.empty()) out += core::text(" of '", event.op, "', node ", event.node);
    out += '\n';
    auto sorted = tensors;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    for (std::size_t i = 0; i < std::min(rows, sorted.size()); ++i) {
      const auto& t = sorted[i];
      out += core::text("  ", t.bytes, "  ", core::to_string(t.category), "  node ", t.node, ": ",
                        t.what, ", ", t.why, '\n');
    }
    if (sorted.size() > rows) out += core::text("  and ", sorted.size() - rows, " smaller ones\n");
    return out;
  }
};

inline std::vector<autograd::LiveTensor> Tape::live_tensors() const {
  std::vector<autograd::LiveTensor> out;
  std::int64_t listed = 0;
  const auto add = [&](std::string what, std::string why, std::size_t node,
                       const tensor::Block& block) {
    if (block.bytes == 0) return;
    listed += block.bytes;
    out.push_back({std::move(what), std::move(why), static_cast<std::uint32_t>(node), block.bytes,
                   block.category});
  };
  const auto describe = [&](const autograd::Value& value) {
    return core::text(to_string(value.shape), ' ', numeric::to_string(value.dtype));
  };
  // Who reads each value in the backward pass, the first of them.
  std::vector<std::string> why(graph_.values.size(), "freed when its op is swept");
  for (auto n = graph_.nodes.size(); n-- > 0;) {
    const auto& node = graph_.nodes[n];
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      const auto id = graph_.links[node.inputs.first + i];
      if (node.segment >= 0) why[id] = "input of a segment that runs again";
      if (node.op != &segment_op && autograd::reads_input(node, i))
        why[id] = core::text("read by the backward of '", node.op->name, "'");
    }
  }
  for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
    const auto& node = graph_.nodes[n];
    for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
      const auto id = node.outputs.first + i;
      const auto& value = graph_.values[id];
      const bool own = node.op != &segment_op && (node.reads_outputs >> i & 1U) != 0;
      add(core::text("output of '", node.op->name, "' ", describe(value)),
          own ? core::text("read by the backward of '", node.op->name, "'") : why[id], n,
          value.data);
      add(core::text("output of '", node.op->name, "' ", describe(value), ", in bf16"), why[id], n,
          value.narrow);
      if (value.gradient >= 0) {
        const auto& gradient = graph_.gradients[static_cast<std::size_t>(value.gradient)];
        // One block may be the gradient of several values: it is listed with the last of them.
        const bool again = std::any_of(
            graph_.values.begin() + static_cast<std::ptrdiff_t>(id) + 1, graph_.values.end(),
            [&](const auto& other) { return other.gradient == value.gradient; });
        if (!again)
          add(core::text("gradient of the output of '", node.op->name, "' ", describe(value)),
              "on its way back", n, gradient.block);
      }
    }
    for (std::uint32_t i = 0; i < node.saved.count; ++i) {
      add(core::text("saved by '", node.op->name, "'"),
          core::text("read by the backward of '", node.op->name, "'"), n,
          graph_.saved[node.saved.first + i].block);
    }
  }
  for (const auto& binding : graph_.bindings) {
    for (std::size_t p = 0; p < binding.leaves.size(); ++p) {
      add(core::text("gradient of parameter '",
                     binding.table->info({static_cast<std::uint32_t>(p)}).name, "'"),
          "the sum of the uses so far; others are to come", 0, binding.leaves[p].partial);
    }
  }
  // What the op that is running has taken and not handed over yet.
  const std::int64_t rest = graph_.arena.live() - listed;
  if (rest > 0) {
    out.push_back({core::text("taken by '", ledger().event().op, "'"),
                   "it is running: new gradients and workspace", ledger().event().node, rest,
                   core::Category::workspace});
  }
  return out;
}

/// What the pass holds when it is about to sweep: run `pass(tape)` up to the loss, without
/// backward.
template <class Pass>
[[nodiscard]] MemoryReport report_kept(Runtime& runtime, const MicroBatch& micro, const Pass& pass,
                                       KeepPolicy keep = keep_default) {
  Tape tape(runtime, Tape::Mode::dry);
  tape.keep(keep);
  tape.begin(micro);
  static_cast<void>(pass(tape));
  tape.settle();
  return {tape.ledger().live(), {}, tape.live_tensors()};
}

/// What makes the peak of a pass, forward and backward from the Loss that `pass(tape)` returns.
/// Runs it twice on a dry tape: once to know the peak, once to stop at it. The peak is that of the
/// real pass, in bytes above what lives longer.
template <class Pass>
[[nodiscard]] MemoryReport report_peak(Runtime& runtime, const MicroBatch& micro, const Pass& pass,
                                       KeepPolicy keep = keep_default) {
  Tape tape(runtime, Tape::Mode::dry);
  tape.keep(keep);
  const auto run = [&] {
    tape.begin(micro);
    tape.backward(pass(tape));
  };
  run();
  MemoryReport report{tape.ledger().peak(), tape.ledger().peak_event(), {}};
  struct Watch {
    const Tape& tape;
    MemoryReport& report;
  } watch{tape, report};
  tape.ledger().notify_at(
      report.bytes,
      [](void* context) {
        auto& at = *static_cast<Watch*>(context);
        at.report.tensors = at.tape.live_tensors();
      },
      &watch);
  run();
  return report;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
