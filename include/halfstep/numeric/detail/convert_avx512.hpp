// SPDX-License-Identifier: MIT
// Bulk conversions with AVX-512: those of AVX2, sixteen at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512 {

inline constexpr int lanes = 16;
using Word = std::uint32_t __attribute__((vector_size(4 * lanes)));
using Integers = std::int32_t __attribute__((vector_size(4 * lanes)));
using Floats = float __attribute__((vector_size(4 * lanes)));
template <std::size_t bytes>
struct CodesOf {
  using type = std::uint16_t __attribute__((vector_size(2 * lanes)));
};
template <>
struct CodesOf<1> {
  using type = std::uint8_t __attribute__((vector_size(lanes)));
};

inline void stream(void* line, Word x) { _mm512_stream_si512(static_cast<__m512i*>(line), (__m512i)x); }
inline Word load(const fp16* p) {
  return (Word)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store(fp16* p, Word bits) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)bits, 0));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx512
HALFSTEP_END_TARGET
