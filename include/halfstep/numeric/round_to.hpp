// SPDX-License-Identifier: MIT
// One number to one format by the policies that the caller names: the conversion behind every
// other. Not for arrays (convert.hpp), and not needed for the default, which `T{x}` is.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/detail/round.hpp>
#include <halfstep/numeric/rounding.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

namespace detail {

template <class T>
inline constexpr bool is_small_float = false;
template <class Format>
inline constexpr bool is_small_float<small_float<Format>> = true;

template <class Format, Rounding R, Overflow O, class From>
[[nodiscard]] constexpr std::uint32_t encode_any(From x, std::uint64_t random) {
  if constexpr (std::integral<From>) {
    return encode_integer<Format, R, O>(x, random);
  } else if constexpr (std::is_floating_point_v<From>) {
    return encode<Format, R, O>(x, random);
  } else {
    return encode<Format, R, O>(static_cast<float>(x), random);  // exact
  }
}

}  // namespace detail

/// What round_to takes: float, double, long double, an integer or a small format.
template <class T>
concept roundable = std::is_arithmetic_v<T> || detail::is_small_float<T>;

/// `x` as a To, rounded once: in integers, so that no rounding mode, FTZ, DAZ or -ffast-math
/// matters.
///
///   To      float or a small format
///   R, O    how it is rounded, and what becomes of what lies beyond the largest value
///   random  read by Rounding::stochastic alone: 64 uniform bits. P(away from zero) is exactly the
///           part that is cut off if that is at most 64 bits long, as it always is for integers,
///           and for floats unless they are 2^41 times smaller than the smallest number of the
///           format. Where it is longer, the probability is too small by less than 2^-64.
///
/// NaNs, infinities and formats that lack either: as small_float and Overflow say.
template <class To, Rounding R = Rounding::nearest_even, Overflow O = Overflow::infinity,
          roundable From>
requires(std::same_as<To, float> || detail::is_small_float<To>) [[nodiscard]] constexpr To
    round_to(From x, std::uint64_t random = 0) {
  if constexpr (std::same_as<To, float>) {
    return std::bit_cast<float>(detail::encode_any<IeeeFormat<8, 23>, R, O>(x, random));
  } else {
    using storage = typename To::storage;
    const auto code = detail::encode_any<typename To::format, R, O>(x, random);
    return To::from_bits(static_cast<storage>(code));
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
