// SPDX-License-Identifier: MIT
// The 16-lane vectors of each path, operation by operation: the kernels' equality rests on them.
#include <halfstep/kernels/detail/isa.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/compute.hpp>
#include <halfstep/numeric/elementary.hpp>

// One function per path, beside the kernels it stands for.
#define HALFSTEP_TEST_BODY(path)                                                               \
  namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail::path {                          \
  inline void apply(int operation, const float* a, const float* b, const float* c, float* r) { \
    const Floats x = load(a), y = load(b), z = load(c);                                        \
    switch (operation) {                                                                       \
      case 0:                                                                                  \
        store(r, fma(x, y, z));                                                                \
        break;                                                                                 \
      case 1:                                                                                  \
        store(r, add(x, y));                                                                   \
        break;                                                                                 \
      case 2:                                                                                  \
        store(r, sub(x, y));                                                                   \
        break;                                                                                 \
      case 3:                                                                                  \
        store(r, mul(x, y));                                                                   \
        break;                                                                                 \
      case 4:                                                                                  \
        store(r, div(x, y));                                                                   \
        break;                                                                                 \
      case 5:                                                                                  \
        store(r, sqrt(x));                                                                     \
        break;                                                                                 \
      case 6:                                                                                  \
        store(r, max(x, y));                                                                   \
        break;                                                                                 \
      case 7:                                                                                  \
        store(r, min(x, y));                                                                   \
        break;                                                                                 \
      case 8:                                                                                  \
        store(r, select_lt(x, y, z, x));                                                       \
        break;                                                                                 \
      case 9:                                                                                  \
        store(r, round_nearest(x));                                                            \
        break;                                                                                 \
      case 10:                                                                                 \
        store(r, copy_sign(x, y));                                                             \
        break;                                                                                 \
      case 11:                                                                                 \
        store(r, neg(abs(x)));                                                                 \
        break;                                                                                 \
      case 12:                                                                                 \
        store(r, broadcast<Floats>(sum(x)));                                                   \
        break;                                                                                 \
      case 13:                                                                                 \
        store(r, broadcast<Floats>(max_of(x)));                                                \
        break;                                                                                 \
      case 14:                                                                                 \
        store(r, narrow(mul(widen(x), widen(y))));                                             \
        break;                                                                                 \
      case 15:                                                                                 \
        store(r, exp(x));                                                                      \
        break;                                                                                 \
      case 16:                                                                                 \
        store(r, tanh(x));                                                                     \
        break;                                                                                 \
      default:                                                                                 \
        store(r, erf(x));                                                                      \
        break;                                                                                 \
    }                                                                                          \
  }                                                                                            \
  inline void transposed(float* m) {                                                           \
    Floats rows[16];                                                                           \
    for (int i = 0; i < 16; ++i)                                                               \
      rows[i] = load(m + 16 * i);                                                              \
    transpose(rows);                                                                           \
    for (int i = 0; i < 16; ++i)                                                               \
      store(m + 16 * i, rows[i]);                                                              \
  }                                                                                            \
  }
HALFSTEP_BEGIN_TARGET(PORTABLE)
HALFSTEP_TEST_BODY(portable)
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX2)
HALFSTEP_TEST_BODY(avx2)
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX512)
HALFSTEP_TEST_BODY(avx512)
HALFSTEP_END_TARGET

namespace {

using halfstep::core::Compute;
using halfstep::core::Isa;

enum Operation {
  fma_,
  add_,
  sub_,
  mul_,
  div_,
  sqrt_,
  max_,
  min_,
  select_,
  round_,
  sign_,
  neg_abs_,
  sum_,
  max_of_,
  narrow_,
  exp_,
  tanh_,
  erf_
};

// The paths that this CPU has; AVX-512-BF16 has AVX-512's vectors. (Asked once: CPUID is slow in a
// virtual machine.)
std::vector<Isa> paths() {
  auto all = halfstep::core::available_isas();
  std::erase(all, Isa::avx512_bf16);
  return all;
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Floats of every kind: any bits; few bits and near exponents, whose sums fall on midpoints;
// around 2^-126; the ends of the range.
float draw(std::mt19937_64& random, int kind) {
  const auto u = static_cast<std::uint32_t>(random());
  const std::uint32_t sign = u & 0x80000000U;
  switch (kind) {
    case 0:
      return std::bit_cast<float>(u);
    case 1:
      return std::bit_cast<float>(sign | (120U + (u >> 26 & 15U)) << 23 | (u & 0x7FE000U));
    case 2:
      return std::bit_cast<float>(sign | (u >> 24 & 0x47U) << 23 |
                                  ((u & 3U) != 0 ? u & 0x7FFFFFU : 0U));
    case 3:
      return std::bit_cast<float>(sign | (126U + (u >> 24 & 3U)) << 23 |
                                  ((u & 1U) != 0 ? 0x7FFFFFU : u >> 1 & 1U));
    default:
      return std::bit_cast<float>(sign | (188U + (u >> 24 & 3U)) << 23 | (u & 0x7FFFFFU));
  }
}

template <class Body>
void under_kernel_environment(Body body) {
  Compute{}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) { body(); });
}

// fma is the one whose portable form is a proof: 16 lanes x 1.5 million, against std::fma.
TEST(Vectors, PortableFmaIsTheFusedOneOnTensOfMillionsOfTriples) {
  const auto isas = paths();
  std::int64_t inputs = 0, midpoints = 0, flushed = 0, mismatches[3] = {};
  under_kernel_environment([&] {
    std::mt19937_64 random(1);
    for (int round = 0; round < 1'500'000; ++round) {
      float a[16], b[16], c[16], r[16], expected[16];
      for (int i = 0; i < 16; ++i) {
        a[i] = draw(random, round % 5);
        b[i] = draw(random, round % 5 == 2 ? 1 : round % 5);
        c[i] = draw(random, round % 5);
        // A tiny addend beside an exact midpoint decides the rounding.
        if (round % 10 == 1) c[i] = a[i] * b[i] * 0x1p-25F;
        if (round % 10 == 6)
          c[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a[i]) & 0xFFFFFF00U) * 0x1p-20F;
        expected[i] = std::fma(a[i], b[i], c[i]);
        const double s =
            static_cast<double>(a[i]) * static_cast<double>(b[i]) + static_cast<double>(c[i]);
        midpoints += (std::bit_cast<std::uint64_t>(s) & 0x1FFFFFFFU) == 0x10000000U;
        flushed += expected[i] == 0.0F;
      }
      inputs += 16;
      for (const Isa isa : isas) {
        HALFSTEP_PICK(isa, apply)(fma_, a, b, c, r);
        for (int i = 0; i < 16; ++i)
          mismatches[static_cast<int>(isa)] += !same(r[i], expected[i]);
      }
    }
  });
  EXPECT_GE(midpoints, 10'000);
  EXPECT_GE(flushed, 100'000);
  for (int isa = 0; isa < 3; ++isa)
    EXPECT_EQ(mismatches[isa], 0) << isa;
  std::printf("%lld inputs, %lld on midpoints, %lld flushed\n", static_cast<long long>(inputs),
              static_cast<long long>(midpoints), static_cast<long long>(flushed));
}

TEST(Vectors, EveryOperationGivesThePortableBits) {
  const auto isas = paths();
  std::int64_t mismatches = 0;
  under_kernel_environment([&] {
    std::mt19937_64 random(2);
    for (int round = 0; round < 300'000; ++round) {
      float a[16], b[16], c[16], expected[16], r[16];
      for (int i = 0; i < 16; ++i) {
        a[i] = draw(random, round % 5);
        b[i] = draw(random, round % 7 % 5);
        c[i] = draw(random, 0);
      }
      const int operation = round % 18;
      HALFSTEP_PICK(Isa::portable, apply)(operation, a, b, c, expected);
      for (const Isa isa : isas) {
        HALFSTEP_PICK(isa, apply)(operation, a, b, c, r);
        for (int i = 0; i < 16; ++i) {
          if (same(r[i], expected[i])) continue;
          if (mismatches++ < 5) {
            ADD_FAILURE() << "operation " << operation << " of " << a[i] << ", " << b[i] << ": "
                          << r[i] << ", portable " << expected[i];
          }
        }
      }
    }
  });
  EXPECT_EQ(mismatches, 0);
}

TEST(Vectors, SumsFoldLanesEightFourTwoOne) {
  const auto isas = paths();
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    float a[16], lanes[16], r[16];
    for (int i = 0; i < 16; ++i)
      lanes[i] = a[i] = draw(random, 1);
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i)
        lanes[i] = lanes[i] + lanes[i + step];
    }
    for (const Isa isa : isas) {
      HALFSTEP_PICK(isa, apply)(sum_, a, a, a, r);
      EXPECT_EQ(r[0], lanes[0]);
    }
  }
}

TEST(Vectors, TransposesTurnRowsIntoColumns) {
  for (const Isa isa : paths()) {
    float m[256];
    for (int i = 0; i < 256; ++i)
      m[i] = static_cast<float>(i);
    HALFSTEP_PICK(isa, transposed)(m);
    for (int i = 0; i < 256; ++i)
      EXPECT_EQ(m[i], static_cast<float>(i % 16 * 16 + i / 16));
  }
}

using Scalar = float (*)(float);
// Every step-th float in the given function, each path against numeric's, under FTZ and DAZ.
void elementary(Operation operation, Scalar scalar, std::uint64_t step, const char* name) {
  const auto isas = paths();
  std::int64_t inputs = 0, mismatches[3] = {};
  under_kernel_environment([&] {
    for (std::uint64_t first = 0; first < (std::uint64_t{1} << 32); first += 16 * step) {
      float x[16], expected[16], r[16];
      for (std::uint64_t i = 0; i < 16; ++i) {
        x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i * step));
        expected[i] = scalar(x[i]);
      }
      inputs += 16;
      for (const Isa isa : isas) {
        HALFSTEP_PICK(isa, apply)(operation, x, x, x, r);
        for (int i = 0; i < 16; ++i)
          mismatches[static_cast<int>(isa)] += !same(r[i], expected[i]);
      }
    }
  });
  for (const Isa isa : isas) {
    std::printf("%s: %lld inputs, %lld mismatches, path %s\n", name, static_cast<long long>(inputs),
                static_cast<long long>(mismatches[static_cast<int>(isa)]),
                std::string(halfstep::core::to_string(isa)).c_str());
    EXPECT_EQ(mismatches[static_cast<int>(isa)], 0) << name;
  }
  if (step == 1) {
    EXPECT_EQ(inputs, std::int64_t{1} << 32);
  }
}
float exp_of(float x) { return halfstep::numeric::exp(x); }
float tanh_of(float x) { return halfstep::numeric::tanh(x); }
float erf_of(float x) { return halfstep::numeric::erf(x); }

TEST(Vectors, ExpTanhAndErfAreTheScalarOnes) {
  elementary(exp_, exp_of, 641, "exp");
  elementary(tanh_, tanh_of, 1283, "tanh");
  elementary(erf_, erf_of, 1283, "erf");
}
TEST(NightlyVectors, ExpIsTheScalarOneForAllFloats) { elementary(exp_, exp_of, 1, "exp"); }
TEST(NightlyVectors, TanhAndErfAreTheScalarOnesForEverySixteenthFloat) {
  elementary(tanh_, tanh_of, 17, "tanh");
  elementary(erf_, erf_of, 17, "erf");
}

}  // namespace
