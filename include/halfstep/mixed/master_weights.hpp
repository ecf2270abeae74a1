// SPDX-License-Identifier: MIT
// Training of 16-bit weights: any optimizer, its rule computed in float, and whatever is kept of a
// weight besides its 16 bits, in one pass. For float and double it is the optimizer itself, so that
// a training loop is written once. Not for: the loss scale (loss_scaler.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/pack.hpp>
#include <halfstep/mixed/detail/keepers.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/bytes.hpp>
#include <halfstep/optim/direct.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/optim/sgd.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

namespace detail {

/// The optimizer of weights that are no 16-bit ones.
template <template <class> class Optimizer, class T, class State>
struct WithoutMaster {
  using type =
      optim::Direct<typename CheckedRule<typename Optimizer<float>::Rule, State, T>::type, T>;
};
template <template <class> class Optimizer, class T>
struct WithoutMaster<Optimizer, T, FloatMaster<>> {
  using type = Optimizer<T>;
};
template <template <class> class Optimizer, class First, class Second>
requires(!std::is_same_v<FloatMaster<First, Second>, FloatMaster<>>) struct WithoutMaster<
    Optimizer, float, FloatMaster<First, Second>> {
  static_assert(takes_formats<typename Optimizer<float>::Rule, FloatMaster<First, Second>>,
                "MasterWeights: this optimizer's rule has no template In<First, Second> that gives "
                "its state other formats");
  using type = optim::Direct<
      typename RuleIn<typename Optimizer<float>::Rule, FloatMaster<First, Second>>::type, float>;
};

}  // namespace detail

/// `Optimizer` over Parameters<T>; T and Optimizer are deduced, and so is State:
///   mixed::MasterWeights optimizer(parameters, AdamWOptions{.weight_decay = 0.1});
///   mixed::MasterWeights optimizer(parameters, AdamWOptions{}, mixed::SplitMaster<>{});
///   mixed::MasterWeights<MyOptimizer, bf16, mixed::Kahan<>> optimizer(parameters, {});
///
/// T = float or double: there is no master, and this is Optimizer<T>, with `reload` doing nothing.
/// For float, FloatMaster<First, Second> chooses the moments' formats.
/// T = bf16 or fp16: State says what is kept of a weight, and in what the moments are: see
/// state_formats.hpp.
template <template <class> class Optimizer, class T, state_formats State = FloatMaster<>>
class MasterWeights : public detail::WithoutMaster<Optimizer, T, State>::type {
  using Base = typename detail::WithoutMaster<Optimizer, T, State>::type;

 public:
  explicit MasterWeights(Parameters<T>& parameters, const typename Base::Options& options = {},
                         State /*formats*/ = {})
      : Base(parameters, options) {}
  void reload() {}
  /// The full-precision weights under the parameters' own names.
  template <tensor::state_visitor Visitor>
  void visit_weights(Visitor& visitor) {
    this->parameters().visit_state(visitor);
  }
};

/// The rule computes in float; decay, update and clipping are in float too, and one rounding ends
/// the pass. `Optimizer<float>::Rule` is any rule of optim/direct.hpp. One that knows floats alone
/// (no run on held weights) runs on a float copy of one parameter at a time: three passes, and the
/// largest parameter in float in the ledger's workspace; with FloatMaster it runs on the masters
/// and a second pass rounds them.
///
/// A float is first kept of every weight from its initial value before rounding, where the store's
/// weights are those values rounded; of loaded ones, from the weights. Weights that others write or
/// load later are noticed by their versions at the next step, hash or visit: a parameter with such
/// a weight starts anew from its weights, as a whole. (With FloatMaster only if a weight is not its
/// master rounded.)
///
/// A skipped step changes no weight, no state and no step count, so no draw either.
template <template <class> class Optimizer, class T, state_formats State>
requires numeric::is_16bit<T>
class MasterWeights<Optimizer, T, State> {
 public:
  using Element = T;
  using Rule = typename detail::CheckedRule<typename Optimizer<float>::Rule, State, T>::type;
  using Options = typename Rule::Options;
  using Formats = State;
  static constexpr optim::Grain grain = Rule::grain;

  /// Lays the store out, which must outlive it: the model is built before.
  /// @throws OptionError, StateError as the optimizer does.
  explicit MasterWeights(Parameters<T>& parameters, const Options& options = {},
                         State /*formats*/ = {})
      : parameters_(parameters),
        rule_(parameters, options, optim::whole_parts(parameters)),
        keeper_((parameters.lay_out(), parameters)),
        versions_(parameters.size()) {
    if constexpr (!one_pass && State::keep != Keep::master) {
      std::int64_t largest = 0;
      for (const auto& info : parameters.infos())
        largest = std::max(largest, info.elements);
      floats_ =
          tensor::Memory<float>(parameters.runtime().ledger(), core::Category::workspace, largest);
    }
    start();
  }

  /// One update of the weights and what is kept of them, or none: see optim::Direct.
  template <class Gradients>
  optim::StepResult step(Gradients&& gradients, float lr) {
    HALFSTEP_REQUIRE_READY_FOR_STEP(Gradients);
    if constexpr (optim::ready_for_step<Gradients>) {
      using G = typename std::remove_cvref_t<Gradients>::gradient;
      static_assert(std::is_same_v<G, typename State::gradient>,
                    "MasterWeights: these gradients have another format than the one that the "
                    "state formats name as their third");
      optim::StepResult result = optim::checked_result(gradients, parameters_, lr, Rule::name);
      if (result.applied) {
        sync();
        rule_.advance();
        T* const weights = parameters_.write_all().data();
        for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
          const auto& info = parameters_.infos()[i];
          update(i, {weights + info.offset, static_cast<std::size_t>(info.elements)},
                 optim::Descent<G>{gradients.sum({i}).data(), gradients.factor(), lr});
        }
        remember();
      }
      std::forward<Gradients>(gradients).settle(result);
      return result;
    } else {
      return {};
    }
  }

  /// Makes what is kept of the weights from the weights alone.
  void reload() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      keeper_.adopt(i);
    remember();
  }

  /// What one parameter's element takes, of a rule whose state is per element.
  [[nodiscard]] static constexpr optim::Bytes bytes_per_parameter(
      const Options& options = {}) requires(grain == optim::Grain::element) {
    return {sizeof(T), sizeof(typename State::gradient), State::master_bytes,
            Rule::moment_bytes(options)};
  }
  /// What all of it takes, for any rule: its state is counted as visit_state shows it.
  [[nodiscard]] optim::Bytes bytes() {
    optim::CountBytes state;
    rule_.visit_state(state);
    const auto n = parameters_.count();
    return {static_cast<std::int64_t>(sizeof(T)) * n,
            static_cast<std::int64_t>(sizeof(typename State::gradient)) * n,
            State::master_bytes * n, state.bytes()};
  }

  /// Updates applied so far.
  [[nodiscard]] std::int64_t steps() const { return rule_.steps(); }
  [[nodiscard]] const Options& options() const { return rule_.options(); }
  [[nodiscard]] std::vector<optim::Group> groups() const {
    return optim::groups(parameters_, options().weight_decay);
  }
  /// The masters of one parameter.
  [[nodiscard]] std::span<const float> master(ParameterId id) requires(State::keep ==
                                                                       Keep::master) {
    return keeper_.values(id.index);
  }

  /// Taken over the masters (split ones joined: 4 bytes a parameter of workspace meanwhile) under
  /// the parameters' own names, equal to that of a float run with these weights; over the 16-bit
  /// weights where there is no master.
  [[nodiscard]] std::uint64_t weights_hash() {
    sync();
    return keeper_.weights_hash();
  }
  /// The weights under the parameters' own names: the masters as F32 with FloatMaster, and then the
  /// weights follow what was stored there; else the 16-bit weights.
  template <tensor::state_visitor Visitor>
  void visit_weights(Visitor& visitor) {
    sync();
    keeper_.visit_weights(visitor);
    if constexpr (State::keep == Keep::master) {
      remember();
    } else {
      sync();
    }
  }
  /// The rule's state, and of every parameter
  ///   FloatMaster  master.<parameter> as F32; the weights follow what was stored there
  ///   SplitMaster  weights.<parameter> as BF16 and low.<parameter> as U16
  ///   Kahan        weights.<parameter> and compensation.<parameter> in T
  ///   Stochastic   weights.<parameter> in T
  /// so that it is complete: whether the store's weights are loaded before, after or not at all
  /// does not matter.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    sync();
    rule_.visit_state(visitor);
    keeper_.visit_state(visitor);
    remember();
  }

 private:
  using HeldWeights = decltype(std::declval<detail::Keeper<State::keep, T>&>().held(
      0U, std::span<T>(), std::int64_t{0}));
  static constexpr bool one_pass =
      requires(Rule & rule, const core::Compute& compute,
               const optim::Descent<typename State::gradient>& by, const HeldWeights& weights) {
    rule.run(compute, std::size_t{0}, by, weights);
  };
  static_assert(
      one_pass || std::is_same_v<typename State::gradient, float>,
      "MasterWeights: this optimizer's rule has no run on held weights (optim/direct.hpp) "
      "and takes float gradients alone");

  template <class G>
  void update(std::uint32_t i, std::span<T> weights, const optim::Descent<G>& by) {
    const auto compute = parameters_.runtime().compute();
    if constexpr (one_pass) {
      rule_.run(compute, i, by, keeper_.held(i, weights, rule_.steps() - 1));
    } else if constexpr (State::keep == Keep::master) {
      const std::span<float> masters = keeper_.values(i);
      rule_.run(compute, i, optim::Update<float>{masters.data(), by.gradient, by.factor, by.lr});
      numeric::convert(compute, std::span<const float>(masters), weights);
    } else {
      const auto held = keeper_.held(i, weights, rule_.steps() - 1);
      const std::span<float> floats = floats_.span().first(weights.size());
      kernels::unpack(compute, held, floats);
      rule_.run(compute, i, optim::Update<float>{floats.data(), by.gradient, by.factor, by.lr});
      kernels::pack(compute, std::span<const float>(floats), held);
    }
  }

  // From the initial values before they were rounded, or from loaded weights.
  void start() {
    if (parameters_.runtime().dry()) return remember();
    std::vector<float> initial;
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto weights = parameters_.values(ParameterId{i});
      initial.resize(weights.size());
      parameters_.initial_values({i}, initial);
      bool untouched = true;
      for (std::size_t e = 0; e < weights.size() && untouched; ++e)
        untouched = static_cast<T>(initial[e]).bits() == weights[e].bits();
      if (!untouched) {
        keeper_.adopt(i);
      } else if constexpr (State::keep == Keep::master) {
        std::copy(initial.begin(), initial.end(), keeper_.values(i).begin());
      } else if constexpr (State::keep != Keep::nothing) {
        kernels::pack(parameters_.runtime().compute(), std::span<const float>(initial),
                      keeper_.held(i, parameters_.write({i}), 0));
      }
    }
    remember();
  }
  void sync() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_.infos()[i].version != versions_[i] && !keeper_.agrees(i)) keeper_.adopt(i);
    }
    remember();
  }
  void remember() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i)
      versions_[i] = parameters_.infos()[i].version;
  }

  Parameters<T>& parameters_;
  Rule rule_;
  detail::Keeper<State::keep, T> keeper_;
  std::vector<std::uint32_t> versions_;
  tensor::Memory<float> floats_;  // of one parameter, for rules that know floats alone
};

template <class T>
MasterWeights(Parameters<T>&) -> MasterWeights<optim::AdamW, T>;
template <class T, state_formats State = FloatMaster<>>
MasterWeights(Parameters<T>&, const optim::AdamWOptions&, State = {})
    -> MasterWeights<optim::AdamW, T, State>;
template <class T, state_formats State = FloatMaster<>>
MasterWeights(Parameters<T>&, const optim::SgdOptions&, State = {})
    -> MasterWeights<optim::Sgd, T, State>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
