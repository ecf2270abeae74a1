// SPDX-License-Identifier: MIT
// The units in which ZeRO 3 gathers parameters, the rule by which they come and go, and a dry run
// that counts what a micro-batch gathers by it. Not for: the bytes (zero3.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// A unit is a run of parameters of one tensor::unit_name: a block of a model, whole, or a layer
/// outside of blocks. It comes when one of its parameters is acquired and stays, once nobody uses
/// it, until another unit has to come. So a block is gathered once for its forward pass, and once
/// for its second run in a recompute segment and its backward pass together.
class Units {
 public:
  explicit Units(const tensor::ParameterTable& parameters) {
    std::string_view last;
    for (const auto& info : parameters.infos()) {
      const std::string_view name = tensor::unit_name(info);
      if (units_.empty() || name != last) units_.push_back({{info.offset, info.offset}, 0, false});
      last = name;
      units_.back().elements.end = info.offset + info.elements;
      unit_of_.push_back(units_.size() - 1);
    }
  }

  [[nodiscard]] std::size_t size() const { return units_.size(); }
  [[nodiscard]] std::size_t of(ParameterId id) const { return unit_of_[id.index]; }
  /// Of the store.
  [[nodiscard]] core::Range elements(std::size_t unit) const { return units_[unit].elements; }

  [[nodiscard]] bool any_here() const {
    return std::any_of(units_.begin(), units_.end(), [](const Unit& unit) { return unit.here; });
  }
  /// Calls drop(unit) for each that goes, then bring(unit) if this one has to come.
  template <class Drop, class Bring>
  void acquire(ParameterId id, const Drop& drop, const Bring& bring) {
    Unit& unit = units_[of(id)];
    if (!unit.here) {
      drop_unused(drop);
      bring(of(id));
      unit.here = true;
    }
    ++unit.users;  // not of one whose coming threw
  }
  void release(ParameterId id) {
    HALFSTEP_ASSERT(units_[of(id)].users > 0);
    --units_[of(id)].users;
  }
  /// Calls drop(unit) for each that is here and that nobody uses.
  template <class Drop>
  void drop_unused(const Drop& drop) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (!units_[unit].here || units_[unit].users > 0) continue;
      units_[unit].here = false;
      drop(unit);
    }
  }

 private:
  struct Unit {
    core::Range elements;
    int users = 0;
    bool here = false;
  };
  std::vector<Unit> units_;
  std::vector<std::size_t> unit_of_;
};

namespace detail {

/// Counts what Zero3 would gather.
class DryGathering final : public tensor::AnyStore {
 public:
  explicit DryGathering(const tensor::ParameterTable& parameters) : units_(parameters) {}
  void hold(ParameterId id) override {
    units_.acquire(
        id, [](std::size_t) {},
        [&](std::size_t unit) {
          elements_ += units_.elements(unit).end - units_.elements(unit).begin;
        });
  }
  void release(ParameterId id) override { units_.release(id); }
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  Units units_;
  std::int64_t elements_ = 0;
};

}  // namespace detail

/// Elements of parameters that Zero3 gathers for one micro-batch, forward, second runs and
/// backward, by a dry run of it: each rank sends (ranks - 1) / ranks of them, and as gradients the
/// same share of all parameters once.
///
///   loss(tape)  the loss of the micro-batch, as in training; may branch on shapes, not on values
[[nodiscard]] std::int64_t gathered_elements(Runtime& runtime,
                                             const tensor::ParameterTable& parameters,
                                             const MicroBatch& micro, const auto& loss) {
  detail::DryGathering store(parameters);
  Tape tape(runtime, Tape::Mode::dry);
  tape.read_through(&store);
  tape.begin(micro);
  tape.backward(loss(tape));
  return store.elements();
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
