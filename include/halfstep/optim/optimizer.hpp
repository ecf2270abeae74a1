// SPDX-License-Identifier: MIT
// What an optimizer is: the concept that training loops, precision wrappers and sharding are
// written against, what a step takes and what it reports. Not for: rules (adamw.hpp, sgd.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// On what a rule may run alone: any range of elements, or whole tensors only (LAMB, Adafactor,
/// Muon). Sharding cuts at blocks of 1024 elements for the first, at tensors for the second.
enum class Grain : std::uint8_t { element, tensor };

/// Why an update was not applied.
enum class Skip : std::uint8_t { no, non_finite, no_targets };

[[nodiscard]] constexpr std::string_view to_string(Skip why) {
  constexpr std::string_view names[]{"applied", "non-finite gradient", "no valid targets"};
  return names[static_cast<std::size_t>(why)];
}

/// What a step did to the loss scale. Where several windows share a scaler, the step that ends the
/// last of them says it, and the others say none.
enum class ScaleChange : std::uint8_t {
  none,      ///< fixed, or a good step among others
  grown,
  cut,
  spared,    ///< an overflow that hysteresis or tolerance forgave
  at_floor,  ///< an overflow at the smallest scale, which stays
  stop,      ///< the same, and the scaler's options want the run to end here
};

[[nodiscard]] constexpr std::string_view to_string(ScaleChange change) {
  constexpr std::string_view names[]{"none", "grown", "cut", "spared", "at floor", "stop"};
  return names[static_cast<std::size_t>(change)];
}

/// What a step did. A skipped one changed nothing but the loss scale.
struct StepResult {
  bool applied = true;
  Skip why = Skip::no;
  std::string first_bad;  ///< of the first parameter, in order of registration, with a bad gradient
  std::int64_t bad_values = 0;  ///< non-finite gradient values in all parameters
  float norm = 0.0F;            ///< of the gradient, unscaled, before clipping
  float clipped_by = 1.0F;      ///< what clipping multiplied the gradient by; 1 if nothing
  float scale = 1.0F;           ///< loss scale from now on
  ScaleChange scale_change = ScaleChange::none;
  explicit operator bool() const { return applied; }
};

/// The summed gradient of a step, ready for an update: mixed::Unscaled, later its sharded kin.
///
///   parameters()  the store that the gradient belongs to
///   sum(id)       [elements] as the sinks left it: still scaled, not yet clipped
///   factor()      what each element is to be multiplied by: unscale x clip
///   result()      as the step is to report it: whether to apply it at all, and why not
///   settle(r)     told last and once, applied or not: updates the loss scaler, ends the window,
///                 and writes the new scale and what became of it to the result. Throws StateError
///                 if it was told before, NumericError where the scaler wants an error.
template <class G>
concept final_gradients = requires(const G& read, G&& last, ParameterId id, StepResult& result) {
  typename G::gradient;
  { read.parameters() } -> std::same_as<tensor::ParameterTable&>;
  { read.sum(id) } -> std::same_as<std::span<const typename G::gradient>>;
  { read.factor() } -> std::same_as<double>;
  { read.result() } -> std::same_as<StepResult>;
  { std::move(last).settle(result) } -> std::same_as<void>;
};

/// The role of an optimizer. An implementer promises:
///   - `step(std::move(gradients), lr)` applies one update, or, if the gradients say so, changes
///     nothing; either way it settles them, and returns what happened;
///   - `steps()` counts applied updates: schedules and bias corrections are keyed by it;
///   - `visit_state` shows all of its state: (name, dtype, logical shape, range, bytes), scalars;
///   - `weights_hash()` is taken over names, shapes and bits of the weights in full precision, so
///     that it does not depend on layout;
///   - a rule of grain `element` gives each element the same bits whatever range it runs on.
template <class O, class G>
concept optimizer = final_gradients<G> &&
    requires(O& o, const O& read, G&& gradients, tensor::StateHash& visitor) {
  { O::grain } -> std::convertible_to<Grain>;
  { o.step(std::move(gradients), 1.0F) } -> std::same_as<StepResult>;
  { read.steps() } -> std::same_as<std::int64_t>;
  { o.weights_hash() } -> std::same_as<std::uint64_t>;
  o.visit_state(visitor);
};

/// The part of a parameter that a rule keeps state for and updates.
struct Part {
  ParameterId id;
  std::int64_t first = 0;  ///< in elements of the parameter; at a block of 1024 if it is sharded
  std::int64_t elements = 0;
};

/// Every parameter, whole. @throws StateError if there is none.
[[nodiscard]] inline std::vector<Part> whole_parts(const tensor::ParameterTable& parameters) {
  if (parameters.size() == 0) {
    core::fail<StateError>(
        "optimizer: the store holds no parameters. Build the model before its optimizer.");
  }
  std::vector<Part> parts;
  for (std::uint32_t i = 0; i < parameters.size(); ++i)
    parts.push_back({{i}, 0, parameters.infos()[i].elements});
  return parts;
}

/// What a rule is given for one part: pointers to its first element.
template <class R>
struct Update {
  R* weights = nullptr;         ///< updated
  const R* gradient = nullptr;  ///< as summed
  double factor = 1.0;          ///< what the gradient is multiplied by first
  float lr = 0.0F;
};

/// The checks that every step begins with, for implementers: the gradients' result as it stands,
/// before anything is changed. `what` names the optimizer in messages.
template <class G>
[[nodiscard]] StepResult checked_result(const G& gradients,
                                        const tensor::ParameterTable& parameters, float lr,
                                        std::string_view what) {
  StepResult result = gradients.result();
  if (&gradients.parameters() != &parameters) {
    core::fail<StateError>(
        what, ": the gradients belong to another store than the optimizer's parameters. ",
        "Was the accumulator made for another model?");
  }
  if (!(lr >= 0.0F && lr < std::numeric_limits<float>::infinity())) {
    core::fail<OptionError>(what, ": lr is ", lr,
                            ", wanted a finite number of at least 0. Did a schedule divide by 0?");
  }
  return result;
}

/// True for what std::move(window).unscale() gives; used where a static_assert explains the rest.
template <class G>
inline constexpr bool ready_for_step =
    !std::is_lvalue_reference_v<G> && final_gradients<std::remove_cvref_t<G>>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim

/// The one message for every wrong order of calls that the types catch at a step.
#define HALFSTEP_REQUIRE_READY_FOR_STEP(G)                                                    \
  static_assert(                                                                              \
      ::halfstep::optim::ready_for_step<G>,                                                   \
      "optimizer.step takes unscaled gradients, once: step(std::move(window).unscale(), lr) " \
      "or step(std::move(window).unscale().clip_norm(limit), lr), or std::move of such a value")
