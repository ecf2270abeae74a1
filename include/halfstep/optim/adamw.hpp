// SPDX-License-Identifier: MIT
// AdamW: Adam with decay decoupled from the gradient, over a store of float or double weights. For
// 16-bit weights mixed/master_weights.hpp runs the same rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/adamw.hpp>
#include <halfstep/kernels/held.hpp>
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

/// The rule, computed in R: see Direct. Two moments per element, in the ledger's moments, each in a
/// format of its own: R, a 16-bit one (rounded to nearest even after each step), or drawn<E>.
///
/// In 16 bits to nearest even the second moment stops short: with beta2 = 0.999 in bf16 it rises
/// towards 1 no further than 0.25, and never falls from 1. drawn<E> does not.
///
/// With t = 1 at the first update, g the gradient times its factor, and all in R:
///   w -= lr weight_decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
/// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2;
/// decay times lr and eps outside the root, as PyTorch has it. The order of roundings is
/// kernels::adamw_step's.
template <class R, moment_format First = R, moment_format Second = First>
class AdamWRule {
 public:
  using Options = AdamWOptions;
  /// The same rule with moments in other formats.
  template <moment_format M, moment_format V>
  using In = AdamWRule<R, M, V>;
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
    const auto n = static_cast<std::size_t>(first_.part(part).elements);
    run(compute, part, Descent<R>{update.gradient, update.factor, update.lr},
        kernels::Plain<R>({update.weights, n}));
  }
  /// The same over weights that are held in any way, in one pass.
  template <class G, kernels::held Weights>
  void run(const core::Compute& compute, std::size_t part, const Descent<G>& by,
           const Weights& weights) {
    const Part& at = first_.part(part);
    const kernels::AdamWOptions options{
        .lr = by.lr,
        .beta1 = options_.beta1,
        .beta2 = options_.beta2,
        .eps = options_.eps,
        .weight_decay = decay_of(parameters_.info(at.id).role, options_.weight_decay)};
    kernels::adamw_step<R>(compute, options, steps_, by.factor, weights,
                           std::span<const G>(by.gradient, static_cast<std::size_t>(at.elements)),
                           first_.held(part, "adamw.m", steps_ - 1),
                           second_.held(part, "adamw.v", steps_ - 1));
  }

  /// Bytes of state per element.
  [[nodiscard]] static constexpr std::int64_t moment_bytes(const Options& /*options*/) {
    return sizeof(stored_as<First>) + sizeof(stored_as<Second>);
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const Options& options() const { return options_; }

  /// adamw.m.<parameter>, adamw.v.<parameter> in their formats, and adamw.steps.
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
  Moments<First> first_;
  Moments<Second> second_;
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
