// SPDX-License-Identifier: MIT
#include <halfstep/core/float_environment.hpp>

#include <bit>
#include <cstdint>
#include <stdexcept>

#include <gtest/gtest.h>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/pool.hpp>

namespace {
using halfstep::core::call_in_float_environment;
using halfstep::core::Compute;
using halfstep::core::kernel_mxcsr;
using halfstep::core::read_mxcsr;
using halfstep::core::ThreadPool;
using halfstep::core::write_mxcsr;

constexpr unsigned flags = 0x3F;  // the sticky exception flags, which arithmetic sets
constexpr unsigned callers[] = {
    0x1F80,           // the default
    0x1F80 | 0x2000,  // rounds down
    0x1F80 | 0x4000,  // rounds up
    0x1F80 | 0x6000,  // rounds to zero
    0x9FC0,           // FTZ and DAZ
    0xFFC0,           // all of these
    0x1D80,           // traps division by zero
};

/// Sets the caller's environment for a scope.
struct CallersEnvironment {
  explicit CallersEnvironment(unsigned value) { write_mxcsr(value); }
  ~CallersEnvironment() { write_mxcsr(0x1F80); }
};

/// Results that depend on rounding, FTZ and DAZ, and that divide by zero.
struct Results {
  float third, minus_third, flushed, from_subnormal, infinite;
  unsigned environment;
  bool operator==(const Results&) const = default;
};
void compute(void* context, std::int64_t begin, std::int64_t end, int worker) {
  volatile float one = 1.0F, three = 3.0F, tiny = 0x1p-100F, zero = 0.0F;
  volatile float subnormal = std::bit_cast<float>(std::uint32_t{0x0040'0000});
  auto& out = *static_cast<Results*>(context);
  out = {one / three,         -one / three, tiny * tiny * 0x1p60F,
         subnormal * 0x1p40F, one / zero,   read_mxcsr() & ~flags};
  if (begin != 3 || end != 8 || worker != 2) throw std::runtime_error("arguments");
}

TEST(FloatEnvironment, TheCallersDoesNotReachTheKernelAndComesBack) {
  for (const unsigned caller : callers) {
    const CallersEnvironment scope(caller);
    Results results{};
    call_in_float_environment(&compute, &results, 3, 8, 2);
    const unsigned after = read_mxcsr();
    const Results expected{0x1.555556p-2F,
                           -0x1.555556p-2F,
                           0.0F,
                           0.0F,
                           std::bit_cast<float>(std::uint32_t{0x7F80'0000}),
                           kernel_mxcsr};
    write_mxcsr(0x1F80);
    EXPECT_EQ(after, caller) << std::hex << caller;
    EXPECT_TRUE(results == expected)
        << std::hex << caller << ": " << results.third << " " << results.minus_third << " "
        << results.flushed << " " << results.from_subnormal << " " << results.environment;
  }
}
TEST(FloatEnvironment, TheSameFunctionAnswersOtherwiseWithoutTheGuard) {
  const CallersEnvironment scope(0x1F80 | 0x4000);
  Results results{};
  compute(&results, 3, 8, 2);
  write_mxcsr(0x1F80);
  EXPECT_EQ(results.third, 0x1.555556p-2F);  // up is the nearest here
  EXPECT_EQ(results.minus_third, -0x1.555554p-2F);
  EXPECT_NE(results.from_subnormal, 0.0F);
}
TEST(FloatEnvironment, ComesBackWhenTheBodyThrows) {
  const CallersEnvironment scope(0x1F80 | 0x2000);
  Results results{};
  EXPECT_THROW(call_in_float_environment(&compute, &results, 0, 0, 0), std::runtime_error);
  EXPECT_EQ(read_mxcsr() & ~flags, 0x1F80U | 0x2000U);
}
TEST(FloatEnvironment, IsTheSameOnEveryWorkerOfAPool) {
  ThreadPool pool(3);
  const CallersEnvironment scope(0x1F80 | 0x6000);
  unsigned seen[3] = {};
  float thirds[3] = {};
  volatile float minus_one = -2.0F, three = 3.0F;
  Compute compute_on{.pool = &pool};
  for (int round = 0; round < 100; ++round) {
    compute_on.parallel(3, 1, [&](std::int64_t begin, std::int64_t, int worker) {
      seen[worker] = read_mxcsr() & ~flags;
      thirds[begin] = minus_one / three;
    });
    for (const unsigned value : seen)
      ASSERT_EQ(value, kernel_mxcsr);
    for (const float value : thirds)
      ASSERT_EQ(value, -0x1.555556p-1F);
  }
  EXPECT_EQ(read_mxcsr() & ~flags, 0x1F80U | 0x6000U);
}
}  // namespace
