// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512-BF16: AVX-512's, and VCVTNE2PS2BF16 for bf16.
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

HALFSTEP_BEGIN_TARGET(AVX512_BF16)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16 {

#include <halfstep/numeric/detail/convert_avx512_vectors.inc>

template <class Format>
inline Word narrow(Word bits);

inline __mmask16 subnormals(Word bits) {
  const __m512i field = _mm512_set1_epi32(0x7F80'0000), magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
  return _mm512_mask_test_epi32_mask(_mm512_testn_epi32_mask((__m512i)bits, field), (__m512i)bits,
                                     magnitude);
}
inline Word codes_of(bf16, Word a, Word b) {
  if (__builtin_expect((subnormals(a) | subnormals(b)) != 0, 0)) {
    // The instruction turns subnormal inputs into zero, and no MXCSR bit stops it; every other path
    // keeps them. Small gradients live there.
    return pack(narrow<bf16::format>(a), narrow<bf16::format>(b));
  }
  return (Word)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512_bf16
HALFSTEP_END_TARGET
