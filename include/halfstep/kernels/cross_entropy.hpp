// SPDX-License-Identifier: MIT
// Softmax cross-entropy of rows of logits against integer targets, some of them ignored: losses and
// their sum, then the gradient. Logits are float (double in the double model); not a mean: the
// divisor belongs to the step.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

struct CrossEntropyOptions {
  std::int32_t ignore = -1;  ///< a target of this value has no loss, no gradient and is not counted
};

/// What the rows add up to.
struct CrossEntropySum {
  double sum = 0;            ///< of the losses, in nats
  std::int64_t count = 0;    ///< rows whose target is not ignored
  std::int64_t correct = 0;  ///< of those, rows with no logit above their target's
};

namespace detail {

/// The number of classes; counts the valid targets.
[[nodiscard]] inline std::int64_t check_targets(const char* function, std::size_t logits,
                                                std::span<const std::int32_t> targets,
                                                std::int32_t ignore, std::int64_t& count) {
  count = 0;
  const std::size_t rows = targets.size();
  if (rows == 0 ? logits != 0 : (logits == 0 || logits % rows != 0)) {
    core::fail<ShapeError>(function, ": ", logits, " logits for ", rows,
                           " targets; wanted the same number of logits, at least one, for each "
                           "target. Do batch and model have the same length?");
  }
  const auto classes = static_cast<std::int64_t>(rows == 0 ? 0 : logits / rows);
  for (std::size_t row = 0; row < rows; ++row) {
    if (targets[row] == ignore) continue;
    ++count;
    if (targets[row] >= 0 && targets[row] < classes) continue;
    core::fail<DataError>(function, ": target ", targets[row], " of row ", row, " is not in [0, ",
                          classes, ") and is not the ignored value ", ignore,
                          ". Was the text encoded by another tokenizer than the model's?");
  }
  return classes;
}

[[nodiscard]] inline std::int64_t softmax_grain(std::int64_t classes) {
  return std::max<std::int64_t>(1, 4096 / classes);
}

/// The sum of the losses whose target is not ignored, in double: row r in lane r mod 16.
template <std::floating_point A>
[[nodiscard]] double sum_of_losses(const core::Compute& compute, std::span<const A> losses,
                                   std::span<const std::int32_t> targets, std::int32_t ignore) {
  double sum = 0;
  const auto total = HALFSTEP_PICK(compute.isa, cross_entropy_total<A>);
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    total(losses.data(), targets.data(), ignore, &sum, std::ssize(losses));
  });
  return sum;
}

}  // namespace detail

/// losses[r] = lse(logits[r]) - logits[r, targets[r]], and their sum.
///
///   logits   [rows, classes]
///   targets  [rows]  in [0, classes) or options.ignore
///   losses   [rows]  written, in nats; 0 where ignored
///   lse      [rows]  written, for the backward: log of the sum of exp(logits[r]); 0 where ignored
///
/// Sums of exponentials run in 16 lanes, class j in lane j mod 16, relative to the row's maximum;
/// losses are log(sum) + (maximum - target's logit), which keeps small losses of large logits. The
/// total is in double, row r in lane r mod 16. A row with a NaN or +infinity has the loss NaN.
///
/// @throws ShapeError if sizes do not fit, DataError for a target out of range, both before
/// anything is written.
template <std::floating_point A>
CrossEntropySum cross_entropy(const core::Compute& compute, std::span<const A> logits,
                              std::span<const std::int32_t> targets, std::span<A> losses,
                              std::span<A> lse, const CrossEntropyOptions& options = {}) {
  CrossEntropySum result;
  const std::int64_t classes =
      detail::check_targets("cross_entropy", logits.size(), targets, options.ignore, result.count);
  if (losses.size() != targets.size() || lse.size() != targets.size()) {
    core::fail<ShapeError>("cross_entropy: ", targets.size(), " targets, but losses has ",
                           losses.size(), " elements and lse ", lse.size(),
                           "; each wants one for a row.");
  }
  const auto rows = static_cast<std::int64_t>(targets.size());
  if (rows == 0) return result;
  const core::PhaseScope phase(compute.counters, core::Phase::head);
  std::atomic<std::int64_t> correct{0};
  const auto body = HALFSTEP_PICK(compute.isa, cross_entropy_forward<A>);
  compute.parallel(rows, detail::softmax_grain(classes),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     correct += body(logits.data(), targets.data(), options.ignore, losses.data(),
                                     lse.data(), classes, begin, end);
                   });
  result.correct = correct;
  result.sum = detail::sum_of_losses<A>(compute, losses, targets, options.ignore);
  return result;
}

/// gradient[r, j] = (exp(logits[r, j] - lse[r]) - (j == targets[r])) * seed, rounded once to G;
/// zero where the target is ignored.
///
///   lse       [rows]           from the forward
///   seed      gradient of the sum of losses: the loss scale and the step's divisor
///   gradient  [rows, classes]  float, or the format of the head; may be the memory of logits if
///                              G is A
///
/// @throws ShapeError if sizes do not fit, DataError for a target out of range.
template <std::floating_point A, numeric::real_element G = A>
void cross_entropy_backward(const core::Compute& compute, std::span<const A> logits,
                            std::span<const std::int32_t> targets, std::span<const A> lse, A seed,
                            std::span<std::type_identity_t<G>> gradient,
                            const CrossEntropyOptions& options = {}) {
  std::int64_t count = 0;
  const std::int64_t classes = detail::check_targets("cross_entropy_backward", logits.size(),
                                                     targets, options.ignore, count);
  if (lse.size() != targets.size() || gradient.size() != logits.size()) {
    core::fail<ShapeError>("cross_entropy_backward: ", targets.size(), " targets and ",
                           logits.size(), " logits, but lse has ", lse.size(),
                           " elements and gradient ", gradient.size(),
                           "; lse wants one for a row, gradient one for a logit.");
  }
  if (targets.empty()) return;
  const core::PhaseScope phase(compute.counters, core::Phase::head);
  const auto body = HALFSTEP_PICK(compute.isa, cross_entropy_backward<A, G>);
  compute.parallel(static_cast<std::int64_t>(targets.size()), detail::softmax_grain(classes),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(logits.data(), targets.data(), options.ignore, lse.data(), seed,
                          gradient.data(), classes, begin, end);
                   });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
