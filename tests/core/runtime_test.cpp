// SPDX-License-Identifier: MIT
#include <halfstep/core/runtime.hpp>

#include <string>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {
using halfstep::Runtime;
using halfstep::core::Isa;
using testing::HasSubstr;

TEST(Runtime, OwnsWhatAComputeShows) {
  Runtime runtime({.threads = 2, .seed = 42, .isa = Isa::portable});
  EXPECT_EQ(runtime.threads(), 2);
  EXPECT_EQ(runtime.seed(), 42U);
  EXPECT_EQ(runtime.isa(), Isa::portable);
  const halfstep::core::Compute compute = runtime.compute();
  EXPECT_EQ(compute.isa, Isa::portable);
  EXPECT_EQ(compute.pool, &runtime.pool());
  EXPECT_EQ(compute.counters, &runtime.counters());
  EXPECT_EQ(runtime.ledger().live(), 0);
  EXPECT_EQ(runtime.counters().flops, 0U);
  static_assert(!std::is_copy_constructible_v<Runtime> && !std::is_move_constructible_v<Runtime>);
}
TEST(Runtime, ByDefaultTakesWhatTheProcessMayUse) {
  const Runtime runtime;
  EXPECT_EQ(runtime.threads(), halfstep::core::available_threads());
  EXPECT_EQ(runtime.isa(), halfstep::core::default_isa());
  EXPECT_EQ(runtime.seed(), 1U);
}
TEST(Runtime, DescribesItself) {
  const Runtime runtime({.threads = 3, .seed = 7, .isa = Isa::portable});
  const std::string line = runtime.describe();
  EXPECT_THAT(line, HasSubstr("halfstep " HALFSTEP_VERSION " on "));
  EXPECT_THAT(line,
              HasSubstr("path portable (RuntimeOptions::isa asks for it); 3 threads (as asked; "));
  EXPECT_THAT(line, HasSubstr("seed 7."));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}
TEST(Runtime, RefusesThreadsThatAreNone) {
  for (const int threads : {-1, 1025}) {
    try {
      const Runtime runtime({.threads = threads});
      FAIL() << threads;
    } catch (const halfstep::OptionError& error) {
      EXPECT_EQ(error.what(), "Runtime: threads is " + std::to_string(threads) +
                                  "; wanted 1 to 1024, or 0 for as many as this process may use.");
    }
  }
}
TEST(Runtime, RefusesAPathThatTheCpuLacks) {
  const auto cpu = halfstep::core::detect_cpu();
  for (const Isa isa : halfstep::core::all_isas) {
    if (supports(cpu, isa)) {
      EXPECT_EQ(Runtime({.threads = 1, .isa = isa}).isa(), isa);
    } else {
      EXPECT_THROW(Runtime({.threads = 1, .isa = isa}), halfstep::OptionError);
    }
  }
}
TEST(Runtime, TwoOfThemShareNothing) {
  Runtime first({.threads = 2}), second({.threads = 2});
  first.ledger().add(halfstep::core::Category::weights, 8);
  first.compute().parallel(2, 1, [](auto, auto, int) {});
  EXPECT_EQ(second.ledger().live(), 0);
  EXPECT_EQ(second.pool().tasks_per_worker()[1], 0U);
  EXPECT_EQ(first.pool().tasks_per_worker()[1], 1U);
}
}  // namespace
