// SPDX-License-Identifier: MIT
// An optimizer that updates the weights of a store in place: a rule, run over every parameter. Base
// of AdamW<T> and Sgd<T> for float and double. Not for 16-bit weights: mixed/master_weights.hpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/optim/bytes.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// `Rule` over `Parameters<T>`. The store must outlive it; constructing it lays the store out, so
/// the model is built before.
///
/// A rule for state in R (float or double) is a class with
///   Options, grain, name                           name: "AdamW", for messages
///   Rule(ParameterTable&, Options, vector<Part>)   state for these parts, zero, in the ledger
///   advance()                                      an update begins: the step count goes up
///   run(Compute, part, Update<R>)                  updates part number `part`
///   steps(), options(), visit_state(visitor)
/// and may have, as AdamWRule and SgdRule do,
///   run(Compute, part, Descent<G>, held weights)   the same over weights held in any way of
///                                                  kernels/held.hpp: mixed::MasterWeights then
///                                                  updates 16-bit weights in one pass
///   In<M, V>                                       the rule with moments in other formats
///   moment_bytes(Options)                          constexpr, bytes of state per element
template <class RuleType, class T>
class Direct {
  static_assert(!numeric::is_16bit<T>,
                "weights of 16 bits lose updates below half an ulp: wrap the optimizer, as in "
                "mixed::MasterWeights optimizer(parameters, AdamWOptions{...}), which keeps a "
                "float master copy");
  static_assert(numeric::real_element<T>,
                "an optimizer updates real weights: build the model with float or double");

 public:
  using Element = T;
  using Rule = RuleType;
  using Options = typename Rule::Options;
  static constexpr Grain grain = Rule::grain;

  explicit Direct(Parameters<T>& parameters, const Options& options = {})
      : parameters_(parameters), rule_(parameters, options, whole_parts(parameters)) {
    parameters.lay_out();
  }

  /// One update with learning rate `lr`, or none if the gradients are not finite or had no targets.
  /// A parameter that took no part in the step has gradient 0: it decays and its moments do.
  /// @throws OptionError for an lr that is negative or not finite; StateError for gradients that
  /// were used before or belong to another store. Both leave everything as it was.
  template <class Gradients>
  StepResult step(Gradients&& gradients, float lr) {
    HALFSTEP_REQUIRE_READY_FOR_STEP(Gradients);
    if constexpr (ready_for_step<Gradients>) {
      StepResult result = checked_result(gradients, parameters_, lr, Rule::name);
      if (result.applied) {
        rule_.advance();
        T* const weights = parameters_.write_all().data();
        const auto compute = parameters_.runtime().compute();
        for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
          rule_.run(compute, i,
                    Update<T>{weights + parameters_.infos()[i].offset, gradients.sum({i}).data(),
                              gradients.factor(), lr});
        }
      }
      std::forward<Gradients>(gradients).settle(result);
      return result;
    } else {
      return {};
    }
  }

  /// What one element takes, of a rule whose state is per element.
  [[nodiscard]] static constexpr Bytes bytes_per_parameter(const Options& options = {}) requires(
      Rule::grain == Grain::element) {
    constexpr auto gradient = static_cast<std::int64_t>(sizeof(typename Parameters<T>::gradient));
    return {sizeof(T), gradient, 0, Rule::moment_bytes(options)};
  }
  /// What all of it takes, for any rule: its state is counted as visit_state shows it.
  [[nodiscard]] Bytes bytes() {
    CountBytes state;
    rule_.visit_state(state);
    const auto n = parameters_.count();
    constexpr auto gradient = static_cast<std::int64_t>(sizeof(typename Parameters<T>::gradient));
    return {static_cast<std::int64_t>(sizeof(T)) * n, gradient * n, 0, state.bytes()};
  }

  /// Updates applied so far.
  [[nodiscard]] std::int64_t steps() const { return rule_.steps(); }
  [[nodiscard]] const Options& options() const { return rule_.options(); }
  /// What decays and what does not, for the start of a log.
  [[nodiscard]] std::vector<Group> groups() const {
    return optim::groups(parameters_, options().weight_decay);
  }
  [[nodiscard]] std::uint64_t weights_hash() { return tensor::state_hash(parameters_); }

  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    rule_.visit_state(visitor);
  }

 protected:
  [[nodiscard]] Parameters<T>& parameters() const { return parameters_; }

 private:
  Parameters<T>& parameters_;
  Rule rule_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
