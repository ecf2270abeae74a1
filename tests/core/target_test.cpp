// SPDX-License-Identifier: MIT
#include <halfstep/core/target.hpp>

#include <array>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/contraction.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/isa.hpp>

#include "require.hpp"

namespace {
using halfstep::core::Isa;
using Function = void (*)(const float* a, const float* b, float* c, int n);

// The same loop in each region and in none: one expression, so that clang contracts it too.
#define LOOP                                                                     \
  HALFSTEP_NOINLINE void loop(const float* a, const float* b, float* c, int n) { \
    for (int i = 0; i < n; ++i)                                                  \
      c[i] = a[i] * b[i] + c[i];                                                 \
  }
#define STATEMENTS                                                                     \
  HALFSTEP_NOINLINE void statements(const float* a, const float* b, float* c, int n) { \
    for (int i = 0; i < n; ++i) {                                                      \
      const float product = a[i] * b[i];                                               \
      c[i] = product + c[i];                                                           \
    }                                                                                  \
  }
HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace portable {
LOOP STATEMENTS
}
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX2)
namespace avx2 {
LOOP STATEMENTS
}
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX512)
namespace avx512 {
LOOP STATEMENTS
}
HALFSTEP_END_TARGET
HALFSTEP_BEGIN_TARGET(AVX512_BF16)
namespace avx512_bf16 {
LOOP STATEMENTS
}
HALFSTEP_END_TARGET
namespace none {
__attribute__((target("avx2,fma"))) LOOP
}  // namespace none

/// How many of 4099 sums had their product rounded first; the others show in the first bit lost.
int rounded_twice(Function function) {
  constexpr int n = 4099;
  std::mt19937 random(7);
  std::vector<float> a(n), b(n), c(n);
  for (int i = 0; i < n; ++i) {
    const auto j = static_cast<std::size_t>(i);
    a[j] = static_cast<float>(random() | 1U);
    b[j] = static_cast<float>(random() | 1U);
    c[j] = -static_cast<float>(static_cast<double>(a[j]) * static_cast<double>(b[j]));
  }
  function(a.data(), b.data(), c.data(), n);
  int count = 0;
  for (const float value : c)
    count += value == 0.0F ? 1 : 0;
  return count;
}

class Region : public testing::TestWithParam<Isa> {};
TEST_P(Region, NeverContractsAProductIntoASum) {
  if (!halfstep::core::supports(halfstep::core::detect_cpu(), GetParam())) {
    HALFSTEP_SKIP_HARDWARE("the CPU does not list " << to_string(GetParam()));
  }
  constexpr std::array<Function, 4> loops{portable::loop, avx2::loop, avx512::loop,
                                          avx512_bf16::loop};
  constexpr std::array<Function, 4> statements{portable::statements, avx2::statements,
                                               avx512::statements, avx512_bf16::statements};
  const auto path = static_cast<std::size_t>(GetParam());
  EXPECT_EQ(rounded_twice(loops[path]), 4099);
  EXPECT_EQ(rounded_twice(statements[path]), 4099);
  EXPECT_FALSE(halfstep::core::contracts(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Isa, Region, testing::ValuesIn(halfstep::core::all_isas),
                         [](const auto& one) { return std::string(to_string(one.param)); });

// The trap is real, and the setting of the unit is as before after a region.
TEST(Region, CodeOutsideContractsAsTheCompilerLikes) {
  if (!halfstep::core::detect_cpu().avx2) HALFSTEP_SKIP_HARDWARE("the CPU has no FMA");
  const int twice = rounded_twice(none::loop);
#if defined(__clang__) || defined(__OPTIMIZE__)
  EXPECT_LT(twice, 500);
#else
  EXPECT_EQ(twice, 4099);  // g++ -O0
#endif
}
TEST(Contraction, NothingIsRefusedInThisProgram) {
  for (const Isa isa : halfstep::core::available_isas()) {
    EXPECT_NO_THROW(halfstep::core::require_no_contraction(isa));
  }
}
}  // namespace
