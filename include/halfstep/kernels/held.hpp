// SPDX-License-Identifier: MIT
// How an array of numbers that an optimizer computes in float is held between steps: as it is, with
// a rounded copy, in two halves, with what rounding lost beside it, or rounded by chance. Views;
// not for owning memory (optim/moments.hpp) and not for arithmetic (detail/held.inc).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

namespace detail {

[[nodiscard]] inline std::int64_t same_size(const char* what, std::size_t a, std::size_t b) {
  if (a != b) {
    core::fail<ShapeError>(what, ": ", a, " elements and ", b,
                           ", wanted as many of one as of the other. Were they made for the same "
                           "parameter?");
  }
  return static_cast<std::int64_t>(a);
}

}  // namespace detail

/// In E: read exactly, written rounded to nearest even.
template <numeric::real_element E>
struct Plain {
  explicit Plain(std::span<E> values)
      : data(values.data()), size(static_cast<std::int64_t>(values.size())) {}
  E* data;
  std::int64_t size;
};

/// In P, and a copy rounded to Copy (nearest even) that is written with it and never read: a master
/// and its working weights.
template <std::floating_point P, numeric::real_element Copy>
struct WithCopy {
  WithCopy(std::span<P> values, std::span<Copy> rounded)
      : data(values.data()),
        copy(rounded.data()),
        size(detail::same_size("WithCopy", values.size(), rounded.size())) {}
  P* data;
  Copy* copy;
  std::int64_t size;
};

/// A float in two halves: `high` is the float rounded to bf16, to nearest and with ties away from
/// zero, `low` its 16 lower bits. Nothing is lost: low as a signed number is what high is off by,
/// in units of the float's last place, so float = high * 2^16 + signed(low) in integers.
///
/// Every float that is not NaN comes back as it was, and every quiet NaN; a signalling one comes
/// back quiet, as it does from any 16-bit format. `high` is NaN only where the float is: of NaNs it
/// keeps the upper half with the quiet bit, and `low` is not signed there.
///
/// Rounding to even could not be undone: 0x3F7F8000 and 0x3F808000 are both ties that go to 0x3F80,
/// with the same lower half. Ties away differ from it at 32,640 floats, ties below an even number.
struct Split {
  Split(std::span<bf16> upper, std::span<std::uint16_t> lower)
      : high(upper.data()),
        low(lower.data()),
        size(detail::same_size("Split", upper.size(), lower.size())) {}
  bf16* high;
  std::uint16_t* low;
  std::int64_t size;
};

/// In E, with a second E beside it that holds what rounding lost (Kahan's compensation): read as
/// the sum of both in float, written as x rounded to E and the rest rounded to E, to nearest even.
/// The rest is 0 where x rounds to an infinity or is NaN, so that no infinity is taken from
/// another.
///
/// A rest that is rounded up to just half an ulp makes the sum a tie: written back unchanged it may
/// then stand as the even neighbour with the opposite rest. The sum is the same.
///
/// So updates down to 2^-9 of half an ulp of the value count in bf16 (2^-17 of it), 2^-22 in fp16;
/// there the rest is in fp16's range too, whose smallest step is 2^-24.
template <numeric::real_element E>
requires numeric::is_16bit<E>
struct Compensated {
  Compensated(std::span<E> values, std::span<E> compensation)
      : data(values.data()),
        rest(compensation.data()),
        size(detail::same_size("Compensated", values.size(), compensation.size())) {}
  E* data;
  E* rest;
  std::int64_t size;
};

/// Whose numbers an array draws: element i of it has those of element first + i of the stream.
struct Draws {
  std::uint64_t seed = 0, stream = 0, first = 0;
};

/// In E, rounded by chance: written as kernels::stochastic_round rounds x with the number of its
/// element. So the mean over all numbers is x, and no cut of the array into ranges shows.
template <numeric::real_element E>
requires numeric::is_16bit<E>
struct Drawn {
  Drawn(std::span<E> values, const Draws& words)
      : data(values.data()), size(static_cast<std::int64_t>(values.size())), draws(words) {}
  E* data;
  std::int64_t size;
  Draws draws;
};

namespace detail {
template <class H>
inline constexpr bool is_held = false;
template <class E>
inline constexpr bool is_held<Plain<E>> = true;
template <class P, class Copy>
inline constexpr bool is_held<WithCopy<P, Copy>> = true;
template <>
inline constexpr bool is_held<Split> = true;
template <class E>
inline constexpr bool is_held<Compensated<E>> = true;
template <class E>
inline constexpr bool is_held<Drawn<E>> = true;
}  // namespace detail

/// One of the five views above.
template <class H>
concept held = detail::is_held<H>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
