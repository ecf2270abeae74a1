// SPDX-License-Identifier: MIT
// Whole arrays between float and the ways of holding them that kernels/held.hpp lists: for rules
// that know floats alone, and to look at what is held. Not for plain changes of format:
// numeric/convert.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/held.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// values[i] = what `x` holds at i. Subnormals may come out as zeros where `x` is a sum of two.
/// @throws ShapeError if the lengths differ.
template <std::floating_point P, held Held>
void unpack(const core::Compute& compute, const Held& x, std::span<P> values) {
  if (std::ssize(values) != x.size) {
    core::fail<ShapeError>("unpack: x has ", x.size, " elements but values ", values.size());
  }
  const auto body = HALFSTEP_PICK(compute.isa, unpack_elements<P, Held>);
  detail::parallel_elements(compute, x.size, [&](std::int64_t begin, std::int64_t end) {
    body(x, values.data(), begin, end);
  });
}

/// x holds values[i] at i, rounded as `x` rounds.
/// @throws ShapeError if the lengths differ.
template <std::floating_point P, held Held>
void pack(const core::Compute& compute, std::span<const P> values, const Held& x) {
  if (std::ssize(values) != x.size) {
    core::fail<ShapeError>("pack: values has ", values.size(), " elements but x ", x.size);
  }
  const auto body = HALFSTEP_PICK(compute.isa, pack_elements<P, Held>);
  detail::parallel_elements(compute, x.size, [&](std::int64_t begin, std::int64_t end) {
    body(values.data(), x, begin, end);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
