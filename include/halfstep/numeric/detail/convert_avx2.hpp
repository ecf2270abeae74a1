// SPDX-License-Identifier: MIT
// Bulk conversions with AVX2 and F16C. bf16 is integer code; VCVTPS2PH and VCVTPH2PS round and
// quieten as the scalars do on every input, whatever MXCSR says (tested on all of them).
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/detail/convert_portable.hpp>

HALFSTEP_BEGIN_TARGET(AVX2)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2 {

/// Eight floats as bf16 codes in the low halves of eight 32-bit lanes.
inline __m256i bf16_codes(__m256i bits) {
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFF'FFFF));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F80'0000));
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
}

HALFSTEP_NOINLINE inline void to_bf16(const float* in, bf16* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i a = bf16_codes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
    const __m256i b = bf16_codes(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + 8)));
    // Packing works within 128-bit halves, so their quarters are put in order afterwards.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), packed);
  }
  convert_portable::to_bf16(in + i, out + i, count - i);
}
HALFSTEP_NOINLINE inline void to_fp16(const float* in, fp16* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), 0));
  }
  convert_portable::to_fp16(in + i, out + i, count - i);
}
HALFSTEP_NOINLINE inline void from_bf16(const bf16* in, float* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), 16));
  }
  convert_portable::from_bf16(in + i, out + i, count - i);
}
HALFSTEP_NOINLINE inline void from_fp16(const fp16* in, float* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
  convert_portable::from_fp16(in + i, out + i, count - i);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2
HALFSTEP_END_TARGET
