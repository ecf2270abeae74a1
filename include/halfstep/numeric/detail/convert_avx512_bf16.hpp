// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512-BF16: AVX-512's, and VCVTNEPS2BF16 for bf16.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX512_BF16)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16 {

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
template <class Format>
inline Word narrow(Word bits);

inline void store(bf16* p, Word bits) {
  const __m512i field = _mm512_set1_epi32(0x7F80'0000), magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
  const __mmask16 subnormal = _mm512_mask_test_epi32_mask(
      _mm512_testn_epi32_mask((__m512i)bits, field), (__m512i)bits, magnitude);
  auto codes = (__m256i)_mm512_cvtneps_pbh((__m512)bits);
  if (__builtin_expect(subnormal != 0, 0)) {
    // The instruction turns subnormal inputs into zero, and no MXCSR bit stops it; every other path
    // keeps them. Small gradients live there.
    codes = _mm512_cvtepi32_epi16((__m512i)narrow<bf16::format>(bits));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16
HALFSTEP_END_TARGET
