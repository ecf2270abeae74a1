// SPDX-License-Identifier: MIT
// AdamW: Adam with decay decoupled from the gradient, over a store of float or double weights. For
// 16-bit weights mixed/master_weights.hpp runs the same rule on float masters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/adamw.hpp>
#include <halfstep/optim/direct.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

struct AdamWOptions {
  double beta1 = 0.9;    ///< share of the first moment that stays, in [0, 1)
  double beta2 = 0.999;  ///< of the second, in [0, 1)
  double eps = 1e-8;     ///< added to the root of the second moment, in units of the gradient, > 0
  double weight_decay =
      0.0;  ///< fraction of a weight removed per unit of lr; weights and embeddings only
};

/// The rule, for state in R: see Direct. Two moments in R per element, in the ledger's moments.
///
/// With t = 1 at the first update, g the gradient times its factor, and all in R:
///   w -= lr weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
/// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2;
/// decay times lr and eps outside the root, as PyTorch has it. The order of roundings is
/// kernels::adamw_step's.
template <class R>
class AdamWRule {
 public:
  using Options = AdamWOptions;
  static constexpr Grain grain = Grain::element;
  static constexpr std::string_view name = "AdamW";

  /// @throws OptionError for options out of range.
  AdamWRule(const tensor::ParameterTable& parameters, const Options& options,
            std::vector<Part> parts)
      : parameters_(parameters),
        options_(checked(options)),
        first_(parameters, parts),
        second_(parameters, std::move(parts)) {}

  void advance() { ++steps_; }

  void run(const core::Compute& compute, std::size_t part, const Update<R>& update) {
    run(compute, part, update, static_cast<R*>(nullptr));
  }
  template <class S>
  void run(const core::Compute& compute, std::size_t part, const Update<R>& update, S* copy) {
    const Part& at = first_.part(part);
    const auto n = static_cast<std::size_t>(at.elements);
    const kernels::AdamWOptions options{
        .lr = update.lr,
        .beta1 = options_.beta1,
        .beta2 = options_.beta2,
        .eps = options_.eps,
        .weight_decay = decay_of(parameters_.info(at.id).role, options_.weight_decay)};
    kernels::adamw_step<R, S>(compute, options, steps_, update.factor, {update.weights, n},
                              {update.gradient, n}, first_.values(part), second_.values(part),
                              {copy, copy == nullptr ? 0 : n});
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const Options& options() const { return options_; }

  /// adamw.m.<parameter>, adamw.v.<parameter> in R, and adamw.steps.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("adamw.steps", steps_);
    first_.visit_state(visitor, "adamw.m.");
    second_.visit_state(visitor, "adamw.v.");
  }

 private:
  static const Options& checked(const Options& options) {
    const auto share = [](double x) { return x >= 0.0 && x < 1.0; };
    const auto finite = [](double x) {
      return x >= 0.0 && x < std::numeric_limits<double>::infinity();
    };
    if (!share(options.beta1) || !share(options.beta2) || !finite(options.eps) ||
        options.eps == 0.0 || !finite(options.weight_decay)) {
      core::fail<OptionError>(
          "AdamW: beta1 ", options.beta1, ", beta2 ", options.beta2, ", eps ", options.eps,
          ", weight_decay ", options.weight_decay,
          "; wanted both betas in [0, 1), eps > 0 and weight_decay >= 0, all finite. ",
          "Is a learning rate in the place of a beta?");
    }
    return options;
  }

  const tensor::ParameterTable& parameters_;
  Options options_;
  Moments<R> first_, second_;
  std::int64_t steps_ = 0;
};

/// optim::AdamW optimizer(parameters, AdamWOptions{.beta2 = 0.99, .weight_decay = 0.1});
template <class T>
class AdamW : public Direct<AdamWRule<T>, T> {
 public:
  using Direct<AdamWRule<T>, T>::Direct;
};
template <class T>
AdamW(Parameters<T>&) -> AdamW<T>;
template <class T>
AdamW(Parameters<T>&, const AdamWOptions&) -> AdamW<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
