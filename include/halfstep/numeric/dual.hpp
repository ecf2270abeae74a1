// SPDX-License-Identifier: MIT
// dual<T>: a value with its derivative in one direction, T float or double. Elementwise rules are
// written on it; arrays keep values and tangents in two planes, and products of matrices are real
// products of planes.
#pragma once

#include <cmath>
#include <compare>
#include <concepts>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/numeric/elementary.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// value + tangent * epsilon with epsilon^2 = 0. The value of every result has the bits that the
/// same operations on T give. Comparisons look at values alone, so code that branches takes the
/// branch of the plain pass. Errors and range ends of the functions: numeric/elementary.hpp.
template <class T>
requires std::same_as<T, float> || std::same_as<T, double>
struct dual {
  T value{};
  T tangent{};

  constexpr dual() = default;
  constexpr dual(T v, T t = T{})
      : value(v), tangent(t) {}  // NOLINT: a constant has tangent 0, nothing is lost

  [[nodiscard]] constexpr dual operator+() const { return *this; }
  [[nodiscard]] constexpr dual operator-() const { return {-value, -tangent}; }
  [[nodiscard]] friend constexpr dual operator+(dual a, dual b) {
    return {a.value + b.value, a.tangent + b.tangent};
  }
  [[nodiscard]] friend constexpr dual operator-(dual a, dual b) {
    return {a.value - b.value, a.tangent - b.tangent};
  }
  [[nodiscard]] friend constexpr dual operator*(dual a, dual b) {
    return {core::rounded(a.value * b.value),
            core::rounded(a.value * b.tangent) + core::rounded(a.tangent * b.value)};
  }
  [[nodiscard]] friend constexpr dual operator/(dual a, dual b) {
    const T quotient = core::rounded(a.value / b.value);
    return {quotient, (a.tangent - core::rounded(quotient * b.tangent)) / b.value};
  }
  constexpr dual& operator+=(dual b) { return *this = *this + b; }
  constexpr dual& operator-=(dual b) { return *this = *this - b; }
  constexpr dual& operator*=(dual b) { return *this = *this * b; }
  constexpr dual& operator/=(dual b) { return *this = *this / b; }

  [[nodiscard]] friend constexpr bool operator==(dual a, dual b) { return a.value == b.value; }
  [[nodiscard]] friend constexpr std::partial_ordering operator<=>(dual a, dual b) {
    return a.value <=> b.value;
  }
};

namespace numeric::detail {
/// A function's value and slope at x.value, as the function of x. A slope times a tangent may feed
/// a sum in the caller, hence the barrier.
template <class T>
[[nodiscard]] dual<T> chain(dual<T> x, T value, T slope) {
  return {core::rounded(value), core::rounded(slope * x.tangent)};
}
}  // namespace numeric::detail

template <class T>
[[nodiscard]] dual<T> exp(dual<T> x) {
  const T y = numeric::exp(x.value);
  return numeric::detail::chain(x, y, y);
}
template <class T>
[[nodiscard]] dual<T> expm1(dual<T> x) {
  return numeric::detail::chain(x, numeric::expm1(x.value), numeric::exp(x.value));
}
template <class T>
[[nodiscard]] dual<T> log(dual<T> x) {
  return numeric::detail::chain(x, numeric::log(x.value), T{1} / x.value);
}
template <class T>
[[nodiscard]] dual<T> log1p(dual<T> x) {
  return numeric::detail::chain(x, numeric::log1p(x.value), T{1} / (T{1} + x.value));
}
template <class T>
[[nodiscard]] dual<T> sqrt(dual<T> x) {
  const T y = std::sqrt(x.value);
  return numeric::detail::chain(x, y, T{0.5} / y);
}
template <class T>
[[nodiscard]] dual<T> tanh(dual<T> x) {
  const T y = core::rounded(numeric::tanh(x.value));
  return numeric::detail::chain(x, y, (T{1} - y) * (T{1} + y));
}
/// The slope is 2 / sqrt(pi) exp(-x^2).
template <class T>
[[nodiscard]] dual<T> erf(dual<T> x) {
  constexpr T two_over_root_pi = static_cast<T>(0x1.20dd750429b6dp+0);
  return numeric::detail::chain(x, numeric::erf(x.value),
                                two_over_root_pi * numeric::exp(-(x.value * x.value)));
}
template <class T>
[[nodiscard]] dual<T> sin(dual<T> x) {
  return numeric::detail::chain(x, numeric::sin(x.value), numeric::cos(x.value));
}
template <class T>
[[nodiscard]] dual<T> cos(dual<T> x) {
  return numeric::detail::chain(x, numeric::cos(x.value), -numeric::sin(x.value));
}
/// A constant power; the slope is power * x^(power - 1).
template <class T>
[[nodiscard]] dual<T> pow(dual<T> x, std::type_identity_t<T> power) {
  return numeric::detail::chain(x, numeric::pow(x.value, power),
                                power * numeric::pow(x.value, power - T{1}));
}
/// The slope at 0 is 0.
template <class T>
[[nodiscard]] constexpr dual<T> abs(dual<T> x) {
  return x.value < T{0} ? -x : (x.value == T{0} ? dual<T>{T{0}, T{0}} : x);
}
/// a where they are equal.
template <class T>
[[nodiscard]] constexpr dual<T> max(dual<T> a, dual<T> b) {
  return a.value < b.value ? b : a;
}
template <class T>
[[nodiscard]] constexpr dual<T> min(dual<T> a, dual<T> b) {
  return b.value < a.value ? b : a;
}
template <class T>
[[nodiscard]] bool isfinite(dual<T> x) {
  return std::isfinite(x.value) && std::isfinite(x.tangent);
}
template <class T>
[[nodiscard]] bool isnan(dual<T> x) {
  return std::isnan(x.value) || std::isnan(x.tangent);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
