// SPDX-License-Identifier: MIT
// Every small format with its name, for tests that sweep them all.
#pragma once

#include <cstdint>

#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>
#include <halfstep/numeric/minifloat.hpp>

namespace halfstep_tests {

template <class T>
inline constexpr const char* name_of = nullptr;
#define HALFSTEP_NAME(type) \
  template <>               \
  inline constexpr const char* name_of<halfstep::type> = #type;
HALFSTEP_NAME(bf16)
HALFSTEP_NAME(fp16)
HALFSTEP_NAME(fp8_e4m3)
HALFSTEP_NAME(fp8_e5m2)
HALFSTEP_NAME(fp8_e4m3fnuz)
HALFSTEP_NAME(fp8_e5m2fnuz)
HALFSTEP_NAME(fp8_e4m3b11fnuz)
HALFSTEP_NAME(fp8_e4m3_ieee)
HALFSTEP_NAME(fp8_e3m4)
HALFSTEP_NAME(fp8_e8m0)
HALFSTEP_NAME(fp6_e2m3)
HALFSTEP_NAME(fp6_e3m2)
HALFSTEP_NAME(fp4_e2m1)
#undef HALFSTEP_NAME

template <class... T>
struct Formats {};
using SmallFormats =
    Formats<halfstep::fp8_e4m3, halfstep::fp8_e5m2, halfstep::fp8_e4m3fnuz, halfstep::fp8_e5m2fnuz,
            halfstep::fp8_e4m3b11fnuz, halfstep::fp8_e4m3_ieee, halfstep::fp8_e3m4,
            halfstep::fp8_e8m0, halfstep::fp6_e2m3, halfstep::fp6_e3m2, halfstep::fp4_e2m1>;

/// How many codes a format has, and each of them.
template <class T>
inline constexpr std::uint32_t codes = 1U << T::format::bits;
template <class T>
[[nodiscard]] constexpr T code(std::uint32_t bits) {
  return T::from_bits(static_cast<typename T::storage>(bits));
}

}  // namespace halfstep_tests
