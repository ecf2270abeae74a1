// SPDX-License-Identifier: MIT
// A learning rate that falls when the loss no longer does: the one schedule with a state, which
// goes into checkpoints. Not for: rates that are functions of the step (warmup_cosine.hpp).
#pragma once

#include <cstdint>
#include <limits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// PyTorch's ReduceLROnPlateau, whose defaults these are.
struct PlateauOptions {
  double factor = 0.1;      ///< multiplies the rate; in (0, 1)
  int patience = 10;        ///< bad evaluations in a row that are still borne; one more reduces
  double threshold = 1e-4;  ///< a good evaluation is below best x (1 - threshold); in [0, 1)
  int cooldown = 0;         ///< evaluations after a reduction in which none counts as bad
  double least = 0.0;       ///< the share of the first rate below which it does not fall; in [0, 1)
};

/// rate = plateau(schedule(step)), and observe(loss) after each evaluation.
///
/// With m bad evaluations in a row: good ones set m = 0; while cooling down m stays 0; m > patience
/// multiplies the share by factor, starts the cooldown and sets m = 0. NaN is bad.
/// Source: torch.optim.lr_scheduler.ReduceLROnPlateau, mode min, threshold_mode rel. Differs: it
/// scales another schedule's rate, and no change is too small to be made (there: eps).
class Plateau {
 public:
  /// @throws OptionError for options out of range.
  explicit Plateau(const PlateauOptions& options = {}) : options_(options) {
    const auto share = [](double x) { return x >= 0.0 && x < 1.0; };
    if (!share(options.factor) || options.factor == 0.0 || options.patience < 0 ||
        !share(options.threshold) || options.cooldown < 0 || !share(options.least)) {
      core::fail<OptionError>(
          "Plateau: factor ", options.factor, ", patience ", options.patience, ", threshold ",
          options.threshold, ", cooldown ", options.cooldown, ", least ", options.least,
          "; wanted factor in (0, 1), threshold and ", "least in [0, 1), the others at least 0");
    }
  }

  /// Told of each evaluation. True if the rate falls by it. The bits do not depend on the caller's
  /// floating-point environment.
  bool observe(double loss) {
    bool reduced = false;
    core::Compute{core::Isa::portable}.parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { reduced = take(loss); });
    return reduced;
  }

  /// What the rate is multiplied by; 1 at first.
  [[nodiscard]] double share() const { return share_; }
  /// The rate from now on, where the schedule alone would have `rate`.
  [[nodiscard]] float operator()(float rate) const {
    float result = 0.0F;
    core::Compute{core::Isa::portable}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      result = static_cast<float>(static_cast<double>(rate) * share_);
    });
    return result;
  }

  /// Not the options, which come from whoever resumes.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("plateau.share", share_);
    visitor.scalar("plateau.best", best_);
    visitor.scalar("plateau.bad", bad_);
    visitor.scalar("plateau.cooling", cooling_);
  }

 private:
  bool take(double loss) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double bound = best_ == infinity ? infinity : best_ * (1.0 - options_.threshold);
    if (loss < bound) {
      best_ = loss;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) {
      --cooling_;
      bad_ = 0;
    }
    if (bad_ <= options_.patience) return false;
    const double lower = share_ * options_.factor;
    const double before = share_;
    share_ = lower < options_.least ? options_.least : lower;
    cooling_ = options_.cooldown;
    bad_ = 0;
    return share_ < before;
  }

  PlateauOptions options_;
  double share_ = 1.0;
  double best_ = std::numeric_limits<double>::infinity();
  std::int64_t bad_ = 0, cooling_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
