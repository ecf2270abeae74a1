// SPDX-License-Identifier: MIT
// The portable path: a vector of 16 floats as four vectors of four in the compiler's own notation,
// which needs no instruction beyond x86-64's first. It defines the bits that the others must give.
#pragma once

#include <cstddef>
#include <cstdint>

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

HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::portable {

using F4 = float __attribute__((vector_size(16)));
using I4 = std::int32_t __attribute__((vector_size(16)));
using U4 = std::uint32_t __attribute__((vector_size(16)));
using F2 = float __attribute__((vector_size(8)));
using D2 = double __attribute__((vector_size(16)));
using L2 = std::int64_t __attribute__((vector_size(16)));

/// Blocks of random words side by side, one in 64 bits.
using Wide = std::uint64_t __attribute__((vector_size(16)));
/// The products of the lower 32 bits of each.
inline Wide multiply_low(Wide a, Wide b) {
  return Wide{(a[0] & 0xFFFFFFFFU) * (b[0] & 0xFFFFFFFFU),
              (a[1] & 0xFFFFFFFFU) * (b[1] & 0xFFFFFFFFU)};
}

struct Floats {
  F4 q[4];  ///< lanes 0-3, 4-7, 8-11, 12-15
};

inline U4 each(std::uint32_t x) { return U4{x, x, x, x}; }
inline F4 each(float x) { return F4{x, x, x, x}; }
/// Lanes of `yes` where the mask has ones, of `no` where it has zeros.
inline U4 blend(I4 mask, U4 yes, U4 no) { return ((U4)mask & yes) | (~(U4)mask & no); }

inline U4 widen_bits(const std::uint16_t* p) { return U4{p[0], p[1], p[2], p[3]}; }

inline F4 from_fp16(U4 h) {
  const U4 sign = (h & each(0x8000U)) << 16;
  const U4 rest = h & each(0x7FFFU);
  // A subnormal is its integer times 2^-24, a normal float.
  const F4 small = __builtin_convertvector((I4)rest, F4) * each(0x1p-24F);
  U4 r = (rest << 13) + each(112U << 23);
  r = blend(rest >= each(0x7C00U), r + each(112U << 23), r);
  r = blend(rest > each(0x7C00U), r | each(0x400000U), r);
  r = blend(rest < each(0x400U), (U4)small, r);
  return (F4)(r | sign);
}
inline U4 to_fp16(F4 a) {
  const U4 sign = ((U4)a >> 16) & each(0x8000U);
  const U4 u = (U4)a & each(0x7FFFFFFFU);
  const U4 odd = (u >> 13) & each(1U);
  U4 r = (u + each(0xFFFU) + odd - each(112U << 23)) >> 13;
  // Below 2^-14 the half's unit is 2^-24, which is that of 0.5 in float: the sum rounds to it.
  const F4 small = (F4)u + each(0.5F);
  r = blend(u < each(113U << 23), (U4)small - each(126U << 23), r);
  r = blend(u >= each(143U << 23), each(0x7C00U), r);
  r = blend(u > each(0x7F800000U), each(0x7E00U) | ((u >> 13) & each(0x3FFU)), r);
  return r | sign;
}
inline U4 to_bf16(F4 a) {
  const U4 u = (U4)a;
  const U4 even = (u + each(0x7FFFU) + ((u >> 16) & each(1U))) >> 16;
  return blend((u & each(0x7FFFFFFFU)) > each(0x7F800000U), (u >> 16) | each(0x40U), even);
}

inline Floats load_lanes(const float* p) {
  Floats r;
  __builtin_memcpy(&r, p, sizeof r);
  return r;
}
inline Floats load_lanes(const bf16* p) {
  std::uint16_t h[16];
  __builtin_memcpy(h, static_cast<const void*>(p), sizeof h);
  Floats r;
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) r.q[i] = (F4)(widen_bits(h + 4 * i) << 16);
  return r;
}
inline Floats load_lanes(const fp16* p) {
  std::uint16_t h[16];
  __builtin_memcpy(h, static_cast<const void*>(p), sizeof h);
  Floats r;
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) r.q[i] = from_fp16(widen_bits(h + 4 * i));
  return r;
}
inline void store_lanes(float* p, Floats a) { __builtin_memcpy(p, &a, sizeof a); }
inline void store_lanes(bf16* p, Floats a) {
  std::uint16_t h[16];
  for (int i = 0; i < 16; ++i) h[i] = static_cast<std::uint16_t>(to_bf16(a.q[i / 4])[i % 4]);
  __builtin_memcpy(static_cast<void*>(p), h, sizeof h);
}
inline void store_lanes(fp16* p, Floats a) {
  std::uint16_t h[16];
  for (int i = 0; i < 16; ++i) h[i] = static_cast<std::uint16_t>(to_fp16(a.q[i / 4])[i % 4]);
  __builtin_memcpy(static_cast<void*>(p), h, sizeof h);
}
template <class E>
inline Floats load_partial_lanes(const E* p, int n) {
  alignas(64) unsigned char buffer[16 * sizeof(E)] = {};
  __builtin_memcpy(buffer, static_cast<const void*>(p), static_cast<std::size_t>(n) * sizeof(E));
  return load_lanes(reinterpret_cast<const E*>(buffer));
}
template <class E>
inline void store_partial_lanes(E* p, Floats a, int n) {
  alignas(64) unsigned char buffer[16 * sizeof(E)];
  store_lanes(reinterpret_cast<E*>(buffer), a);
  __builtin_memcpy(static_cast<void*>(p), buffer, static_cast<std::size_t>(n) * sizeof(E));
}
inline Floats broadcast_lanes(float x) { return {{each(x), each(x), each(x), each(x)}}; }

/// Subnormals as zeros of their sign: MAXPS and MINPS give them so under DAZ, a selection does not.
inline F4 flushed(F4 a) {
  return (F4)blend(((U4)a & each(0x7F800000U)) == each(0U), (U4)a & each(0x80000000U), (U4)a);
}

#define HALFSTEP_FLOATS(name, expression)     \
  inline Floats name(Floats a, Floats b) {    \
    Floats r;                                 \
    _Pragma("GCC unroll 4")                   \
    for (int i = 0; i < 4; ++i) {             \
      const F4 x = a.q[i], y = b.q[i];        \
      r.q[i] = (expression);                  \
    }                                         \
    return r;                                 \
  }
HALFSTEP_FLOATS(add, x + y)
HALFSTEP_FLOATS(sub, x - y)
HALFSTEP_FLOATS(mul, x * y)
HALFSTEP_FLOATS(div, x / y)
HALFSTEP_FLOATS(max, flushed((F4)blend(x > y, (U4)x, (U4)y)))
HALFSTEP_FLOATS(min, flushed((F4)blend(x < y, (U4)x, (U4)y)))
#undef HALFSTEP_FLOATS

inline Floats sqrt(Floats a) {
  for (int i = 0; i < 16; ++i) a.q[i / 4][i % 4] = __builtin_sqrtf(a.q[i / 4][i % 4]);
  return a;
}
inline Floats neg(Floats a) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) a.q[i] = (F4)((U4)a.q[i] ^ each(0x80000000U));
  return a;
}
inline Floats abs(Floats a) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) a.q[i] = (F4)((U4)a.q[i] & each(0x7FFFFFFFU));
  return a;
}
inline Floats copy_sign(Floats size, Floats sign) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    size.q[i] = (F4)(((U4)size.q[i] & each(0x7FFFFFFFU)) | ((U4)sign.q[i] & each(0x80000000U)));
  }
  return size;
}
inline Floats select_lt(Floats a, Floats b, Floats x, Floats y) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) x.q[i] = (F4)blend(a.q[i] < b.q[i], (U4)x.q[i], (U4)y.q[i]);
  return x;
}
inline Floats round_nearest(Floats a) {
  // Adding 2^23 leaves no fraction bits; larger values are integers already.
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const U4 sign = (U4)a.q[i] & each(0x80000000U);
    const F4 x = (F4)((U4)a.q[i] ^ sign);
    const F4 r = (x + each(0x1p23F)) - each(0x1p23F);
    a.q[i] = (F4)blend(x < each(0x1p23F), (U4)r | sign, (U4)a.q[i]);
  }
  return a;
}
inline Floats scale_exponent(Floats a, Floats n) {
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    a.q[i] = (F4)((U4)a.q[i] + ((U4) __builtin_convertvector(n.q[i], I4) << 23));
  }
  return a;
}

/// The float nearest to the exact x * y + z, from its double approximation s and the product p.
/// TwoSum gives what s lost; a step of one unit towards it leaves the midpoint on the right side.
inline double off_midpoint(double p, double z, double s) {
  const double t = s - p;
  const double lost = (p - (s - t)) + (z - t);
  if (lost == 0.0) return s;
  std::int64_t bits;
  __builtin_memcpy(&bits, &s, 8);
  bits += (lost > 0.0) == (s > 0.0) ? 1 : -1;
  __builtin_memcpy(&s, &bits, 8);
  return s;
}

/// a * b + c with one rounding, without FMA instructions.
///
/// The product of two floats is exact in double (48 of 53 bits, exponents within double's), so the
/// only error before the last rounding is that of the sum s. Rounding is monotonic and every
/// midpoint m between two floats is a double, so exact < m gives s <= m: s rounds to the float that
/// the exact sum rounds to, unless s is such a midpoint, whose low 29 bits are 1000…0, and the
/// sum was inexact. Those lanes, one in 2^29 or so in random data and some per mille in data of few
/// bits, are corrected. Flushing to zero looks at the value rounded to 24 bits with unbounded
/// exponent, in FMA as in the conversion, so the boundary at 2^-126 is a midpoint like any other.
inline Floats fma(Floats a, Floats b, Floats c) {
  Floats r;
  D2 p[8], s[8];
  I4 found = {};
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int at = i % 2 * 2;
    const F4 x = a.q[i / 2], y = b.q[i / 2], z = c.q[i / 2];
    p[i] = __builtin_convertvector((F2{x[at], x[at + 1]}), D2) *
           __builtin_convertvector((F2{y[at], y[at + 1]}), D2);
    s[i] = p[i] + __builtin_convertvector((F2{z[at], z[at + 1]}), D2);
    found |= ((U4)s[i] & U4{0x1FFFFFFFU, 0, 0x1FFFFFFFU, 0}) == U4{0x10000000U, 1, 0x10000000U, 1};
  }
  const L2 any = (L2)found;
  if (__builtin_expect((any[0] | any[1]) != 0, 0)) {
    for (int i = 0; i < 16; ++i) {
      std::uint64_t bits;
      const double at = s[i / 2][i % 2];
      __builtin_memcpy(&bits, &at, 8);
      if ((bits & 0x1FFFFFFFU) == 0x10000000U) {
        s[i / 2][i % 2] = off_midpoint(p[i / 2][i % 2], static_cast<double>(c.q[i / 4][i % 4]), at);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const F2 lo = __builtin_convertvector(s[2 * i], F2);
    const F2 hi = __builtin_convertvector(s[2 * i + 1], F2);
    r.q[i] = F4{lo[0], lo[1], hi[0], hi[1]};
  }
  return r;
}

inline float sum(Floats a) {
  const F4 r = (a.q[0] + a.q[2]) + (a.q[1] + a.q[3]);
  return (r[0] + r[2]) + (r[1] + r[3]);
}
inline F4 larger(F4 x, F4 y) { return flushed((F4)blend(x > y, (U4)x, (U4)y)); }
inline float max_of(Floats a) {
  F4 r = larger(larger(a.q[0], a.q[2]), larger(a.q[1], a.q[3]));
  r = larger(r, F4{r[2], r[3], r[2], r[3]});
  return larger(r, F4{r[1], r[1], r[1], r[1]})[0];
}

/// Lanes 2 i and 2 i + 1 change places.
inline Floats swap_neighbours(Floats a) {
  for (F4& q : a.q)
    q = F4{q[1], q[0], q[3], q[2]};
  return a;
}
/// Row i becomes column i.
inline void transpose(Floats (&rows)[16]) {
  float in[16][16], out[16][16];
  __builtin_memcpy(in, rows, sizeof in);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) out[j][i] = in[i][j];
  }
  __builtin_memcpy(rows, out, sizeof out);
}

// Tiles of matrix products: rows x vectors of 16 accumulators each.
inline constexpr int float_tile_rows = 2, float_tile_vectors = 1;
inline constexpr int double_tile_rows = 2;
/// Without FMA instructions, products of 16-bit operands are multiplied and added where exact.
inline constexpr bool splits_exact_products = true;
inline constexpr bool multiplies_pairs = false;
inline Floats add_products_of_pairs(Floats, Floats, Floats c) { return c; }  // never called

using DoubleRegister = D2;
inline D2 fma(D2 a, D2 b, D2 c) {
  return D2{__builtin_fma(a[0], b[0], c[0]), __builtin_fma(a[1], b[1], c[1])};
}
inline D2 sqrt(D2 a) { return D2{__builtin_sqrt(a[0]), __builtin_sqrt(a[1])}; }
/// Lanes 2 i and 2 i + 1 as doubles.
inline D2 widen_part(Floats a, int i) {
  const F4 q = a.q[i / 2];
  return __builtin_convertvector((i % 2 == 0 ? F2{q[0], q[1]} : F2{q[2], q[3]}), D2);
}

#include <halfstep/kernels/detail/lanes.inc>

#include <halfstep/kernels/detail/bodies.inc>

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::portable
HALFSTEP_END_TARGET
