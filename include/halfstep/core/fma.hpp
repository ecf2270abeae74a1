// SPDX-License-Identifier: MIT
// The two ways to write a product that feeds a sum in inline code: `fma(a, b, c)` rounds once,
// `rounded(a * b) + c` rounds twice. A bare a * b + c would round once or twice as the compiler
// likes: g++ fuses from -O2 on, clang within one expression at every level.
#pragma once

#include <cmath>
#include <type_traits>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// a * b + c, rounded once. About 3 ns without FMA in the target: kernels have their own.
[[nodiscard]] inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
[[nodiscard]] inline double fma(double a, double b, double c) { return std::fma(a, b, c); }

/// x, as a value that the compiler can no longer see through, so that no later operation fuses
/// with the one that made it.
template <class T>
requires(std::is_same_v<T, float> || std::is_same_v<T, double>) [[nodiscard]] constexpr T
    rounded(T x) {
  if (!std::is_constant_evaluated()) asm("" : "+x"(x));
  return x;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
