// SPDX-License-Identifier: MIT
// Bulk conversions with AVX2 and F16C. VCVTPS2PH and VCVTPH2PS round and quieten as the scalars do
// on every input, whatever MXCSR says (tested on all of them).
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(AVX2)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2 {

inline constexpr int lanes = 8;
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

inline void stream(void* line, Word x) { _mm256_stream_si256(static_cast<__m256i*>(line), (__m256i)x); }
inline Word load(const fp16* p) {
  return (Word)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void store(fp16* p, Word bits) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)bits, 0));
}

#include <halfstep/numeric/detail/convert_loops.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_avx2
HALFSTEP_END_TARGET
