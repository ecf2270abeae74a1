// SPDX-License-Identifier: MIT
// One answer: the run of the preset `hash` gives the same bits whatever it ran on, and others where
// something that matters differs. Compilers and levels: hash_probe.cpp.
#include <cfenv>
#include <cstdint>
#include <ostream>
#include <string>

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <halfstep/core/isa.hpp>
#include <halfstep/numeric/format.hpp>

#include "capstone/hash_run.hpp"

namespace hs = halfstep;
using hash_run::Outcome;
using hash_run::Settings;

namespace hash_run {
void PrintTo(const Outcome& o, std::ostream* out) { *out << o.hash << " loss " << o.train_loss; }
bool operator==(const Outcome& a, const Outcome& b) {
  return a.hash == b.hash && a.train_loss == b.train_loss && a.held_out == b.held_out &&
         a.micro_batches == b.micro_batches && a.skipped == b.skipped;
}
}  // namespace hash_run

namespace {

/// A rounding mode with FTZ and DAZ on, until it is destroyed.
class Environment {
 public:
  explicit Environment(int rounding) {
    std::fesetround(rounding);
    _mm_setcsr(_mm_getcsr() | 0x8040U);
    control = _mm_getcsr() & ~0x3FU;
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { std::fesetenv(FE_DFL_ENV); }
  unsigned control;  ///< MXCSR without its flags
};

template <class T>
class Hash : public testing::Test {
 public:
  // fp16 starts so high that some updates are skipped; bf16 and float have no scale.
  static Settings plain() {
    Settings settings;
    if constexpr (std::same_as<T, hs::fp16>) settings.first_scale = 0x1p24F;
    return settings;
  }
};
struct Names {
  template <class T>
  static std::string GetName(int) {
    return std::string(hs::format_name<T>);
  }
};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(Hash, Formats, Names);

TYPED_TEST(Hash, IsTheSameForOneTwoAndThreeThreads) {
  const Outcome one = hash_run::run<TypeParam>(TestFixture::plain());
  EXPECT_EQ(one.micro_batches, 40);
  EXPECT_EQ(one.skipped > 0, (std::same_as<TypeParam, hs::fp16>));
  for (const int threads : {2, 3}) {
    Settings settings = TestFixture::plain();
    settings.runtime.threads = threads;
    EXPECT_EQ(hash_run::run<TypeParam>(settings), one) << threads;
  }
}

TYPED_TEST(Hash, IsTheSameOnEveryPath) {
  Settings settings = TestFixture::plain();
  settings.runtime.isa = hs::core::Isa::portable;
  const Outcome portable = hash_run::run<TypeParam>(settings);
  EXPECT_GT(portable.counters.products[0], 0U);
  for (const hs::core::Isa isa : hs::core::available_isas()) {
    settings.runtime.isa = isa;
    const Outcome outcome = hash_run::run<TypeParam>(settings);
    EXPECT_EQ(outcome, portable) << to_string(isa);
    // The path that was asked for did the work; avx512_bf16's own kernel is for bf16 alone, and
    // beside it other products take the float path.
    const bool has_bf16_kernel = std::same_as<TypeParam, hs::bf16>;
    for (const hs::core::Isa other : hs::core::all_isas) {
      const auto count = outcome.counters.products[static_cast<std::size_t>(other)];
      if (isa != hs::core::Isa::avx512_bf16) {
        EXPECT_EQ(count > 0, other == isa)
            << to_string(isa) << " asked, " << to_string(other) << " ran";
      } else if (other == (has_bf16_kernel ? isa : hs::core::Isa::avx512)) {
        EXPECT_GT(count, 0U) << to_string(other);
      }
    }
  }
}

TYPED_TEST(Hash, DoesNotDependOnTheCallersFloatingPointEnvironment) {
  const Outcome plain = hash_run::run<TypeParam>(TestFixture::plain());
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    const Environment mine(rounding);
    const Outcome outcome = hash_run::run<TypeParam>(TestFixture::plain());
    EXPECT_EQ(_mm_getcsr() & ~0x3FU, mine.control) << "the caller's environment has changed";
    EXPECT_EQ(outcome, plain) << rounding;
  }
}

TYPED_TEST(Hash, IsTheSameWithSegmentsAndOpsAreReplayed) {
  const Outcome none = hash_run::run<TypeParam>(TestFixture::plain());
  Settings settings = TestFixture::plain();
  settings.segments = 2;
  const Outcome two = hash_run::run<TypeParam>(settings);
  EXPECT_EQ(two, none);
  EXPECT_EQ(none.replayed, 0);
  EXPECT_GT(two.replayed, 0);
}

TYPED_TEST(Hash, DiffersWhereSomethingThatMattersDoes) {
  const std::uint64_t plain = hash_run::run<TypeParam>(TestFixture::plain()).hash;
  const auto differs = [&](const char* what, auto&& change) {
    Settings settings = TestFixture::plain();
    change(settings);
    EXPECT_NE(hash_run::run<TypeParam>(settings).hash, plain) << what;
  };
  differs("seed", [](Settings& s) { s.runtime.seed = 2; });
  differs("clip", [](Settings& s) { s.clip = 0.1F; });
  differs("dropout", [](Settings& s) { s.dropout = 0.0F; });
  differs("text", [](Settings& s) { s.replace = 'o'; });
  differs("steps", [](Settings& s) { s.steps = 19; });
}

TEST(HashOfFormats, Differ) {
  const auto a = hash_run::run<float>({}).hash, b = hash_run::run<hs::bf16>({}).hash,
             c = hash_run::run<hs::fp16>({}).hash;
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
  EXPECT_NE(a, c);
}

}  // namespace
