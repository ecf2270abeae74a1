// SPDX-License-Identifier: MIT
// The best loss so far and how long ago it was: by it a run keeps its best checkpoint and ends when
// it no longer improves. NaN is never an improvement. Not for: learning rates (optim/plateau.hpp).
#pragma once

#include <cstdint>
#include <limits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

struct EarlyStoppingOptions {
  int patience = 0;  ///< evaluations in a row without an improvement that end a run; 0: none do
  double min_delta = 0.0;  ///< an improvement is below the best by more than this; at least 0
};

/// Told of each evaluation, by its loss: the smaller the better.
class EarlyStopping {
 public:
  /// @throws OptionError for options out of range.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {}) : options_(options) {
    if (options.patience < 0 || !(options.min_delta >= 0.0)) {
      core::fail<OptionError>("EarlyStopping: patience is ", options.patience, " and min_delta ",
                              options.min_delta, "; wanted both at least 0");
    }
  }

  /// True if `loss` is an improvement: below the best by more than min_delta, or the first number.
  /// A NaN or +infinity is none, and counts against patience like any other loss that is none.
  bool observe(double loss, std::int64_t iteration) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double bound = best_ == infinity ? infinity : best_ - options_.min_delta;
    if (loss < bound) {
      best_ = loss;
      best_iteration_ = iteration;
      waited_ = 0;
      return true;
    }
    ++waited_;
    return false;
  }

  /// Whether patience is at its end.
  [[nodiscard]] bool stop() const { return options_.patience > 0 && waited_ >= options_.patience; }
  [[nodiscard]] double best() const { return best_; }  ///< infinity before the first number
  [[nodiscard]] std::int64_t best_iteration() const { return best_iteration_; }  ///< -1 before it
  [[nodiscard]] std::int64_t waited() const { return waited_; }  ///< evaluations since the best

  /// Not the options, which come from whoever resumes.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("early_stopping.best", best_);
    visitor.scalar("early_stopping.best_iteration", best_iteration_);
    visitor.scalar("early_stopping.waited", waited_);
  }

 private:
  EarlyStoppingOptions options_;
  double best_ = std::numeric_limits<double>::infinity();
  std::int64_t best_iteration_ = -1;
  std::int64_t waited_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
