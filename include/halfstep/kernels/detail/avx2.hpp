// SPDX-License-Identifier: MIT
// The AVX2 path (with FMA and F16C): a vector of 16 floats in two registers, and every kernel body
// compiled over it. The operations and their bits are those of detail/portable.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/kernels/detail/gemm_block.hpp>
#include <halfstep/kernels/detail/gradient_tally.hpp>
#include <halfstep/kernels/detail/optimizer_pass.hpp>
#include <halfstep/kernels/detail/stochastic_codes.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/elementary.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX2)
namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx2 {

struct Floats {
  __m256 lo, hi;  ///< lanes 0-7 and 8-15
};

/// Blocks of random words side by side, one in 64 bits.
using Wide = std::uint64_t __attribute__((vector_size(32)));
/// The products of the lower 32 bits of each.
inline Wide multiply_low(Wide a, Wide b) { return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)b); }

inline __m256 from_bf16(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline __m128i to_bf16(__m256 a) {
  const __m256i u = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i even = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(u, _mm256_set1_epi32(0x400000)));
  const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  const __m256i r = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(even), quiet, nan));
  const __m256i top = _mm256_srli_epi32(r, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
}
inline __m128i to_fp16(__m256 a) {
  return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

inline Floats load_lanes(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Floats load_lanes(const bf16* p) {
  return {from_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          from_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline Floats load_lanes(const fp16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_lanes(float* p, Floats a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_lanes(bf16* p, Floats a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(a.lo));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), to_bf16(a.hi));
}
inline void store_lanes(fp16* p, Floats a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_fp16(a.lo));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), to_fp16(a.hi));
}
/// All ones in the lanes from `from` to 7 that are below n.
inline __m256i below(int n, int from) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - from), lane);
}
inline Floats load_partial_lanes(const float* p, int n) {
  return {_mm256_maskload_ps(p, below(n, 0)), _mm256_maskload_ps(p + 8, below(n, 8))};
}
inline void store_partial_lanes(float* p, Floats a, int n) {
  _mm256_maskstore_ps(p, below(n, 0), a.lo);
  _mm256_maskstore_ps(p + 8, below(n, 8), a.hi);
}
// AVX2 has no masked access to 16-bit elements: through a buffer.
template <class Half>
inline Floats load_partial_lanes(const Half* p, int n) {
  alignas(32) std::uint16_t buffer[16] = {};
  __builtin_memcpy(buffer, p, static_cast<std::size_t>(n) * 2);
  return load_lanes(reinterpret_cast<const Half*>(buffer));
}
template <class Half>
inline void store_partial_lanes(Half* p, Floats a, int n) {
  alignas(32) std::uint16_t buffer[16];
  store_lanes(reinterpret_cast<Half*>(buffer), a);
  __builtin_memcpy(static_cast<void*>(p), buffer, static_cast<std::size_t>(n) * 2);
}
inline Floats broadcast_lanes(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

inline Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Floats sub(Floats a, Floats b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Floats mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Floats div(Floats a, Floats b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Floats sqrt(Floats a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Floats neg(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
inline Floats abs(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline __m256 copy_sign(__m256 size, __m256 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0F);
  return _mm256_or_ps(_mm256_andnot_ps(bit, size), _mm256_and_ps(bit, sign));
}
inline Floats copy_sign(Floats size, Floats sign) {
  return {copy_sign(size.lo, sign.lo), copy_sign(size.hi, sign.hi)};
}
inline Floats max(Floats a, Floats b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Floats min(Floats a, Floats b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline Floats select_lt(Floats a, Floats b, Floats x, Floats y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
inline Floats round_nearest(Floats a) {
  return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline __m256 scale_exponent(__m256 a, __m256 n) {
  const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
}
inline Floats scale_exponent(Floats a, Floats n) {
  return {scale_exponent(a.lo, n.lo), scale_exponent(a.hi, n.hi)};
}
inline float sum(Floats a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  __m128 r = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  r = _mm_add_ps(r, _mm_movehl_ps(r, r));
  return _mm_cvtss_f32(_mm_add_ss(r, _mm_movehdup_ps(r)));
}
inline float max_of(Floats a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  __m128 r = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  r = _mm_max_ps(r, _mm_movehl_ps(r, r));
  return _mm_cvtss_f32(_mm_max_ss(r, _mm_movehdup_ps(r)));
}

/// Lanes 2 i and 2 i + 1 change places.
inline Floats swap_neighbours(Floats a) {
  return {_mm256_permute_ps(a.lo, 0xB1), _mm256_permute_ps(a.hi, 0xB1)};
}
/// Row i becomes column i.
inline void transpose(__m256 (&r)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}
inline void transpose(Floats (&rows)[16]) {
  __m256 q[4][8];  // upper left, lower left, upper right, lower right
  for (int i = 0; i < 8; ++i) {
    q[0][i] = rows[i].lo;
    q[1][i] = rows[i + 8].lo;
    q[2][i] = rows[i].hi;
    q[3][i] = rows[i + 8].hi;
  }
  for (int i = 0; i < 4; ++i) transpose(q[i]);
  for (int i = 0; i < 8; ++i) {
    rows[i] = {q[0][i], q[1][i]};
    rows[i + 8] = {q[2][i], q[3][i]};
  }
}

// Tiles of matrix products: 6 x 16 floats in 12 of 16 registers.
inline constexpr int float_tile_rows = 6, float_tile_vectors = 1;
inline constexpr int double_tile_rows = 3;
inline constexpr bool splits_exact_products = false;
inline constexpr bool multiplies_pairs = false;
inline Floats add_products_of_pairs(Floats, Floats, Floats c) { return c; }  // never called

using DoubleRegister = __m256d;
inline __m256d fma(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
inline __m256d sqrt(__m256d a) { return _mm256_sqrt_pd(a); }
/// Lanes 4 i to 4 i + 3 as doubles.
inline __m256d widen_part(Floats a, int i) {
  const __m256 half = i < 2 ? a.lo : a.hi;
  return _mm256_cvtps_pd(i % 2 == 0 ? _mm256_castps256_ps128(half) : _mm256_extractf128_ps(half, 1));
}

#include <halfstep/kernels/detail/lanes.inc>

#include <halfstep/kernels/detail/bodies.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx2
HALFSTEP_END_TARGET
