// SPDX-License-Identifier: MIT
// Bulk conversions with x86-64's first instructions: the portable path, which runs everywhere.
#pragma once

#include <cstdint>

#include <emmintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_sse2 {

inline constexpr int lanes = 4;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
using Codes = std::uint16_t __attribute__((vector_size(2 * lanes)));

inline void stream(void* line, Word x) {
  _mm_stream_si128(static_cast<__m128i*>(line), (__m128i)x);
}

// g++ takes convertvector to 8 bits apart, lane by lane: packed by hand on every path.
inline Word unpack(const std::uint8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  const __m128i zero = _mm_setzero_si128();
  return (Word)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
}
inline void pack(std::uint8_t* p, Word x) {
  const __m128i words = _mm_packs_epi32((__m128i)x, (__m128i)x);
  const std::int32_t four = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  __builtin_memcpy(p, &four, 4);
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_sse2
HALFSTEP_END_TARGET
