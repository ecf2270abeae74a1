// SPDX-License-Identifier: MIT
// What differs between builds, decided here and nowhere else: version, assertions, compiler, the
// name of the inline namespace that keeps units built differently apart. Not for: run-time choices
// (core/isa.hpp) or options of a run (core/runtime.hpp).
#pragma once

#define HALFSTEP_VERSION_MAJOR 0
#define HALFSTEP_VERSION_MINOR 1
#define HALFSTEP_VERSION_PATCH 0
#define HALFSTEP_VERSION "0.1.0"

#if !defined(__x86_64__) || !defined(__linux__)
#error "halfstep supports x86-64 Linux only: its promise of one answer is tested nowhere else"
#endif
#if __cplusplus < 202002L
#error "halfstep needs C++20: add -std=c++20, or link the CMake target halfstep::halfstep"
#endif

/// 1 checks our own invariants at run time. One definition for the whole program, not NDEBUG, so
/// that all its units agree.
#ifndef HALFSTEP_ASSERTIONS
#define HALFSTEP_ASSERTIONS 0
#endif

/// 1 if the unit is compiled with -ffast-math or a part of it that breaks IEEE semantics.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#define HALFSTEP_FAST_MATH 1
#else
#define HALFSTEP_FAST_MATH 0
#endif

#ifdef __FMA__
#define HALFSTEP_TARGET_HAS_FMA 1
#else
#define HALFSTEP_TARGET_HAS_FMA 0
#endif

#define HALFSTEP_CONFIG_(assertions, fma, fast) v0_assert##assertions##_fma##fma##_fast##fast
#define HALFSTEP_CONFIG_OF(assertions, fma, fast) HALFSTEP_CONFIG_(assertions, fma, fast)
/// The inline namespace of everything public: two units whose inline functions could have
/// different bodies do not share a symbol.
#define HALFSTEP_CONFIG \
  HALFSTEP_CONFIG_OF(HALFSTEP_ASSERTIONS, HALFSTEP_TARGET_HAS_FMA, HALFSTEP_FAST_MATH)

#define HALFSTEP_NOINLINE __attribute__((noinline))
