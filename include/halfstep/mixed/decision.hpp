// SPDX-License-Identifier: MIT
// What all processes of a step have to agree on before any of them acts on it: whether the gradient
// is finite, its norm, the loss. Processes that an accumulator was made with (processes.hpp) decide
// within Window::unscale; a reduction of one's own decides on an `Undecided`, from Window::inspect.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

template <class T>
class Unscaled;
template <class T>
class Window;

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

/// reduction(findings, blocks): comes back in every process when both hold what the whole step's
/// do, the same bits everywhere. Every process calls it once for a step.
///
///   findings  summed by + along the house's tree over processes. A process counts the bad values
///             of what it alone holds; where the gradient was summed before, all hold the same
///             values, and `bad_values` is to be kept, not summed.
///   blocks    the sums of squares of all blocks of 1024 elements, in order of registration: 0 for
///             a block that another process holds, so that their sum over processes is exact; not
///             to be touched where every process has the whole gradient
template <class R>
concept decision_reduction = std::invocable<R, Findings&, std::span<double>>;

/// A summed gradient that pass one has looked at here, but not everywhere, and of which nothing can
/// be read before the reduction; for accumulators made without Processes. Move-only; dropped, it
/// leaves accumulator and scaler as if the window had not been.
///
///   auto gradients = std::move(window).inspect().decide(reduction);  // then as Window::unscale's
template <class T>
class Undecided {
 public:
  /// All processes' decision. @throws what the reduction throws: the window has then ended.
  template <decision_reduction Reduction>
  [[nodiscard]] Unscaled<T> decide(Reduction&& reduction) && {
    gradients_.reduce(std::forward<Reduction>(reduction));
    return std::move(gradients_);
  }
  template <class Reduction>
  Unscaled<T> decide(Reduction&& reduction) & = delete;

 private:
  friend class Window<T>;
  explicit Undecided(Unscaled<T>&& gradients) : gradients_(std::move(gradients)) {}
  Unscaled<T> gradients_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
