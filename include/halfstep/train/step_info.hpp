// SPDX-License-Identifier: MIT
// What a training loop knows after a window and after an evaluation: what hooks, progress lines and
// metrics are given. Plain data, filled by fit or by a loop of one's own.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/elementary_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// Thrown by what was asked to stop and cannot return half a result.
struct Stopped : Error {
  using Error::Error;
};

/// One window: all micro-batches of an iteration and the update that followed.
struct StepInfo {
  std::int64_t iteration = 0;   ///< from 0; also counts windows whose update was skipped
  std::int64_t iterations = 0;  ///< of the whole run
  std::int64_t step = 0;        ///< updates applied so far, this one included
  double loss = 0.0;            ///< nats a token, over the window's targets
  std::int64_t tokens = 0;      ///< targets that took part
  float lr = 0.0F;
  float norm = 0.0F;            ///< of the gradient of the mean loss, before clipping
  float clipped_by = 1.0F;      ///< what the gradient was multiplied by; 1: not clipped
  float scale = 1.0F;           ///< loss scale of the window
  bool applied = true;          ///< false: the update was skipped
  std::string first_bad{};      ///< the first parameter with a non-finite gradient, if one had
  double step_seconds = 0.0;    ///< wall time of this window and update
  double seconds = 0.0;         ///< wall time since the loop began, evaluations included
};

/// A pass over held-out tokens.
struct Evaluation {
  double nats = 0.0;            ///< sum of -log p over the targets
  std::int64_t count = 0;       ///< targets: each held-out token but the first, once
  std::int64_t bytes = 0;       ///< of text that the targets stand for; 0 if not known
  std::int64_t correct = 0;     ///< targets with no logit above theirs
  /// Of nats_per_token() as an estimate of the expected loss, with windows as independent clusters;
  /// 0 for fewer than two windows.
  double standard_error = 0.0;

  [[nodiscard]] double nats_per_token() const {
    return count == 0 ? 0.0 : nats / static_cast<double>(count);
  }
  /// exp of the mean over all targets, never a mean of exponentials. In the caller's floating-point
  /// environment.
  [[nodiscard]] double perplexity() const { return numeric::exp(nats_per_token()); }
  [[nodiscard]] double bits_per_byte() const {
    return bytes == 0 ? 0.0 : nats / (static_cast<double>(bytes) * 0.69314718055994530942);
  }
  [[nodiscard]] double accuracy() const {
    return count == 0 ? 0.0 : static_cast<double>(correct) / static_cast<double>(count);
  }
};

/// An evaluation during a run.
struct EvaluationInfo {
  std::int64_t iteration = 0;   ///< windows done before it
  std::int64_t iterations = 0;  ///< of the whole run
  std::int64_t step = 0;        ///< updates applied before it
  Evaluation evaluation{};
  bool improved = false;        ///< the best so far
  double seconds = 0.0;         ///< wall time since the loop began
};

/// A moment at which a run can be saved.
struct SavePoint {
  std::int64_t iteration = 0;  ///< windows done
  bool last = false;           ///< the run ends or stops here
  bool evaluated = false;      ///< the last evaluation was of these weights
  bool improved = false;       ///< and is the best so far
  double loss = 0.0;           ///< nats a token of the last evaluation; 0 without one
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
