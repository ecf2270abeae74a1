// SPDX-License-Identifier: MIT
#include <halfstep/numeric/convert.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kernels/cases.hpp>
#include <require.hpp>

#include "formats.hpp"

using cases::Guarded;
using halfstep::bf16;
using halfstep::fp16;
using halfstep::fp8_e4m3;
using halfstep::fp8_e5m2;
using halfstep_tests::code;
using halfstep_tests::codes;
using halfstep_tests::name_of;
namespace core = halfstep::core;
namespace numeric = halfstep::numeric;

namespace {

template <class From, class To>
void convert(const core::Compute& compute, const std::vector<From>& in, std::vector<To>& out) {
  numeric::convert(compute, std::span<const From>(in), std::span<To>(out));
}
float float_of(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}
std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
template <class Format>
std::uint32_t bits_of(halfstep::small_float<Format> x) {
  return x.bits();
}

/// Calls visit.template operator()<T>() for the formats that a run stores or trains in.
template <class Visit>
void every_trained_format(Visit visit) {
  visit.template operator()<bf16>();
  visit.template operator()<fp16>();
  visit.template operator()<fp8_e4m3>();
  visit.template operator()<fp8_e5m2>();
}

struct Bulk {
  template <class From, class To>
  void operator()(const core::Compute& compute, const std::vector<From>& in,
                  std::vector<To>& out) const {
    convert(compute, in, out);
  }
};
/// Right but for one input: the float 1 + 2^-7 and each format's code 1 lose their last bit.
struct Corrupted {
  template <class To>
  void operator()(const core::Compute& compute, const std::vector<float>& in,
                  std::vector<To>& out) const {
    convert(compute, in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (bits_of(in[i]) == 0x3F81'0000U) out[i] = code<To>(out[i].bits() ^ 1U);
    }
  }
  template <class From>
  void operator()(const core::Compute& compute, const std::vector<From>& in,
                  std::vector<float>& out) const {
    convert(compute, in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].bits() == 1) out[i] = float_of(bits_of(out[i]) ^ 1U);
    }
  }
};

/// The paths on which T has a body of its own. One loop is all that e8m0 has: it is run once.
template <class T>
std::vector<core::Isa> paths() {
  const auto all = core::available_isas();
  std::vector<core::Isa> some(all.begin(), all.end());
  if (!numeric::detail::has_lanes<T>) some.resize(1);
  return some;
}

struct Compared {
  std::int64_t inputs = 0;
  std::array<std::int64_t, 4> mismatches{};
};
template <class T>
void expect_none_wrong(const char* way, const Compared& result, std::int64_t space) {
  EXPECT_EQ(result.inputs, space);
  for (const core::Isa isa : paths<T>()) {
    const auto mismatches = result.mismatches[static_cast<std::size_t>(isa)];
    std::printf(
        "%s %s: %lld inputs, %lld mismatches, path %s\n", way, name_of<T>,
        static_cast<long long>(result.inputs), static_cast<long long>(mismatches),
        numeric::detail::has_lanes<T> ? std::string(core::to_string(isa)).c_str() : "of all");
    EXPECT_EQ(mismatches, 0);
  }
}

/// Every stride-th float goes through all paths that this CPU has; every result must have the bits
/// of the scalar, which the formats' own tests judge by oracles.
template <class T, class Converter>
Compared compare_floats(std::uint64_t stride, Converter converter) {
  constexpr std::size_t block = 1 << 14;
  std::vector<float> in(block);
  std::vector<T> want(block), got(block);
  Compared result;
  for (std::uint64_t bits = 0; bits <= 0xFFFF'FFFF;) {
    std::size_t filled = 0;
    for (; filled < block && bits <= 0xFFFF'FFFF; ++filled, bits += stride) {
      in[filled] = float_of(bits);
      want[filled] = T{in[filled]};
    }
    for (const core::Isa isa : paths<T>()) {
      converter(core::Compute{.isa = isa}, in, got);
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < filled; ++i)
        wrong += got[i].bits() != want[i].bits() ? 1 : 0;
      result.mismatches[static_cast<std::size_t>(isa)] += wrong;
    }
    result.inputs += static_cast<std::int64_t>(filled);
  }
  return result;
}
/// Every code to float in the same way.
template <class T, class Converter>
Compared compare_codes(Converter converter) {
  std::vector<T> in;
  for (std::uint32_t i = 0; i < codes<T>; ++i)
    in.push_back(code<T>(i));
  std::vector<float> out(in.size());
  Compared result{.inputs = std::ssize(in)};
  for (const core::Isa isa : paths<T>()) {
    converter(core::Compute{.isa = isa}, in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const bool same = bits_of(out[i]) == bits_of(static_cast<float>(in[i]));
      result.mismatches[static_cast<std::size_t>(isa)] += same ? 0 : 1;
    }
  }
  return result;
}

template <class T>
class ConvertOf : public testing::Test {};
TYPED_TEST_SUITE(ConvertOf, halfstep_tests::Types<halfstep_tests::AllFormats>,
                 halfstep_tests::NameOfFormat);

TYPED_TEST(ConvertOf, ASampleOfAllFloatsIsNarrowedAsTheScalarDoes) {
  expect_none_wrong<TypeParam>("float to", compare_floats<TypeParam>(4099, Bulk{}), 1'047'809);
}
TYPED_TEST(ConvertOf, EveryCodeIsWidenedAsTheScalarDoes) {
  expect_none_wrong<TypeParam>("to float from", compare_codes<TypeParam>(Bulk{}), codes<TypeParam>);
}
TYPED_TEST(ConvertOf, TheComparisonsWithTheScalarSeeOneWrongNumber) {
  const Compared narrow = compare_floats<TypeParam>(0x1'0000, Corrupted{});
  const Compared wide = compare_codes<TypeParam>(Corrupted{});
  for (const core::Isa isa : paths<TypeParam>()) {
    EXPECT_EQ(narrow.mismatches[static_cast<std::size_t>(isa)], 1);
    EXPECT_EQ(wide.mismatches[static_cast<std::size_t>(isa)], 1);
  }
}
template <class T>
class NightlyConvert : public testing::Test {};
TYPED_TEST_SUITE(NightlyConvert, halfstep_tests::Types<halfstep_tests::AllFormats>,
                 halfstep_tests::NameOfFormat);
TYPED_TEST(NightlyConvert, EveryFloatIsNarrowedOnEveryPathAsTheScalarDoes) {
  expect_none_wrong<TypeParam>("float to", compare_floats<TypeParam>(1, Bulk{}),
                               std::int64_t{1} << 32);
}

// The instruction sets that this CPU lacks are named, not passed over.
class ConvertPath : public testing::TestWithParam<core::Isa> {};
TEST_P(ConvertPath, IsOneThatThisMachineComparesAll) {
  if (!core::supports(core::detect_cpu(), GetParam()))
    HALFSTEP_SKIP_HARDWARE(core::to_string(GetParam()));
  const auto all = core::available_isas();
  EXPECT_NE(std::find(all.begin(), all.end(), GetParam()), all.end());
}
INSTANTIATE_TEST_SUITE_P(Isa, ConvertPath, testing::ValuesIn(core::all_isas),
                         [](const auto& one) { return std::string(core::to_string(one.param)); });

TEST(Convert, GoesBetweenSmallFormatsAsTheScalarDoes) {
  every_trained_format([]<class From>() {
    std::vector<From> in(codes<From>);
    for (std::uint32_t i = 0; i < codes<From>; ++i)
      in[i] = code<From>(i);
    every_trained_format([&]<class To>() {
      std::vector<To> out(in.size());
      for (const core::Isa isa : core::available_isas()) {
        convert(core::Compute{.isa = isa}, in, out);
        for (std::size_t i = 0; i < in.size(); ++i)
          ASSERT_EQ(out[i].bits(), To(in[i]).bits()) << name_of<From> << ' ' << i;
      }
    });
  });
}

/// Subnormals, NaNs, values beyond the formats' ends and ordinary ones.
std::vector<float> mixed_values(std::size_t n) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < n; ++i) {
    values.push_back(i % 7 == 3    ? float_of(0x0001'2345U * (i % 100 + 1))
                     : i % 11 == 5 ? float_of(0x7F80'0001U + i % 1000)
                     : i % 13 == 6 ? static_cast<float>(i) * 1e34F
                                   : static_cast<float>(i % 997) * 1.37F - 500.0F);
  }
  return values;
}
template <class From>
std::vector<From> as(const std::vector<float>& values) {
  std::vector<From> out;
  for (const float x : values)
    out.push_back(static_cast<From>(x));
  return out;
}

// Both arrays end where a page begins that may not be touched, and start behind one: whatever the
// length, so the offset within a vector is swept too.
template <class From, class To>
void expect_every_length(const std::vector<float>& values) {
  for (const core::Isa isa : core::available_isas()) {
    for (std::size_t n = 0; n <= values.size(); ++n) {
      Guarded<From> in(as<From>({values.end() - static_cast<std::ptrdiff_t>(n), values.end()}));
      Guarded<To> out(static_cast<std::int64_t>(n));
      numeric::convert(core::Compute{.isa = isa}, std::span<const From>(in), std::span<To>(out));
      for (std::size_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::int64_t>(i);
        ASSERT_EQ(bits_of(out[at]), bits_of(static_cast<To>(in[at]))) << n << ' ' << i;
      }
    }
  }
}
TEST(Convert, TakesEveryLengthAndTouchesNothingBesideTheArrays) {
  const std::vector<float> values = mixed_values(150);
  every_trained_format([&]<class T>() {
    expect_every_length<float, T>(values);
    expect_every_length<T, float>(values);
  });
  expect_every_length<bf16, fp16>(values);
}

// Arrays beyond the caches have a loop of their own: a head up to the first whole line, six parts
// of whole 64s side by side, and a tail.
template <class From, class To>
void expect_past_caches(std::size_t n, std::size_t offset) {
  const std::vector<float> values = mixed_values(n);
  for (const core::Isa isa : core::available_isas()) {
    Guarded<From> in(as<From>(values));
    Guarded<To> out(static_cast<std::int64_t>(n + offset), To{1.0F});
    numeric::detail::convert_bodies<From, To>(isa).past_caches(in.data(), out.data(),
                                                               static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n + offset; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const To want = i < n ? static_cast<To>(in[at]) : To{1.0F};
      ASSERT_EQ(bits_of(out[at]), bits_of(want)) << n << ' ' << offset << ' ' << i;
    }
  }
}
TEST(Convert, PastTheCachesGivesTheSameBitsAtEveryAlignmentAndLength) {
  every_trained_format([]<class T>() {
    for (const std::size_t n : {0UL, 3UL, 100UL, 6 * 64UL - 1, 6 * 64UL + 63, 30011UL}) {
      for (const std::size_t offset : {0U, 1U, 31U, 40U}) {
        expect_past_caches<float, T>(n, offset);
        expect_past_caches<T, float>(n, offset);
      }
    }
  });
}
TEST(Convert, OfManyMegabytesGivesTheScalarBits) {
  const std::size_t n = numeric::detail::past_caches / 6 + 77;
  std::vector<float> in(n);
  for (std::size_t i = 0; i < n; ++i)
    in[i] = float_of(i * 393U);
  std::vector<bf16> out(n);
  core::ThreadPool pool(2);
  convert(core::Compute{.pool = &pool}, in, out);
  for (std::size_t i = 0; i < n; ++i)
    ASSERT_EQ(out[i].bits(), bf16{in[i]}.bits()) << i;
}

TEST(Convert, DoesNotHearOfTheCallersFloatingPointEnvironment) {
  const std::vector<float> values = mixed_values(1000);
  for (const unsigned mxcsr : {0x1F80U, 0x3F80U, 0x5F80U, 0x7F80U, 0x9FC0U, 0xFFC0U, 0x0000U}) {
    for (const core::Isa isa : core::available_isas()) {
      every_trained_format([&]<class T>() {
        std::vector<T> narrow(values.size());
        std::vector<float> wide(values.size());
        const unsigned saved = core::read_mxcsr();
        core::write_mxcsr(mxcsr);
        convert(core::Compute{.isa = isa}, values, narrow);
        convert(core::Compute{.isa = isa}, narrow, wide);
        const unsigned after = core::read_mxcsr();
        core::write_mxcsr(saved);
        EXPECT_EQ(after, mxcsr);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(narrow[i].bits(), T{values[i]}.bits()) << i << ' ' << mxcsr;
          ASSERT_EQ(bits_of(wide[i]), bits_of(static_cast<float>(narrow[i]))) << i << ' ' << mxcsr;
        }
      });
    }
  }
}

TEST(Convert, KeepsSubnormalsThatTheBf16InstructionWouldFlush) {
  for (const core::Isa isa : core::available_isas()) {
    const std::vector<float> in(33, 0x1p-127F);
    std::vector<bf16> out(33);
    convert(core::Compute{.isa = isa}, in, out);
    for (const bf16 x : out)
      ASSERT_EQ(x.bits(), 0x0040);
  }
}

TEST(Convert, DoubleRoundsOnceAndKeepsSubnormalsUnderTheKernelsEnvironment) {
  const core::Compute compute;
  const std::vector<double> in{1 + 0x1p-11 + 0x1p-40, 0x1p-140, -0x1p-149, 1e300, -0.0};
  std::vector<fp16> h(in.size());
  std::vector<bf16> b(in.size());
  std::vector<fp8_e4m3> q(in.size());
  std::vector<float> f(in.size());
  std::vector<double> back(in.size());
  convert(compute, in, h);
  convert(compute, in, b);
  convert(compute, in, q);
  convert(compute, in, f);
  EXPECT_EQ(h[0].bits(), 0x3C01);
  EXPECT_EQ(b[3].bits(), 0x7F80);
  EXPECT_EQ(q[3].bits(), 0x7F);
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_EQ(bits_of(f[i]), bits_of(static_cast<float>(in[i])));
  convert(compute, f, back);
  EXPECT_EQ(back[1], 0x1p-140);
  EXPECT_EQ(back[2], -0x1p-149);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(back[4]), std::bit_cast<std::uint64_t>(-0.0));
  const std::vector<bf16> smallest{bf16::from_bits(1)};
  std::vector<double> wide(1);
  convert(compute, smallest, wide);
  EXPECT_EQ(wide[0], 0x1p-133);
}

// Values between two neighbours whose middle float cannot tell from a tie.
TEST(Convert, DoublesThatFloatWouldRoundTwiceGiveTheReferencesCodes) {
  const core::Compute compute;
  const std::vector<double> in{1 + 0x1p-11 + 0x1p-22,
                               1 + 0x1p-11 + 0x1p-40,
                               0x1p-14 - 0x1p-25 - 0x1p-65,
                               0x1FFDFFFFFFp-26,
                               std::bit_cast<double>(0x3E60'0000'0000'0001U),
                               1.00048828125000022204};
  const std::vector<unsigned> want{0x3C01, 0x3C01, 0x03FF, 0x67FF, 0x0001, 0x3C01};
  std::vector<fp16> out(in.size());
  convert(compute, in, out);
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_EQ(out[i].bits(), want[i]) << in[i];
  std::vector<bf16> b(1);
  convert(compute, std::vector<double>{1 + 0x1p-8 + 0x1p-40}, b);
  EXPECT_EQ(b[0].bits(), 0x3F81);
}

TEST(Convert, ThreadsShareTheWorkAndGiveTheSameBits) {
  std::vector<float> in(100003);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = float_of(i * 42949U);
  std::vector<bf16> alone(in.size()), shared(in.size());
  core::ThreadPool pool(3);
  convert(core::Compute{}, in, alone);
  convert(core::Compute{.pool = &pool}, in, shared);
  for (std::size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(alone[i].bits(), shared[i].bits());
}

TEST(Convert, OfOneFormatToItselfCopiesAlsoInPlace) {
  std::vector<fp8_e5m2> x(256);
  for (std::uint32_t i = 0; i < 256; ++i)
    x[i] = code<fp8_e5m2>(i);
  convert(core::Compute{}, x, x);
  for (std::uint32_t i = 0; i < 256; ++i)
    EXPECT_EQ(x[i].bits(), i);
}

TEST(Convert, ADifferentLengthThrowsWithBoth) {
  std::vector<float> in(3);
  std::vector<bf16> out(2);
  try {
    convert(core::Compute{}, in, out);
    FAIL();
  } catch (const halfstep::ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "convert: in has 3 elements but out has 2. Was one of them resized?");
  }
}

}  // namespace
