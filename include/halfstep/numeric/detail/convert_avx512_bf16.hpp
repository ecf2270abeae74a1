// SPDX-License-Identifier: MIT
// float to bf16 by VCVTNEPS2BF16. The other three conversions are AVX-512's.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/detail/convert_avx512.hpp>

HALFSTEP_BEGIN_TARGET(AVX512_BF16)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16 {

HALFSTEP_NOINLINE inline void to_bf16(const float* in, bf16* out, std::int64_t count) {
  const __m512i field = _mm512_set1_epi32(0x7F80'0000);
  const __m512i magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i bits = _mm512_loadu_si512(in + i);
    const __mmask16 subnormal =
        _mm512_mask_test_epi32_mask(_mm512_testn_epi32_mask(bits, field), bits, magnitude);
    if (__builtin_expect(subnormal != 0, 0)) {
      // The instruction turns subnormal inputs into zero, and no MXCSR bit stops it; every other
      // path keeps them. Small gradients live there.
      convert_avx512::to_bf16(in + i, out + i, 16);
      continue;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        (__m256i)_mm512_cvtneps_pbh((__m512)bits));
  }
  convert_avx512::to_bf16(in + i, out + i, count - i);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16
HALFSTEP_END_TARGET
