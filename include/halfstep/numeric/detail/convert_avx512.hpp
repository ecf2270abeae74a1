// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512: the AVX2 steps, sixteen at a time, and masks for the last few.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512 {

inline __m256i bf16_codes(__m512i bits) {
  const __m512i top = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFF'FFFF));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F80'0000));
  const __m512i codes =
      _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, top, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(codes);
}
/// Lanes that are still there with `left` elements to go.
inline __mmask16 lanes(std::int64_t left) {
  return static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
}

HALFSTEP_NOINLINE inline void to_bf16(const float* in, bf16* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = lanes(count - i);
    _mm256_mask_storeu_epi16(out + i, mask, bf16_codes(_mm512_maskz_loadu_epi32(mask, in + i)));
  }
}
HALFSTEP_NOINLINE inline void to_fp16(const float* in, fp16* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = lanes(count - i);
    _mm256_mask_storeu_epi16(out + i, mask,
                             _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, in + i), 0));
  }
}
HALFSTEP_NOINLINE inline void from_bf16(const bf16* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = lanes(count - i);
    const __m512i codes = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, in + i));
    _mm512_mask_storeu_epi32(out + i, mask, _mm512_slli_epi32(codes, 16));
  }
}
HALFSTEP_NOINLINE inline void from_fp16(const fp16* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = lanes(count - i);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, in + i)));
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512
HALFSTEP_END_TARGET
