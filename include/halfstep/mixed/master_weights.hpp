// SPDX-License-Identifier: MIT
// Training of 16-bit weights: a float master copy that the optimizer updates, and from which the
// same pass writes the working weights. For float and double it is the optimizer itself, so that a
// training loop is written once. Not for: the loss scale (loss_scaler.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/optim/sgd.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// `Optimizer` over Parameters<T>; T and Optimizer are deduced:
///   mixed::MasterWeights optimizer(parameters, AdamWOptions{.weight_decay = 0.1});
///
/// T = float or double: there is no master, and this is Optimizer<T>, with `reload` doing nothing.
/// T = bf16 or fp16: with AdamW 18 bytes a parameter in all: 2 weight, 4 gradient, 4 master, 8
/// moments.
template <template <class> class Optimizer, class T>
class MasterWeights : public Optimizer<T> {
 public:
  using Optimizer<T>::Optimizer;
  void reload() {}
  /// The full-precision weights under the parameters' own names.
  template <tensor::state_visitor Visitor>
  void visit_weights(Visitor& visitor) {
    this->parameters().visit_state(visitor);
  }
};

/// Always: weight = master rounded to T (nearest even). The masters start as the exact float
/// initial values where the store's weights are those values rounded, else (loaded ones) as the
/// weights.
///
/// Calling `reload` before every step is training without a master copy: what is below half an ulp
/// of a weight is lost each time.
template <template <class> class Optimizer, class T>
requires numeric::is_16bit<T>
class MasterWeights<Optimizer, T> {
 public:
  using Element = T;
  using Rule = typename Optimizer<float>::Rule;
  using Options = typename Rule::Options;
  static constexpr optim::Grain grain = Rule::grain;

  /// Lays the store out, which must outlive it: the model is built before.
  /// @throws OptionError, StateError as the optimizer does.
  explicit MasterWeights(Parameters<T>& parameters, const Options& options = {})
      : parameters_(parameters),
        rule_(parameters, options, optim::whole_parts(parameters)),
        masters_(parameters, optim::whole_parts(parameters), core::Category::master) {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto weights = parameters_.values(ParameterId{i});
      const auto master = masters_.values(i);
      parameters_.initial_values({i}, master);
      bool initial = true;
      for (std::size_t e = 0; e < master.size() && initial; ++e)
        initial = static_cast<T>(master[e]).bits() == weights[e].bits();
      if (!initial) widen(i);
    }
  }

  /// One update of masters, and of the weights from them, in one pass; or none: see optim::Direct.
  template <class Gradients>
  optim::StepResult step(Gradients&& gradients, float lr) {
    HALFSTEP_REQUIRE_READY_FOR_STEP(Gradients);
    if constexpr (optim::ready_for_step<Gradients>) {
      optim::StepResult result = optim::checked_result(gradients, parameters_, lr, Rule::name);
      if (result.applied) {
        rule_.advance();
        T* const weights = parameters_.write_all().data();
        const auto compute = parameters_.runtime().compute();
        for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
          rule_.run(compute, i,
                    optim::Update<float>{masters_.values(i).data(), gradients.sum({i}).data(),
                                         gradients.factor(), lr},
                    weights + parameters_.infos()[i].offset);
        }
      }
      std::forward<Gradients>(gradients).settle(result);
      return result;
    } else {
      return {};
    }
  }

  /// Makes the masters from the weights: after weights alone were loaded or written.
  void reload() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      widen(i);
  }

  /// Updates applied so far.
  [[nodiscard]] std::int64_t steps() const { return rule_.steps(); }
  [[nodiscard]] const Options& options() const { return rule_.options(); }
  [[nodiscard]] std::vector<optim::Group> groups() const {
    return optim::groups(parameters_, options().weight_decay);
  }
  /// The masters of one parameter.
  [[nodiscard]] std::span<const float> master(ParameterId id) { return masters_.values(id.index); }

  /// Taken over the masters under the parameters' own names: equal to that of a float run with
  /// these weights.
  [[nodiscard]] std::uint64_t weights_hash() {
    tensor::StateHash hash;
    masters_.visit_state(hash, "");
    return hash.value();
  }
  /// The masters, as F32, under the parameters' own names. The weights follow what was stored
  /// there.
  template <tensor::state_visitor Visitor>
  void visit_weights(Visitor& visitor) {
    masters_.visit_state(visitor, "");
    narrow();
  }
  /// The rule's state, and master.<parameter> as F32. The weights follow what was stored there.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    rule_.visit_state(visitor);
    masters_.visit_state(visitor, "master.");
    narrow();
  }

 private:
  // Conversions are integer code: the caller's floating-point environment has no say.
  void widen(std::uint32_t index) {
    const auto weights = parameters_.values(ParameterId{index});
    const auto master = masters_.values(index);
    for (std::size_t e = 0; e < master.size(); ++e)
      master[e] = static_cast<float>(weights[e]);
  }
  void narrow() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto weights = parameters_.write({i});
      const auto master = masters_.values(i);
      for (std::size_t e = 0; e < master.size(); ++e)
        weights[e] = static_cast<T>(master[e]);
    }
  }

  Parameters<T>& parameters_;
  Rule rule_;
  optim::Moments<float> masters_;
};

template <class T>
MasterWeights(Parameters<T>&) -> MasterWeights<optim::AdamW, T>;
template <class T>
MasterWeights(Parameters<T>&, const optim::AdamWOptions&) -> MasterWeights<optim::AdamW, T>;
template <class T>
MasterWeights(Parameters<T>&, const optim::SgdOptions&) -> MasterWeights<optim::Sgd, T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
