// SPDX-License-Identifier: MIT
// The AVX-512-BF16 path: matrix products of bf16 by VDPBF16PS, which adds two products per lane in
// the order by which the library defines them. Every other kernel of this path is avx512.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/kernels/detail/gemm_block.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX512_BF16)
namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512_bf16 {

#include <halfstep/kernels/detail/avx512_floats.inc>

inline constexpr bool multiplies_pairs = true;
/// Each 32-bit lane of a and b holds the elements 2i (low half) and 2i + 1 of a row and a column:
/// c, plus the product of the odd ones, rounded, plus that of the even ones, rounded.
inline Floats add_products_of_pairs(Floats a, Floats b, Floats c) {
  return {_mm512_dpbf16_ps(c.v, (__m512bh)a.v, (__m512bh)b.v)};
}

/// Numbers of bf16 as the low and the high halves of 32-bit lanes.
inline Floats join_pairs(Floats low, Floats high) {
  const __m512i shifted = _mm512_srli_epi32(_mm512_castps_si512(low.v), 16);
  return {_mm512_castsi512_ps(_mm512_or_si512(shifted, _mm512_castps_si512(high.v)))};
}

#include <halfstep/kernels/detail/lanes.inc>

#include <halfstep/kernels/detail/gemm.inc>

/// 16 sums of two pairs each, by the instruction and by fma: hardware and defined [16].
inline void pair_products(const bf16* a, const bf16* b, const float* c, float* hardware,
                          float* defined) {
  const void *const words_a = a, *const words_b = b;
  const __m512i x = _mm512_loadu_si512(words_a), y = _mm512_loadu_si512(words_b);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  const Floats sum = load(c);
  store(hardware, add_products_of_pairs({_mm512_castsi512_ps(x)}, {_mm512_castsi512_ps(y)}, sum));
  const Floats odd = fma({_mm512_castsi512_ps(_mm512_and_si512(x, high))},
                         {_mm512_castsi512_ps(_mm512_and_si512(y, high))}, sum);
  store(defined, fma({_mm512_castsi512_ps(_mm512_slli_epi32(x, 16))},
                     {_mm512_castsi512_ps(_mm512_slli_epi32(y, 16))}, odd));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512_bf16
HALFSTEP_END_TARGET
