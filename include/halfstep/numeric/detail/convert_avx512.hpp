// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512: those of AVX2, sixteen at a time.
#pragma once

#include <concepts>
#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512 {

#include <halfstep/numeric/detail/convert_avx512_vectors.inc>

inline Word codes_of(fp16, Word a, Word b) {
  return (Word)_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph((__m512)a, 0)),
                                  _mm512_cvtps_ph((__m512)b, 0), 1);
}
// As narrow() has it, but for the upper halves: one permutation takes those of both.
inline Word rounded_to_upper_half(Word x) {
  const Word rounded = x + 0x7FFFU + (x >> 16 & 1U);
  return (Word)_mm512_mask_or_epi32((__m512i)rounded, _mm512_fpclass_ps_mask((__m512)x, 0x81),
                                    (__m512i)x, _mm512_set1_epi32(0x40'0000));  // NaNs quietened
}
inline Word codes_of(bf16, Word a, Word b) {
  const __m512i upper_halves =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                       25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return (Word)_mm512_permutex2var_epi16((__m512i)rounded_to_upper_half(a), upper_halves,
                                         (__m512i)rounded_to_upper_half(b));
}
inline Word load(const fp8_e5m2* p) {  // the upper half of an fp16
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return (Word)_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512
HALFSTEP_END_TARGET
