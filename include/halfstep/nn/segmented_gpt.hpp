// SPDX-License-Identifier: MIT
// A GPT whose blocks run in segments that are forgotten and computed again in the backward pass:
// the same values and gradients, less memory. Not for: choosing the schedule
// (autograd/plan_recompute.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/autograd/plan_recompute.hpp>
#include <halfstep/autograd/run_chain.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/nn/block.hpp>
#include <halfstep/nn/gpt.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

/// Calls a Gpt with its blocks run by a schedule: cut into segments, or any other
/// (autograd/schedule.hpp). The embedding and the head are never recomputed.
template <class T>
class SegmentedGpt {
 public:
  /// `segments` runs of blocks of as equal a length as can be, the shorter ones first. All but the
  /// last are recomputed; the last is kept, since the backward pass needs it at once. So one
  /// segment is the plain model. The Gpt must outlive it. @throws OptionError unless 1 <= segments
  /// <= layers.
  SegmentedGpt(const Gpt<T>& gpt, int segments) : gpt_(&gpt) {
    if (segments < 1 || segments > gpt.options.layers) {
      core::fail<OptionError>("nn::SegmentedGpt: ", segments, " segments of ", gpt.options.layers,
                              " blocks; wanted 1 (nothing is recomputed) to one for each block");
    }
    schedule_ = autograd::uniform(gpt.options.layers, segments);
  }
  /// The blocks by `schedule`. The Gpt must outlive it, and it the backward pass.
  SegmentedGpt(const Gpt<T>& gpt, autograd::Schedule schedule)
      : gpt_(&gpt), schedule_(std::move(schedule)) {}

  [[nodiscard]] int context() const { return gpt_->context(); }
  [[nodiscard]] const autograd::Schedule& schedule() const { return schedule_; }

  /// @throws OptionError if the schedule is for another number of blocks.
  [[nodiscard]] Variable<typename Gpt<T>::Logits> operator()(Tape& tape,
                                                             std::span<const std::int32_t> ids) const {
    return gpt_->head(body(tape, ids));
  }
  /// As Gpt::loss. @throws OptionError if the schedule is for another number of blocks.
  [[nodiscard]] Loss loss(Tape& tape, std::span<const std::int32_t> ids, std::span<const std::int32_t> targets) const {
    return gpt_->loss(body(tape, ids), targets);
  }

 private:
  [[nodiscard]] Variable<T> body(Tape& tape, std::span<const std::int32_t> ids) const {
    return run_chain(std::span<const Block<T>>(gpt_->blocks), schedule_, gpt_->embed(tape, ids));
  }

  const Gpt<T>* gpt_;
  autograd::Schedule schedule_;
};

/// plan_recompute of a Gpt that is trained on `rows` rows of `length` tokens a micro-batch, with
/// Gpt::loss for its loss: `SegmentedGpt(gpt, plan.schedule).loss` runs it. `budget` and `long_lived` are
/// as RecomputePlanOptions has them. @throws ShapeError if rows are longer than the context.
template <class T>
[[nodiscard]] RecomputePlan plan_recompute(const Gpt<T>& gpt, int rows, int length,
                                           std::int64_t budget, std::int64_t long_lived = 0) {
  const std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(length), 0);
  return halfstep::plan_recompute(
      gpt.tokens.table.store->runtime(),
      {.budget = budget, .long_lived = long_lived, .micro = {0, 0, 0, rows}},
      [&](Tape& tape) { return gpt.embed(tape, tokens); }, std::span<const Block<T>>(gpt.blocks),
      [&](Variable<T> x) { return gpt.loss(x, tokens); });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
