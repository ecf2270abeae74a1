// SPDX-License-Identifier: MIT
// The AVX-512 path: a vector of 16 floats in one register, and every kernel body compiled over it.
// The operations and their bits are those of detail/portable.hpp.
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

HALFSTEP_BEGIN_TARGET(AVX512)
namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512 {

#include <halfstep/kernels/detail/avx512_floats.inc>

inline constexpr bool multiplies_pairs = false;
inline Floats add_products_of_pairs(Floats, Floats, Floats c) { return c; }  // never called

/// Blocks of random words side by side, one in 64 bits.
using Wide = std::uint64_t __attribute__((vector_size(64)));
/// The products of the lower 32 bits of each.
inline Wide multiply_low(Wide a, Wide b) { return (Wide)_mm512_mul_epu32((__m512i)a, (__m512i)b); }

#include <halfstep/kernels/detail/lanes.inc>

#include <halfstep/kernels/detail/bodies.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::avx512
HALFSTEP_END_TARGET
