// SPDX-License-Identifier: MIT
// Bulk conversions with AVX2 and F16C. VCVTPS2PH and VCVTPH2PS round and quieten as the scalars do
// on every input, whatever MXCSR says (tested on all of them).
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

HALFSTEP_BEGIN_TARGET(AVX2)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2 {

inline constexpr int lanes = 8;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
using Codes = std::uint16_t __attribute__((vector_size(2 * lanes)));
using Halves = std::uint16_t __attribute__((vector_size(4 * lanes)));
using SignedHalves = std::int16_t __attribute__((vector_size(4 * lanes)));

inline void stream(void* line, Word x) {
  _mm256_stream_si256(static_cast<__m256i*>(line), (__m256i)x);
}
inline Word unpack(const std::uint8_t* p) {
  return (Word)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
// Instructions that pack keep to halves of their registers: one permutation mends the order.
inline Word pack(Word a, Word b) {
  return (Word)_mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)a, (__m256i)b), 0b11'01'10'00);
}
inline Word pack(Halves a, Halves b) {
  return (Word)_mm256_permute4x64_epi64(_mm256_packus_epi16((__m256i)a, (__m256i)b), 0b11'01'10'00);
}
inline Word load(const fp16* p) {
  return (Word)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Word codes_of(fp16, Word a, Word b) {
  return (Word)_mm256_set_m128i(_mm256_cvtps_ph((__m256)b, 0), _mm256_cvtps_ph((__m256)a, 0));
}
inline Word load(const fp8_e4m3* p) {  // an fp16 2^8 times as small, but for NaN
  const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i most = _mm_set1_epi16(0x7F << 7);
  const __m128i size = _mm_and_si128(_mm_slli_epi16(codes, 7), most);
  const __m128i nan =
      _mm_and_si128(_mm_cmpeq_epi16(size, most), _mm_set1_epi16(0x7E00 ^ 0x7F << 7));
  const __m128i sign = _mm_and_si128(codes, _mm_set1_epi16(-0x8000));
  const __m256 small = _mm256_cvtph_ps(_mm_or_si128(_mm_xor_si128(size, nan), sign));
  return (Word)_mm256_mul_ps(small, _mm256_set1_ps(0x1p8F));
}
inline Word load(const fp8_e5m2* p) {  // the upper half of an fp16
  const __m128i codes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return (Word)_mm256_cvtph_ps(_mm_slli_epi16(codes, 8));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2
HALFSTEP_END_TARGET
