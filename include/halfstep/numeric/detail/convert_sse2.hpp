// SPDX-License-Identifier: MIT
// Bulk conversions with x86-64's first instructions: the portable path, which runs everywhere.
#pragma once

#include <concepts>
#include <cstdint>

#include <emmintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_sse2 {

inline constexpr int lanes = 4;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
using Codes = std::uint16_t __attribute__((vector_size(2 * lanes)));
using Halves = std::uint16_t __attribute__((vector_size(4 * lanes)));
using SignedHalves = std::int16_t __attribute__((vector_size(4 * lanes)));

inline void stream(void* line, Word x) {
  _mm_stream_si128(static_cast<__m128i*>(line), (__m128i)x);
}

inline Word unpack(const std::uint8_t* p) {
  std::int32_t four;
  __builtin_memcpy(&four, p, 4);
  const __m128i zero = _mm_setzero_si128();
  return (Word)_mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
}
// The one instruction there is takes words of 16 bits with their sign.
inline Word pack(Word a, Word b) {
  const Integers low = (Integers)(a << 16) >> 16, high = (Integers)(b << 16) >> 16;
  return (Word)_mm_packs_epi32((__m128i)low, (__m128i)high);
}
inline Word pack(Halves a, Halves b) { return (Word)_mm_packus_epi16((__m128i)a, (__m128i)b); }

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_sse2
HALFSTEP_END_TARGET
