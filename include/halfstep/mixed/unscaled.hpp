// SPDX-License-Identifier: MIT
// The summed gradient of a step once pass one has looked at it: is it finite, what is its norm,
// what is each element still to be multiplied by. Clipping is a change of that factor. What an
// optimizer's step consumes; made by Window::unscale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/gradient_pass.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Loss of a step: a sum over `count` valid targets of all its micro-batches.
struct LossTotal {
  double sum = 0.0;
  double count = 0.0;
  double mean = 0.0;  ///< 0 where count is
};

/// Move-only; a moved-from one, or one that a step has taken, throws StateError whatever is asked
/// of it. Dropped without a step it leaves accumulator and scaler as if the window had not been.
///
/// The gradient is not finite if a summed value is not, or if unscaling would take one beyond the
/// range of float: its norm is then too large for a float, or the factor itself is not a normal
/// one.
template <class T>
class Unscaled {
 public:
  using gradient = typename Parameters<T>::gradient;

  Unscaled(Unscaled&& other) noexcept
      : sums_(std::exchange(other.sums_, nullptr)),
        scaler_(other.scaler_),
        open_(other.open_),
        blocks_(other.blocks_),
        seed_(other.seed_),
        findings_(other.findings_),
        loss_(other.loss_),
        largest_(other.largest_),
        unscale_(other.unscale_),
        factor_(other.factor_),
        result_(std::move(other.result_)) {}
  Unscaled& operator=(Unscaled&&) = delete;
  Unscaled(const Unscaled&) = delete;
  Unscaled& operator=(const Unscaled&) = delete;
  ~Unscaled() {
    if (sums_ == nullptr) return;
    if (scaler_ != nullptr) scaler_->release();
    *open_ = false;
  }

  /// Multiplies the gradient by limit / norm if its norm exceeds `limit`, and by exactly 1 if not.
  /// No epsilon: differs from PyTorch's limit / (norm + 1e-6). After a second call the smaller
  /// limit holds. @throws OptionError unless limit > 0.
  [[nodiscard]] Unscaled clip_norm(float limit) && {
    live("Unscaled::clip_norm");
    if (!(limit > 0.0F)) {
      core::fail<OptionError>(
          "Unscaled::clip_norm: the limit is ", limit,
          ", wanted more than 0. To leave the gradient as it is, do not call clip_norm.");
    }
    if (result_.applied && result_.norm > limit) {
      sums_->parameters().runtime().compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
        const float coefficient = limit / result_.norm;
        if (coefficient >= result_.clipped_by) return;
        result_.clipped_by = coefficient;
        factor_ = unscale_ * static_cast<double>(coefficient);
      });
      if (!representable(factor_)) overflow();
    }
    return std::move(*this);
  }
  /// std::move it: a gradient is clipped on its way to a step.
  Unscaled clip_norm(float limit) & = delete;

  /// Of the unscaled gradient before clipping, one rounding to float; not finite if the gradient is
  /// not.
  [[nodiscard]] float norm() const { return live("Unscaled::norm").result_.norm; }
  [[nodiscard]] bool finite() const {
    return live("Unscaled::finite").result_.why != optim::Skip::non_finite;
  }
  /// Mean over all valid targets of the step.
  [[nodiscard]] double loss() const { return live("Unscaled::loss").loss_.mean; }
  [[nodiscard]] double loss_sum() const { return live("Unscaled::loss_sum").loss_.sum; }
  /// Valid targets of the step.
  [[nodiscard]] double count() const { return live("Unscaled::count").loss_.count; }

  // What optim::final_gradients asks for.
  [[nodiscard]] tensor::ParameterTable& parameters() const {
    return live("Unscaled::parameters").sums_->parameters();
  }
  [[nodiscard]] std::span<const gradient> sum(ParameterId id) const {
    return live("Unscaled::sum").sums_->sum(id);
  }
  [[nodiscard]] double factor() const { return live("Unscaled::factor").factor_; }
  /// The factor without clipping: sum x this is the gradient of the mean loss.
  [[nodiscard]] double unscale_factor() const { return live("Unscaled::unscale_factor").unscale_; }
  [[nodiscard]] optim::StepResult result() const { return live("optimizer.step").result_; }
  void settle(optim::StepResult& result) && {
    live("Unscaled::settle");
    sums_ = nullptr;
    *open_ = false;
    if (scaler_ == nullptr) return;
    if (result_.why == optim::Skip::no_targets) {
      scaler_->release();  // nothing was learned of the scale
    } else {
      result.scale_change = scaler_->settle(result_.why == optim::Skip::non_finite);
    }
    result.scale = scaler_->scale();
  }

 private:
  template <class>
  friend class GradientAccumulator;

  // Pass one. `blocks` holds sum_blocks(elements) doubles for each parameter; `open` is cleared
  // when this ends. Nothing is decided until `decide`. Where `underflow` is asked for, `loss` is
  // the whole step's.
  Unscaled(Sums<gradient>& sums, Processes<gradient>* processes, LossScaler* scaler, bool& open,
           std::span<double> blocks, double seed, const LossTotal& loss, Underflow* underflow)
      : sums_(&sums), scaler_(scaler), open_(&open), blocks_(blocks), seed_(seed) {
    findings_.loss_sum = loss.sum;
    findings_.count = loss.count;
    if (underflow != nullptr) *underflow = {};
    const auto compute = sums.parameters().runtime().compute();
    if (compute.dry) return;  // there is no gradient to look at
    kernels::Underflows<gradient> lost;
    const bool counts = underflow != nullptr && loss.count > 0.0;
    if (counts)
      lost = detail::underflow_question<gradient>(compute, unscaling(compute), loss_scale());
    std::size_t block = 0;
    const core::Range held = sums.held();
    for (std::uint32_t i = 0; i < sums.parameters().size(); ++i) {
      const auto& info = sums.parameters().infos()[i];
      const auto count = static_cast<std::size_t>(kernels::sum_blocks(info.elements));
      const std::span<double> squares = blocks.subspan(block, count);
      block += count;
      // What another process holds is its to look at: its blocks add nothing here.
      const std::int64_t begin =
          std::clamp<std::int64_t>(held.begin - info.offset, 0, info.elements);
      const std::int64_t end = std::clamp<std::int64_t>(held.end - info.offset, 0, info.elements);
      if (end - begin < info.elements) std::fill(squares.begin(), squares.end(), 0.0);
      if (begin >= end) continue;
      const auto sum = sums.sum({i});
      // Where processes add up only now: pieces of whole blocks, by which the norm is defined, that
      // are still in a cache when they are read.
      const bool late = processes != nullptr && processes->sums_in_pass_one();
      const std::int64_t piece = late ? std::int64_t{1} << 16 : end - begin;
      for (std::int64_t at = begin; at < end; at += piece) {
        const std::int64_t length = std::min(piece, end - at);
        if (late) processes->sum_up({info.offset + at, info.offset + at + length});
        const auto found = kernels::gradient_pass<gradient>(
            compute,
            sum.subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(length)),
            squares.subspan(static_cast<std::size_t>(kernels::sum_blocks(at)),
                            static_cast<std::size_t>(kernels::sum_blocks(length))),
            counts ? &lost : nullptr);
        if (found.count > 0 && findings_.bad_values == 0) findings_.first_bad = i;
        findings_.bad_values += found.count;
      }
    }
    if (counts) *underflow = detail::underflow_answer(lost);
  }

  [[nodiscard]] float loss_scale() const { return scaler_ == nullptr ? 1.0F : scaler_->scale(); }
  // What makes the sum the gradient of the mean loss.
  [[nodiscard]] double unscaling(const core::Compute& compute) const {
    double factor = 0.0;
    compute.parallel(
        1, 1, [&](std::int64_t, std::int64_t, int) { factor = 1.0 / (seed_ * findings_.count); });
    return factor;
  }

  // What the step will do, once findings and blocks are those of all processes.
  void decide(Processes<gradient>* processes) {
    if (processes != nullptr) processes->decide(findings_, blocks_);
    result_.scale = loss_scale();
    loss_ = {findings_.loss_sum, findings_.count, 0.0};
    result_.bad_values = findings_.bad_values;
    if (findings_.count == 0.0) {
      result_.applied = false;
      result_.why = optim::Skip::no_targets;
      return;
    }
    const auto compute = sums_->parameters().runtime().compute();
    // Before the fold, which works in place; asked for where unscaling or clipping overflows.
    largest_ = largest_parameter(blocks_);
    const double squares = kernels::fold_blocks<double>(compute, blocks_);
    unscale_ = unscaling(compute);
    factor_ = unscale_;
    compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      loss_.mean = loss_.sum / loss_.count;
      result_.norm = static_cast<float>(std::sqrt(squares) * unscale_);
    });
    if (result_.bad_values > 0) {
      result_.first_bad =
          sums_->parameters().infos()[static_cast<std::size_t>(findings_.first_bad)].name;
      result_.applied = false;
      result_.why = optim::Skip::non_finite;
    } else if (!(result_.norm <= std::numeric_limits<float>::max()) || !representable(unscale_)) {
      overflow();
    }
  }

  const Unscaled& live(std::string_view what) const {
    if (sums_ == nullptr) {
      core::fail<StateError>(what,
                             ": these gradients were used already, by a step or by std::move. ",
                             "Every update needs a window of its own.");
    }
    return *this;
  }
  void overflow() {
    result_.first_bad = largest_;
    result_.applied = false;
    result_.why = optim::Skip::non_finite;
  }
  // Kernels multiply float gradients by a float, and subnormal ones are read as zero.
  [[nodiscard]] static bool representable(double factor) {
    if constexpr (std::is_same_v<gradient, double>) return true;
    return factor >= static_cast<double>(std::numeric_limits<float>::min()) &&
           factor <= static_cast<double>(std::numeric_limits<float>::max());
  }
  [[nodiscard]] std::string_view largest_parameter(std::span<const double> blocks) const {
    std::string_view name;
    double most = -1.0;
    std::size_t block = 0;
    for (const auto& info : sums_->parameters().infos()) {
      for (std::int64_t i = 0; i < kernels::sum_blocks(info.elements); ++i, ++block) {
        if (blocks[block] > most) {
          most = blocks[block];
          name = info.name;
        }
      }
    }
    return name;
  }

  Sums<gradient>* sums_;
  LossScaler* scaler_;
  bool* open_;
  std::span<double> blocks_;  // the accumulator's: sums of squares, until they are folded
  double seed_;
  Findings findings_;
  LossTotal loss_;
  std::string_view largest_;  // parameter with the largest block of squares
  double unscale_ = 1.0, factor_ = 1.0;
  optim::StepResult result_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
