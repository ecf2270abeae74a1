// SPDX-License-Identifier: MIT
// How the tape records a recompute segment, runs it again and holds the second run against the
// first: functions that autograd/tape.hpp declares. Included by it; not for inclusion by others.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/hash.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

inline constexpr autograd::Op segment_op{"segment", nullptr, nullptr, nullptr};

// Notes an op of a segment, and which ops before it the second run must compute: those whose values
// its backward reads, and itself if it saves something or reads its own outputs. Returns whether
// this run computes it.
inline bool Tape::log_op(std::uint32_t id, bool wants) {
  if (!frame_.running) return true;
  const autograd::Node& node = graph_.nodes[id];
  const std::size_t place = graph_.log.size();
  autograd::LoggedOp entry{node.op, {}, numeric::DType::f32, node.parameters.count, 0, 0};
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& value = graph_.values[node.outputs.first + i];
    value.maker = {static_cast<std::uint32_t>(place), i};
    if (i == 0) {
      entry.shape = value.shape;
      entry.dtype = value.dtype;
    } else {
      for (int d = 0; d < value.shape.rank(); ++d) {
        entry.others = tensor::hash_word(entry.others, static_cast<std::uint64_t>(value.shape[d]));
      }
      entry.others = tensor::hash_word(entry.others, static_cast<std::uint64_t>(value.dtype));
    }
  }
  graph_.log.push_back(entry);
  if (wants) {
    if (node.saved.count > 0 || node.reads_outputs != 0) frame_.needed = place + 1;
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      if (autograd::reads_input(node, i))
        mark_needed(graph_.values[graph_.links[node.inputs.first + i]]);
    }
  }
  return place < frame_.stop || frame_.hash_values;
}

// What is made again when it is read needs its inputs instead.
inline void Tape::mark_needed(const autograd::Value& value) {
  if (value.maker.op == autograd::Maker::outside) return;
  const autograd::Node& node = graph_.nodes[value.node];
  if (node.repeatable && node.inputs.count > 0 && !reads_own(value) &&
      keep_(node.op->name) == Keep::recompute) {
    for (std::uint32_t i = 0; i < node.inputs.count; ++i)
      mark_needed(graph_.values[graph_.links[node.inputs.first + i]]);
  } else {
    frame_.needed = std::max(frame_.needed, std::size_t{value.maker.op} + 1);
  }
}

inline void Tape::log_values(std::uint32_t id) {
  if (!frame_.hash_values || dry()) return;
  const autograd::Node& node = graph_.nodes[id];
  std::uint64_t& hash = graph_.log.back().values;
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    const auto& value = graph_.values[node.outputs.first + i];
    // Plane by plane: what lies between them is nobody's.
    const auto plane =
        static_cast<std::size_t>(value.shape.elements()) * numeric::size_of(value.dtype);
    for (int p = 0; p < value.planes; ++p) {
      hash = tensor::hash_bytes(hash,
                                {graph_.arena.data(value.data) + p * value.plane_bytes(), plane});
    }
  }
}

inline Tape::Entry Tape::enter_segment(bool hash_values) {
  settle();
  const Entry entry{mark(), frame_, given_.size()};
  frame_ = {};
  frame_.before = entry.before;
  frame_.running = true;
  frame_.forgetting = true;
  frame_.hash_values = hash_values || entry.outer.hash_values;
  frame_.stop = entry.outer.stop;
  return entry;
}

// Returns the segment to hold the callable in, or null where nothing will ask for a second run: in
// the first run of a segment around this one, and where no gradient is wanted.
inline autograd::Segment* Tape::leave_segment(const Entry& entry) {
  const std::span<std::uint32_t> ids = std::span(given_).subspan(entry.given);
  const bool wanted = std::any_of(ids.begin(), ids.end(), [&](std::uint32_t id) {
    return id >= entry.before.values && graph_.values[id].wants_gradient;
  });
  autograd::Segment* segment = nullptr;
  if (wanted && !entry.outer.forgetting) {
    if (segments_used_ == segments_.size()) segments_.emplace_back();
    segment = &segments_[segments_used_++];
    const auto first = entry.before.log;
    segment->ops.assign(graph_.log.begin() + static_cast<std::ptrdiff_t>(first), graph_.log.end());
    segment->hash_values = frame_.hash_values;
    const std::size_t needed = std::max({frame_.needed, frame_.read, first});
    segment->needed = static_cast<std::uint32_t>(needed - first);
    for (const std::uint32_t id : ids) {
      auto maker = graph_.values[id].maker;
      if (id < entry.before.values) {
        maker = {autograd::Maker::outside, id};
      } else {
        maker.op -= static_cast<std::uint32_t>(first);
      }
      segment->returned.push_back({maker, 0});
    }
  }
  const std::size_t read = frame_.read;
  const bool folded = fold(entry.before, ids,
                           segment == nullptr ? -1 : static_cast<std::int32_t>(segments_used_ - 1));
  frame_ = entry.outer;
  frame_.read = std::max(frame_.read, read);
  if (segment != nullptr) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (folded && ids[i] >= entry.before.values)
        segment->returned[i].output = ids[i] - static_cast<std::uint32_t>(entry.before.values);
    }
  }
  if (frame_.running) {
    // The second run of the segment around this one needs what this one will read.
    const auto& node = graph_.nodes.back();
    for (std::uint32_t i = 0; i < node.inputs.count; ++i) {
      const auto& maker = graph_.values[graph_.links[node.inputs.first + i]].maker;
      if (maker.op != autograd::Maker::outside)
        frame_.needed = std::max(frame_.needed, std::size_t{maker.op} + 1);
    }
  } else {
    for (auto i = entry.before.values; i < graph_.values.size(); ++i)
      graph_.values[i].maker = {};
    graph_.log.resize(entry.before.log);
  }
  return segment;
}

inline void Tape::abandon_segment(const Entry& entry) {
  frame_ = entry.outer;
  given_.resize(entry.given);
  if (!graph_.replaying) forget_uses(entry.before.parameters);
  rewind(entry.before);
}

// Makes one node of what was recorded since `before`: its outputs are the values `ids`, which
// become their new numbers, its inputs what was read from outside, its parameters all that were
// read. Values from outside among `ids` stay as they are.
inline bool Tape::fold(const Mark& before, std::span<std::uint32_t> ids, std::int32_t segment) {
  outside_.clear(), kept_.clear(), kept_ids_.clear();
  for (std::size_t i = before.links; i < graph_.links.size(); ++i) {
    if (graph_.links[i] < before.values) outside_.push_back(graph_.links[i]);
  }
  std::sort(outside_.begin(), outside_.end());
  outside_.erase(std::unique(outside_.begin(), outside_.end()), outside_.end());
  for (std::uint32_t& id : ids) {
    if (id < before.values) continue;
    const auto known = std::find(kept_ids_.begin(), kept_ids_.end(), id);
    const auto number = static_cast<std::uint32_t>(known - kept_ids_.begin());
    if (known == kept_ids_.end()) {
      kept_ids_.push_back(id);
      kept_.push_back(graph_.values[id]);
      graph_.values[id].data = {}, graph_.values[id].narrow = {};
    }
    id = static_cast<std::uint32_t>(before.values) + number;
  }
  // What was read of parameters stays noted, and counted: the second run's sweep passes it.
  Mark to = before;
  to.parameters = graph_.parameters.size();
  to.log = graph_.log.size();
  to.segments = segments_used_;
  rewind(to);
  autograd::Node node;
  node.op = &segment_op;
  node.segment = segment;
  node.reads_outputs = 0;
  node.inputs = {static_cast<std::uint32_t>(graph_.links.size()),
                 static_cast<std::uint32_t>(outside_.size())};
  node.outputs = {static_cast<std::uint32_t>(graph_.values.size()),
                  static_cast<std::uint32_t>(kept_.size())};
  node.parameters = {static_cast<std::uint32_t>(before.parameters),
                     static_cast<std::uint32_t>(graph_.parameters.size() - before.parameters)};
  node.saved.first = static_cast<std::uint32_t>(graph_.saved.size());
  node.payload = graph_.payloads.size();
  graph_.links.insert(graph_.links.end(), outside_.begin(), outside_.end());
  for (autograd::Value& value : kept_) {
    value.serial = ++graph_.serial;
    value.node = static_cast<std::uint32_t>(graph_.nodes.size());
    value.number = static_cast<std::uint32_t>(graph_.values.size() - before.values);
    value.readers = 0;
    value.pinned = false;
    graph_.values.push_back(value);
  }
  graph_.nodes.push_back(node);
  const bool swept = std::any_of(kept_.begin(), kept_.end(), [](const auto& value) { return value.wants_gradient; });
  if (swept) count_reads(static_cast<std::uint32_t>(graph_.nodes.size() - 1));
  return !kept_.empty();
}

inline void Tape::sweep_segment(std::uint32_t id) {
  const autograd::Node node = graph_.nodes[id];
  const autograd::Segment& segment = segments_[static_cast<std::size_t>(node.segment)];
  bool reached = false;
  for (std::uint32_t i = 0; i < node.outputs.count; ++i) {
    auto& value = graph_.values[node.outputs.first + i];
    reached = reached || value.gradient >= 0;
    value.dropped = true;
    graph_.arena.release(value.data);
    graph_.arena.release(value.narrow);
  }
  if (!reached) {
    for (std::uint32_t i = 0; i < node.parameters.count; ++i)
      pass_leaf(graph_.parameters[node.parameters.first + i]);
    uncount_reads(id, graph_.values.size(), true);
    return;
  }
  const Mark before = mark();
  const std::size_t given = given_.size();
  struct Restore {
    Tape& tape;
    core::Category category;
    std::size_t values;
    Frame frame;
    ~Restore() {
      tape.graph_.replaying = false;
      tape.graph_.category = category;
      tape.replay_values_ = values;
      tape.frame_ = frame;
    }
  } const restore{*this, std::exchange(graph_.category, core::Category::recompute),
                  std::exchange(replay_values_, before.values), frame_};
  frame_ = {};
  frame_.before = before;
  frame_.running = true;
  frame_.hash_values = segment.hash_values;
  frame_.stop = before.log + segment.needed;
  graph_.replaying = true;
  segment.run(*this);
  graph_.replaying = false;
  verify_segment(segment, node, before, std::span<const std::uint32_t>(given_).subspan(given));
  for (std::size_t i = 0; i < segment.returned.size(); ++i) {
    if (segment.returned[i].maker.op == autograd::Maker::outside) continue;
    auto& first = graph_.values[node.outputs.first + segment.returned[i].output];
    if (first.gradient >= 0)
      graph_.values[given_[given + i]].gradient = std::exchange(first.gradient, -1);
  }
  given_.resize(given);
  sweep(static_cast<std::uint32_t>(before.nodes), static_cast<std::uint32_t>(graph_.nodes.size()));
  rewind(before);
  uncount_reads(id, graph_.values.size(), true);
}

inline void Tape::verify_segment(const autograd::Segment& segment, const autograd::Node& node,
                                 const Mark& before, std::span<const std::uint32_t> given) const {
  constexpr std::string_view cause =
      ". Does the callable depend on something that has changed since?";
  const std::size_t count = graph_.log.size() - before.log;
  for (std::size_t i = 0; i < std::max(count, segment.ops.size()); ++i) {
    const autograd::LoggedOp* const then = i < segment.ops.size() ? &segment.ops[i] : nullptr;
    const autograd::LoggedOp* const now = i < count ? &graph_.log[before.log + i] : nullptr;
    const bool same = then != nullptr && now != nullptr && then->op == now->op &&
                      then->shape == now->shape && then->dtype == now->dtype &&
                      then->parameters == now->parameters && then->others == now->others;
    if (same && then->values != now->values) {
      core::fail<StateError>("checkpoint: op ", i, ", '", now->op->name, "' ",
                             to_string(now->shape),
                             ", computes other values the second time than the first", cause);
    }
    if (same) continue;
    const auto describe = [](const autograd::LoggedOp* op) {
      return op == nullptr ? std::string("nothing")
                           : core::text("'", op->op->name, "' ", to_string(op->shape), " in ",
                                        numeric::to_string(op->dtype));
    };
    core::fail<StateError>("checkpoint: the second run differs from the first: op ", i, " was ",
                           describe(then), " and is ", describe(now), cause);
  }
  for (std::uint32_t i = 0; i < node.parameters.count; ++i) {
    const auto& then = graph_.parameters[node.parameters.first + i];
    const auto& now = graph_.parameters[before.parameters + i];
    if (then.table == now.table && then.id == now.id && then.version == now.version) continue;
    core::fail<StateError>(
        "checkpoint: the second run reads parameter '", now.table->info(now.id).name,
        "' at version ", now.version, ", the first read '", then.table->info(then.id).name,
        "' at version ", then.version,
        ". Was it written (an optimizer step, a load) between forward and backward?");
  }
  bool same = given.size() == segment.returned.size();
  for (std::size_t i = 0; same && i < given.size(); ++i) {
    autograd::Maker maker{autograd::Maker::outside, given[i]};
    if (given[i] >= before.values) {
      maker = graph_.values[given[i]].maker;
      maker.op -= static_cast<std::uint32_t>(before.log);
    }
    same = maker == segment.returned[i].maker;
  }
  if (!same)
    core::fail<StateError>("checkpoint: the second run returns another variable than the first",
                           cause);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
