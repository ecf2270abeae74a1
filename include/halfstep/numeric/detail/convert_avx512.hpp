// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512: those of AVX2, sixteen at a time.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512 {

inline constexpr int lanes = 16;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
using Codes = std::uint16_t __attribute__((vector_size(2 * lanes)));

inline void stream(void* line, Word x) {
  _mm512_stream_si512(static_cast<__m512i*>(line), (__m512i)x);
}
inline Word unpack(const std::uint8_t* p) {
  return (Word)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void pack(std::uint8_t* p, Word x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8((__m512i)x));
}
inline Word load(const fp16* p) {
  return (Word)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store(fp16* p, Word bits) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)bits, 0));
}
inline Word load(const fp8_e5m2* p) {  // the upper half of an fp16
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return (Word)_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512
HALFSTEP_END_TARGET
