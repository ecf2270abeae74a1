// SPDX-License-Identifier: MIT
// What the state of 16-bit training is held in: how a weight keeps what its format cannot, and the
// formats of moments and gradients. Types that MasterWeights takes; what they do is its business.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/optim/moments.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Where the part of a weight goes that its 16 bits cannot hold.
enum class Keep : std::uint8_t {
  master,  ///< a float copy that the optimizer updates; the weights are it, rounded
  split,   ///< the other 16 bits of the float, of which a bf16 weight is the rounded upper half
  rest,    ///< a second 16-bit number per weight: what the last rounding lost
  nothing  ///< nowhere: weights are rounded by chance, right on average
};

/// A float master copy: the default. First, Second: the formats of the moments, float, bf16, fp16,
/// or optim::drawn of a 16-bit one. Gradient: float, bf16 or fp16; what the library's tape and
/// accumulator hand over is float.
///
/// Bytes per parameter with AdamW and everything else in float: 18. (A float model: 16.)
template <optim::moment_format First = float, optim::moment_format Second = First,
          numeric::real_element GradientFormat = float>
struct FloatMaster {
  static constexpr Keep keep = Keep::master;
  static constexpr std::int64_t master_bytes = 4;
  using first_moment = First;
  using second_moment = Second;
  using gradient = GradientFormat;
};

/// The same float, in two halves of 16 bits, of which the upper one, rounded, is the bf16 weight:
/// kernels::Split has the rule. 16 bytes instead of 18; 12 with moments in bf16. Masters, moments
/// and weights_hash are those of a float master given the same gradients; the weights differ from
/// its weights where a master lies midway between two bf16 numbers, once in 65,536.
template <optim::moment_format First = float, optim::moment_format Second = First,
          numeric::real_element GradientFormat = float>
struct SplitMaster {
  static constexpr Keep keep = Keep::split;
  static constexpr std::int64_t master_bytes = 2;
  using first_moment = First;
  using second_moment = Second;
  using gradient = GradientFormat;
};

/// No master, but Kahan's compensation in the weights' format: kernels::Compensated has the rule.
/// Keeps updates down to 2^-17 of a weight in bf16, 2^-22 in fp16; 10 bytes with moments and
/// gradients in bf16.
template <optim::moment_format First = float, optim::moment_format Second = First,
          numeric::real_element GradientFormat = float>
struct Kahan {
  static constexpr Keep keep = Keep::rest;
  static constexpr std::int64_t master_bytes = 2;
  using first_moment = First;
  using second_moment = Second;
  using gradient = GradientFormat;
};

/// No master: every new weight is rounded by chance to one of its two neighbours, so that an update
/// of a tenth of an ulp moves one weight in ten: kernels::Drawn has the rule. Moments in 16 bits
/// are rounded so too. 8 bytes with moments and gradients in bf16, 14 with both in float. The
/// weights walk at random by about half an ulp a step around those of a float run.
template <optim::moment_format First = float, optim::moment_format Second = First,
          numeric::real_element GradientFormat = float>
struct Stochastic {
 private:
  template <class Format>
  struct ByChance {
    using type = Format;
  };
  template <class Format>
  requires numeric::is_16bit<Format>
  struct ByChance<Format> {
    using type = optim::drawn<Format>;
  };

 public:
  static constexpr Keep keep = Keep::nothing;
  static constexpr std::int64_t master_bytes = 0;
  using first_moment = typename ByChance<First>::type;
  using second_moment = typename ByChance<Second>::type;
  using gradient = GradientFormat;
};

/// One of the four above, or a type of one's own with the same members.
template <class State>
concept state_formats = requires {
  { State::keep } -> std::convertible_to<Keep>;
  { State::master_bytes } -> std::convertible_to<std::int64_t>;
  typename State::first_moment;
  typename State::second_moment;
  typename State::gradient;
};

namespace detail {

template <class Format>
inline constexpr bool narrow_moment =
    std::same_as<Format, float> || numeric::is_16bit<optim::stored_as<Format>>;

template <class Rule, class State>
concept takes_formats = requires {
  typename Rule::template In<typename State::first_moment, typename State::second_moment>;
};
template <class Rule, class State>
struct RuleIn {
  using type = Rule;
};
template <class Rule, class State>
requires takes_formats<Rule, State>
struct RuleIn<Rule, State> {
  using type =
      typename Rule::template In<typename State::first_moment, typename State::second_moment>;
};

/// Rule with the moments that State asks for, and every reason for which there may be none.
template <class Rule, class State, class T>
struct CheckedRule {
  static_assert(numeric::is_16bit<T>,
                "MasterWeights: a float or double weight is its own master, so there is nothing to "
                "split, compensate or round by chance: leave the state formats away, or use "
                "FloatMaster to choose the moments' formats of a float model");
  static_assert(State::keep != Keep::split || std::same_as<T, bf16>,
                "MasterWeights: a split master needs bf16 weights, which are the upper half of a "
                "float; fp16 weights have a float master, Kahan or Stochastic");
  static_assert(narrow_moment<typename State::first_moment> &&
                    narrow_moment<typename State::second_moment>,
                "MasterWeights: moments of 16-bit weights are float, bf16, fp16, drawn<bf16> or "
                "drawn<fp16>");
  static_assert(std::same_as<typename State::gradient, float> ||
                    numeric::is_16bit<typename State::gradient>,
                "MasterWeights: gradients of 16-bit weights are float, bf16 or fp16");
  static_assert(takes_formats<Rule, State> || (std::same_as<typename State::first_moment, float> &&
                                               std::same_as<typename State::second_moment, float>),
                "MasterWeights: this optimizer's rule keeps its state in float and has no "
                "template In<First, Second> that gives it other formats");
  using type = typename RuleIn<Rule, State>::type;
};

}  // namespace detail
}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
