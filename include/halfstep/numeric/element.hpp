// SPDX-License-Identifier: MIT
// What the library knows about the type of a tensor's elements: what sums are kept in, how many
// planes it is stored as. Kernels and tape are templates over these types. Not for formats in
// files: dtype.hpp.
#pragma once

#include <concepts>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// Properties of an element type; the primary template is left undefined: see `element_type`.
///
///   accumulator  what sums, statistics, gradients of parameters and master weights are kept in
///   plane        the real type that one plane holds
///   planes       1; 2 for duals, which are stored as all primal values, then all tangents
template <class T>
struct element;

template <>
struct element<float> {
  using accumulator = float;
  using plane = float;
  static constexpr int planes = 1;
};
template <>
struct element<double> {
  using accumulator = double;
  using plane = double;
  static constexpr int planes = 1;
};
template <>
struct element<bf16> {
  using accumulator = float;
  using plane = bf16;
  static constexpr int planes = 1;
};
template <>
struct element<fp16> {
  using accumulator = float;
  using plane = fp16;
  static constexpr int planes = 1;
};
template <>
struct element<dual<float>> {
  using accumulator = dual<float>;
  using plane = float;
  static constexpr int planes = 2;
};
template <>
struct element<dual<double>> {
  using accumulator = dual<double>;
  using plane = double;
  static constexpr int planes = 2;
};

/// A type that tensors can hold: float, double, bf16, fp16, dual<float>, dual<double>. The fp8
/// formats are for storage and telemetry in this release: no tensor on a tape holds them.
template <class T>
concept element_type = requires {
  element<T>::planes;
};

template <element_type T>
using accumulator_t = typename element<T>::accumulator;
template <element_type T>
using plane_t = typename element<T>::plane;
/// What one plane's sums are kept in: float for the 16-bit formats.
template <element_type T>
using plane_accumulator_t = accumulator_t<plane_t<T>>;

template <element_type T>
inline constexpr int planes = element<T>::planes;
template <class T>
inline constexpr bool is_16bit = std::same_as<T, bf16> || std::same_as<T, fp16>;
template <element_type T>
inline constexpr bool is_dual = element<T>::planes == 2;

/// A type stored as one plane: what the real kernels work on.
template <class T>
concept real_element = element_type<T> && !is_dual<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
