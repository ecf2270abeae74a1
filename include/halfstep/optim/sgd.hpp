// SPDX-License-Identifier: MIT
// Stochastic gradient descent with momentum, plain or Nesterov's, over a store of float or double
// weights. For 16-bit weights mixed/master_weights.hpp runs the same rule.
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
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/kernels/sgd.hpp>
#include <halfstep/optim/direct.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

struct SgdOptions {
  double momentum = 0.0;  ///< share of the velocity that stays, in [0, 1); 0: none is kept
  bool nesterov = false;  ///< looks ahead by the momentum; wants momentum > 0
  double weight_decay =
      0.0;  ///< coupled: this share of a weight is added to its gradient; by role, as in AdamW
};

/// The rule, computed in R: see Direct. One velocity per element if there is momentum, in R, in a
/// 16-bit format (rounded to nearest even after each step), or drawn<E>.
///
/// With g the gradient times its factor, and all in R:
///   d = g + weight_decay w;  b = momentum b + d;  w -= lr (nesterov ? d + momentum b : b)
/// Source: PyTorch's SGD without dampening; b starts at 0, which makes the first b its d.
template <class R, moment_format Velocity = R>
class SgdRule {
 public:
  using Options = SgdOptions;
  /// The same rule with its velocity in another format; there is no second moment.
  template <moment_format M, moment_format>
  using In = SgdRule<R, M>;
  static constexpr Grain grain = Grain::element;
  static constexpr std::string_view name = "Sgd";

  /// @throws OptionError for options out of range.
  SgdRule(const tensor::ParameterTable& parameters, const Options& options, std::vector<Part> parts)
      : parameters_(parameters), options_(checked(options)), parts_(std::move(parts)) {
    if (options.momentum > 0.0) velocity_ = Moments<Velocity>(parameters, parts_);
  }

  void advance() { ++steps_; }

  void run(const core::Compute& compute, std::size_t part, const Update<R>& update) {
    const auto n = static_cast<std::size_t>(parts_[part].elements);
    run(compute, part, Descent<R>{update.gradient, update.factor, update.lr},
        kernels::Plain<R>({update.weights, n}));
  }
  /// The same over weights that are held in any way, in one pass.
  template <class G, kernels::held Weights>
  void run(const core::Compute& compute, std::size_t part, const Descent<G>& by,
           const Weights& weights) {
    const Part& at = parts_[part];
    const kernels::SgdOptions options{
        .lr = by.lr,
        .momentum = options_.momentum,
        .weight_decay = decay_of(parameters_.info(at.id).role, options_.weight_decay),
        .nesterov = options_.nesterov};
    const std::span<const G> gradient(by.gradient, static_cast<std::size_t>(at.elements));
    if (velocity_.size() == 0) {
      kernels::sgd_step<R>(compute, options, by.factor, weights, gradient,
                           kernels::Plain<R>(std::span<R>()));
    } else {
      kernels::sgd_step<R>(compute, options, by.factor, weights, gradient,
                           velocity_.held(part, "sgd.velocity", steps_ - 1));
    }
  }

  /// Bytes of state per element.
  [[nodiscard]] static constexpr std::int64_t moment_bytes(const Options& options) {
    return options.momentum == 0.0 ? 0 : sizeof(stored_as<Velocity>);
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const Options& options() const { return options_; }

  /// sgd.steps and, with momentum, sgd.velocity.<parameter> in its format.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("sgd.steps", steps_);
    velocity_.visit_state(visitor, "sgd.velocity.");
  }

 private:
  static const Options& checked(const Options& options) {
    if (!(options.momentum >= 0.0 && options.momentum < 1.0) ||
        (options.nesterov && options.momentum == 0.0) ||
        !(options.weight_decay >= 0.0 &&
          options.weight_decay < std::numeric_limits<double>::infinity())) {
      core::fail<OptionError>(
          "Sgd: momentum ", options.momentum, ", nesterov ", options.nesterov, ", weight_decay ",
          options.weight_decay,
          "; wanted momentum in [0, 1), above 0 if nesterov is set, and weight_decay >= 0. ",
          "Is a learning rate in the place of the momentum?");
    }
    return options;
  }

  const tensor::ParameterTable& parameters_;
  Options options_;
  std::vector<Part> parts_;
  Moments<Velocity> velocity_;
  std::int64_t steps_ = 0;
};

/// optim::Sgd optimizer(parameters, SgdOptions{.momentum = 0.9});
template <class T>
class Sgd : public Direct<SgdRule<T>, T> {
 public:
  using Direct<SgdRule<T>, T>::Direct;
};
template <class T>
Sgd(Parameters<T>&) -> Sgd<T>;
template <class T>
Sgd(Parameters<T>&, const SgdOptions&) -> Sgd<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
