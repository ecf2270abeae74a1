// SPDX-License-Identifier: MIT
// What a training loop remembers from one iteration to the next, besides weights and optimizer:
// saved and restored with them, a run goes on as if it had never stopped. Not for: results
// (fit.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/optim/plateau.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/state.hpp>
#include <halfstep/train/early_stopping.hpp>
#include <halfstep/train/step_info.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// The last 50 losses of applied updates.
class RecentLosses {
 public:
  void push(double loss) { losses_[static_cast<std::size_t>(count_++ % size)] = loss; }
  /// Their mean, added from the oldest on; 0 for none.
  [[nodiscard]] double mean() const {
    const std::int64_t n = std::min(count_, size);
    double sum = 0.0;
    for (std::int64_t i = count_ - n; i < count_; ++i)
      sum += losses_[static_cast<std::size_t>(i % size)];
    return n == 0 ? 0.0 : sum / static_cast<double>(n);
  }
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("fit.losses", count_);
    visitor.tensor(tensor::StateTensor{"fit.recent_losses", numeric::dtype_of<double>, Shape{size},
                                       0, std::as_writable_bytes(std::span(losses_))});
  }

 private:
  static constexpr std::int64_t size = 50;
  std::array<double, 50> losses_{};
  std::int64_t count_ = 0;
};

/// Handed to fit, which goes on from it. The members with options are set by whoever makes it:
///   FitState state{.stopping = EarlyStopping({.patience = 5}), .plateau = optim::Plateau()};
struct FitState {
  EarlyStopping stopping{};  ///< told of every evaluation; ends the run if it says so
  std::optional<optim::Plateau> plateau{};  ///< if set, scales the rate, and is told as well

  std::int64_t iteration = 0;  ///< windows done
  std::int64_t skipped = 0;    ///< of them without an update
  std::int64_t skips_in_a_row = 0;
  std::int64_t micro_batches = 0;  ///< whose backward pass was done
  std::int64_t tokens = 0;         ///< targets trained on
  RecentLosses losses{};
  std::int64_t evaluated = -1;  ///< windows done before the last evaluation; -1: none yet
  Evaluation evaluation{};      ///< that one

  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("fit.iteration", iteration);
    visitor.scalar("fit.skipped", skipped);
    visitor.scalar("fit.skips_in_a_row", skips_in_a_row);
    visitor.scalar("fit.micro_batches", micro_batches);
    visitor.scalar("fit.tokens", tokens);
    losses.visit_state(visitor);
    visitor.scalar("fit.evaluated", evaluated);
    visitor.scalar("fit.evaluation.nats", evaluation.nats);
    visitor.scalar("fit.evaluation.count", evaluation.count);
    visitor.scalar("fit.evaluation.bytes", evaluation.bytes);
    visitor.scalar("fit.evaluation.correct", evaluation.correct);
    visitor.scalar("fit.evaluation.standard_error", evaluation.standard_error);
    stopping.visit_state(visitor);
    if (plateau) plateau->visit_state(visitor);
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
