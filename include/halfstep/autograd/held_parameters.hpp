// SPDX-License-Identifier: MIT
// The parameters that a pass over a node reads, held in their stores while it runs. Not for reading
// them: the contexts of autograd/op.hpp do.
#pragma once

#include <cstdint>
#include <optional>

#include <halfstep/autograd/graph.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

/// Holds those parameters of `range` whose bit is set in `which`, bit 0 for its first, until it is
/// destroyed: so a store sees one hold of each, whatever the op does, and a dry run the same ones.
class HeldParameters {
 public:
  /// Holds in `instead`, if given; null: holds nothing, as a dry run does. Not given: in each
  /// parameter's own store.
  HeldParameters(const Graph& graph, Range range, std::uint32_t which,
                 std::optional<tensor::AnyStore*> instead)
      : HeldParameters(graph, range.first, which, instead) {
    // From here on it is destroyed if a store throws.
    for (const auto end = first_ + range.count; end_ < end; ++end_) {
      if (auto* const store = store_of(end_)) store->hold(graph_.parameters[end_].id);
    }
  }
  HeldParameters(const HeldParameters&) = delete;
  HeldParameters& operator=(const HeldParameters&) = delete;
  ~HeldParameters() {
    while (end_-- > first_) {
      if (auto* const store = store_of(end_)) store->release(graph_.parameters[end_].id);
    }
  }

 private:
  HeldParameters(const Graph& graph, std::uint32_t first, std::uint32_t which,
                 std::optional<tensor::AnyStore*> instead)
      : graph_(graph), first_(first), end_(first), which_(which), instead_(instead) {}
  [[nodiscard]] tensor::AnyStore* store_of(std::uint32_t i) const {
    if (!reads_parameter(which_, i - first_)) return nullptr;
    return instead_ ? *instead_ : &graph_.parameters[i].table->store();
  }

  const Graph& graph_;
  std::uint32_t first_, end_, which_;
  std::optional<tensor::AnyStore*> instead_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
