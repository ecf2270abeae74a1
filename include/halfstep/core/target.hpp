// SPDX-License-Identifier: MIT
// HALFSTEP_BEGIN_TARGET(isa) … HALFSTEP_END_TARGET: functions between them are compiled for that
// instruction set, and never contract a product and a sum. Include nothing in between: an inline
// function of std would become an AVX-512 symbol that the whole program shares.
//
// isa is one of PORTABLE, AVX2, AVX512, AVX512_BF16. Functions inside are reached
// through pointers that the compiler cannot see through: inlined into a unit's own code, a body would
// lose the pragma under g++. Under
// -ffp-contract=fast clang contracts all the same; core/contraction.hpp finds that out.
#pragma once

#include <halfstep/core/config.hpp>

#define HALFSTEP_ISA_AVX2 "avx,avx2,fma,f16c,bmi,bmi2"
#define HALFSTEP_ISA_AVX512 "avx,avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl"
#define HALFSTEP_ISA_AVX512_BF16 HALFSTEP_ISA_AVX512 ",avx512bf16"

#define HALFSTEP_PRAGMA_(x) _Pragma(#x)
#define HALFSTEP_PRAGMA(x) HALFSTEP_PRAGMA_(x)

#define HALFSTEP_BEGIN_TARGET(isa) HALFSTEP_BEGIN_TARGET_##isa
#define HALFSTEP_BEGIN_TARGET_AVX2 HALFSTEP_BEGIN_TARGET_OF(HALFSTEP_ISA_AVX2)
#define HALFSTEP_BEGIN_TARGET_AVX512 HALFSTEP_BEGIN_TARGET_OF(HALFSTEP_ISA_AVX512)
#define HALFSTEP_BEGIN_TARGET_AVX512_BF16 HALFSTEP_BEGIN_TARGET_OF(HALFSTEP_ISA_AVX512_BF16)

#if defined(__clang__)
// float_control saves and restores the unit's own contraction setting; clang knows no other way.
#define HALFSTEP_BEGIN_TARGET_OF(names)   \
  HALFSTEP_PRAGMA(float_control(push))    \
  HALFSTEP_PRAGMA(clang fp contract(off)) \
  HALFSTEP_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define HALFSTEP_BEGIN_TARGET_PORTABLE HALFSTEP_BEGIN_TARGET_OF("sse2")
#define HALFSTEP_END_TARGET HALFSTEP_PRAGMA(clang attribute pop) HALFSTEP_PRAGMA(float_control(pop))
#else
// g++ 12 takes the deliberately undefined operands of its own intrinsics for mistakes of ours.
#define HALFSTEP_BEGIN_TARGET_PORTABLE                            \
  HALFSTEP_PRAGMA(GCC diagnostic push)                            \
  HALFSTEP_PRAGMA(GCC diagnostic ignored "-Wmaybe-uninitialized") \
  HALFSTEP_PRAGMA(GCC diagnostic ignored "-Wuninitialized")       \
  HALFSTEP_PRAGMA(GCC push_options)                               \
  HALFSTEP_PRAGMA(GCC optimize("fp-contract=off"))
#define HALFSTEP_BEGIN_TARGET_OF(names) \
  HALFSTEP_BEGIN_TARGET_PORTABLE HALFSTEP_PRAGMA(GCC target(names))
#define HALFSTEP_END_TARGET HALFSTEP_PRAGMA(GCC pop_options) HALFSTEP_PRAGMA(GCC diagnostic pop)
#endif
