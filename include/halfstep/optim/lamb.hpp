// SPDX-License-Identifier: MIT
// LAMB: Adam's direction, for each tensor as long as the tensor itself times the learning rate; for
// large batches. A rule that needs whole tensors, so sharding cuts between them. For 16-bit weights
// mixed/master_weights.hpp runs it on float masters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/optim/direct.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

struct LambOptions {
  double beta1 = 0.9;    ///< share of the first moment that stays, in [0, 1)
  double beta2 = 0.999;  ///< of the second, in [0, 1)
  double eps = 1e-6;     ///< added to the root of the second moment, in units of the gradient, > 0
  double weight_decay =
      0.0;  ///< times the weight, added to the direction; weights and embeddings only
};

/// The rule, for state in R: see Direct. Two moments in R per element, in the ledger's moments; the
/// largest parameter in R in its workspace.
///
/// The direction u of a tensor w is what AdamW (adamw.hpp) takes off with a learning rate of 1, as
/// the difference of the weights before and after, in R. Then w -= lr (|w| / |u|) u, norms in
/// double by the house's order; where one of them is 0, or not finite, w -= lr u. Source: You et
/// al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020,
/// algorithm 2, with phi the identity.
template <class R>
class LambRule {
 public:
  using Options = LambOptions;
  static constexpr Grain grain = Grain::tensor;
  static constexpr std::string_view name = "LAMB";

  /// @throws OptionError for options out of range or a part that is not a whole parameter.
  LambRule(const tensor::ParameterTable& parameters, const Options& options,
           std::vector<Part> parts)
      : parameters_(parameters),
        options_(checked(options)),
        first_(parameters, parts),
        second_(parameters, parts) {
    std::int64_t largest = 0;
    for (const Part& part : parts) {
      const auto& info = parameters.info(part.id);
      if (part.elements != 0 && part.elements != info.shape.elements()) {
        core::fail<OptionError>(
            "LAMB: of '", info.name, "' ", part.elements, " elements of ", info.shape.elements(),
            " are to be updated here, but its step needs whole tensors. Shard by grain `tensor`.");
      }
      largest = std::max(largest, part.elements);
    }
    auto& ledger = parameters.runtime().ledger();
    direction_ = tensor::Memory<R>(ledger, core::Category::workspace, largest);
    blocks_ =
        tensor::Memory<double>(ledger, core::Category::workspace, kernels::sum_blocks(largest));
  }

  void advance() { ++steps_; }

  void run(const core::Compute& compute, std::size_t part, const Update<R>& update) {
    const Part& at = first_.part(part);
    const auto n = static_cast<std::size_t>(at.elements);
    const std::span<R> weights(update.weights, n), u = direction_.span().first(n);
    std::copy(weights.begin(), weights.end(), u.begin());
    kernels::adamw_step<R, R>(
        compute,
        {.lr = 1.0F,
         .beta1 = options_.beta1,
         .beta2 = options_.beta2,
         .eps = options_.eps,
         .weight_decay = decay_of(parameters_.info(at.id).role, options_.weight_decay)},
        steps_, update.factor, u, {update.gradient, n}, first_.values(part), second_.values(part),
        {});
    kernels::scale<R>(compute, u, R{-1}, u);
    kernels::add<R>(compute, weights, u, u);
    const auto length = [&](std::span<const R> x) {
      return kernels::sum_of_squares<R>(
          compute, x,
          blocks_.span().first(static_cast<std::size_t>(kernels::sum_blocks(std::ssize(x)))));
    };
    const double of_weights = length(weights), of_direction = length(u);
    R factor{0};
    compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      const double ratio = std::sqrt(of_weights / of_direction);
      const bool usable =
          of_weights > 0.0 && of_direction > 0.0 && ratio < std::numeric_limits<double>::infinity();
      factor = static_cast<R>(-static_cast<double>(update.lr) * (usable ? ratio : 1.0));
    });
    kernels::scale<R>(compute, u, factor, u);
    kernels::add<R>(compute, weights, u, weights);
  }
  template <class S>
  void run(const core::Compute& compute, std::size_t part, const Update<R>& update, S* copy) {
    run(compute, part, update);
    const auto n = static_cast<std::size_t>(first_.part(part).elements);
    if (copy != nullptr)
      kernels::cast<R, S>(compute, std::span<const R>(update.weights, n), {copy, n});
  }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const Options& options() const { return options_; }

  /// lamb.m.<parameter>, lamb.v.<parameter> in R, and lamb.steps.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("lamb.steps", steps_);
    first_.visit_state(visitor, "lamb.m.");
    second_.visit_state(visitor, "lamb.v.");
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
          "LAMB: beta1 ", options.beta1, ", beta2 ", options.beta2, ", eps ", options.eps,
          ", weight_decay ", options.weight_decay,
          "; wanted both betas in [0, 1), eps > 0 and weight_decay >= 0, all finite. ",
          "Is a learning rate in the place of a beta?");
    }
    return options;
  }

  const tensor::ParameterTable& parameters_;
  Options options_;
  Moments<R> first_, second_;
  tensor::Memory<R> direction_;
  tensor::Memory<double> blocks_;
  std::int64_t steps_ = 0;
};

/// optim::Lamb optimizer(parameters, LambOptions{.weight_decay = 0.01});
template <class T>
class Lamb : public Direct<LambRule<T>, T> {
 public:
  using Direct<LambRule<T>, T>::Direct;
};
template <class T>
Lamb(Parameters<T>&) -> Lamb<T>;
template <class T>
Lamb(Parameters<T>&, const LambOptions&) -> Lamb<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
