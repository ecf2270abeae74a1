// SPDX-License-Identifier: MIT
// Bulk conversions with nothing beyond x86-64's first instructions: the path that runs everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include <emmintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_portable {

inline constexpr int lanes = 4;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
template <std::size_t bytes>
struct CodesOf {
  using type = std::uint16_t __attribute__((vector_size(2 * lanes)));
};
template <>
struct CodesOf<1> {
  using type = std::uint8_t __attribute__((vector_size(lanes)));
};

inline void stream(void* line, Word x) { _mm_stream_si128(static_cast<__m128i*>(line), (__m128i)x); }

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_portable
HALFSTEP_END_TARGET
