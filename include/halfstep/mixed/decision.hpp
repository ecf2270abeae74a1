// SPDX-License-Identifier: MIT
// What all processes of a step have to agree on before any of them acts on it: whether the gradient
// is finite, its norm, the loss. Processes (processes.hpp) make one decision of their findings,
// within Window::unscale, so that nothing of a gradient can be read before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// What one process found in its part of a step. Plain bytes: it travels as it is.
struct Findings {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

  double loss_sum = 0.0, count = 0.0;  ///< of its micro-batches: loss and valid targets
  std::int64_t bad_values = 0;         ///< gradient values that are not finite
  std::int64_t first_bad = none;       ///< number of the first parameter with one

  /// Of two neighbours in the tree over processes.
  [[nodiscard]] friend Findings operator+(const Findings& a, const Findings& b) {
    return {a.loss_sum + b.loss_sum, a.count + b.count, a.bad_values + b.bad_values,
            std::min(a.first_bad, b.first_bad)};
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
