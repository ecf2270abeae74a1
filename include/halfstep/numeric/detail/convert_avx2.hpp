// SPDX-License-Identifier: MIT
// Bulk conversions with AVX2 and F16C. VCVTPS2PH and VCVTPH2PS round and quieten as the scalars do
// on every input, whatever MXCSR says (tested on all of them).
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

HALFSTEP_BEGIN_TARGET(AVX2)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2 {

inline constexpr int lanes = 8;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
using Codes = std::uint16_t __attribute__((vector_size(2 * lanes)));

inline void stream(void* line, Word x) {
  _mm256_stream_si256(static_cast<__m256i*>(line), (__m256i)x);
}
inline Word unpack(const std::uint8_t* p) {
  return (Word)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline void pack(std::uint8_t* p, Word x) {
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
inline Word load(const fp16* p) {
  return (Word)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store(fp16* p, Word bits) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)bits, 0));
}
inline Word load(const fp8_e5m2* p) {  // the upper half of an fp16
  const __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return (Word)_mm256_cvtph_ps(_mm_slli_epi16(codes, 8));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2
HALFSTEP_END_TARGET
