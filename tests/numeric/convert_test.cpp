// SPDX-License-Identifier: MIT
#include <halfstep/numeric/convert.hpp>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <require.hpp>

using halfstep::bf16;
using halfstep::fp16;
namespace core = halfstep::core;
namespace numeric = halfstep::numeric;

namespace {

template <class From, class To>
void convert(const core::Compute& compute, const std::vector<From>& in, std::vector<To>& out) {
  numeric::convert(compute, std::span<const From>(in), std::span<To>(out));
}

/// `steps` floats from every stretch of `stride` codes go through all paths; every result must have
/// the bits of the scalar, which fp16_test and bf16_test judge. Returns the number of inputs.
std::int64_t compare_floats(core::Isa isa, std::uint64_t stride) {
  const core::Compute compute{.isa = isa};
  constexpr std::size_t block = 1 << 16;
  std::vector<float> in(block);
  std::vector<bf16> b(block);
  std::vector<fp16> h(block);
  std::int64_t inputs = 0, mismatches = 0;
  for (std::uint64_t code = 0; code <= 0xFFFFFFFF;) {
    std::size_t filled = 0;
    for (; filled < block && code <= 0xFFFFFFFF; ++filled, code += stride) {
      in[filled] = std::bit_cast<float>(static_cast<std::uint32_t>(code));
    }
    convert(compute, in, b);
    convert(compute, in, h);
    for (std::size_t i = 0; i < filled; ++i) {
      if (b[i].bits() != numeric::detail::encode<bf16::format>(in[i])) ++mismatches;
      if (h[i].bits() != numeric::detail::encode<fp16::format>(in[i])) ++mismatches;
    }
    inputs += static_cast<std::int64_t>(filled);
  }
  std::printf("%lld inputs, %lld mismatches, path %s\n", static_cast<long long>(inputs),
              static_cast<long long>(mismatches), std::string(core::to_string(isa)).c_str());
  EXPECT_EQ(mismatches, 0);
  return inputs;
}

class Convert : public testing::TestWithParam<core::Isa> {
 protected:
  void SetUp() override {
    if (!core::supports(core::detect_cpu(), GetParam()))
      HALFSTEP_SKIP_HARDWARE(core::to_string(GetParam()));
  }
  core::Compute compute() const { return {.isa = GetParam()}; }
};
class NightlyConvert : public Convert {};

TEST_P(Convert, GivesTheScalarBitsOnASampleOfAllFloats) { compare_floats(GetParam(), 257); }

TEST_P(NightlyConvert, GivesTheScalarBitsOnEveryFloat) {
  EXPECT_EQ(compare_floats(GetParam(), 1), std::int64_t{1} << 32);
}

TEST_P(Convert, WidensEveryCodeAsTheScalarDoes) {
  std::vector<bf16> b(65536);
  std::vector<fp16> h(65536);
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = bf16::from_bits(static_cast<std::uint16_t>(i));
    h[i] = fp16::from_bits(static_cast<std::uint16_t>(i));
  }
  std::vector<float> from_b(b.size()), from_h(h.size());
  convert(compute(), b, from_b);
  convert(compute(), h, from_h);
  for (std::size_t i = 0; i < b.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(from_b[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(b[i])))
        << i;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(from_h[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(h[i])))
        << i;
  }
  std::printf("131072 inputs, 0 mismatches, path %s\n",
              std::string(core::to_string(GetParam())).c_str());
}

// Subnormals, NaNs and ordinary values at every position of a vector, and nothing written beside.
TEST_P(Convert, TakesEveryLengthAndOffsetAndWritesNothingBeside) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 64; ++i) {
    values.push_back(i % 7 == 3    ? std::bit_cast<float>(0x0001'2345U * (i + 1))
                     : i % 11 == 5 ? std::bit_cast<float>(0x7F80'0001U + i)
                                   : static_cast<float>(i) * 1.37F - 20.0F);
  }
  for (std::size_t offset = 0; offset < 8; ++offset) {
    for (std::size_t length = 0; length + offset + 1 <= 56; ++length) {
      std::vector<bf16> b(64, bf16::from_bits(0xABCD));
      std::vector<fp16> h(64, fp16::from_bits(0xABCD));
      std::vector<float> back(64, -7.0F), half_back(64, -7.0F);
      const auto in = std::span<const float>(values).subspan(offset, length);
      numeric::convert(compute(), in, std::span(b).subspan(offset + 1, length));
      numeric::convert(compute(), in, std::span(h).subspan(offset + 1, length));
      numeric::convert(compute(), std::span<const bf16>(b).subspan(offset + 1, length),
                       std::span(back).subspan(offset, length));
      numeric::convert(compute(), std::span<const fp16>(h).subspan(offset + 1, length),
                       std::span(half_back).subspan(offset, length));
      for (std::size_t i = 0; i < 64; ++i) {
        const bool inside = i > offset && i <= offset + length;
        ASSERT_EQ(b[i].bits(), inside ? bf16{values[i - 1]}.bits() : 0xABCD)
            << offset << ' ' << length << ' ' << i;
        ASSERT_EQ(h[i].bits(), inside ? fp16{values[i - 1]}.bits() : 0xABCD)
            << offset << ' ' << length << ' ' << i;
        const bool read = i >= offset && i < offset + length;
        const auto want = read ? static_cast<float>(bf16{values[i]}) : -7.0F;
        const auto half_want = read ? static_cast<float>(fp16{values[i]}) : -7.0F;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(want));
        ASSERT_EQ(std::bit_cast<std::uint32_t>(half_back[i]),
                  std::bit_cast<std::uint32_t>(half_want));
      }
    }
  }
}

TEST_P(Convert, KeepsSubnormalsThatTheBf16InstructionWouldFlush) {
  const std::vector<float> in(33, 0x1p-127F);
  std::vector<bf16> out(33);
  convert(compute(), in, out);
  for (const bf16 x : out)
    ASSERT_EQ(x.bits(), 0x0040);
}

INSTANTIATE_TEST_SUITE_P(Isa, Convert, testing::ValuesIn(core::all_isas),
                         [](const auto& one) { return std::string(core::to_string(one.param)); });
INSTANTIATE_TEST_SUITE_P(Isa, NightlyConvert, testing::ValuesIn(core::all_isas),
                         [](const auto& one) { return std::string(core::to_string(one.param)); });

TEST(ConvertOther, DoubleRoundsOnceAndKeepsSubnormalsUnderTheKernelsEnvironment) {
  const core::Compute compute;
  const std::vector<double> in{1 + 0x1p-11 + 0x1p-40, 0x1p-140, -0x1p-149, 1e300, -0.0};
  std::vector<fp16> h(in.size());
  std::vector<bf16> b(in.size());
  std::vector<float> f(in.size());
  std::vector<double> back(in.size());
  convert(compute, in, h);
  convert(compute, in, b);
  convert(compute, in, f);
  EXPECT_EQ(h[0].bits(), 0x3C01);
  EXPECT_EQ(b[3].bits(), 0x7F80);
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(f[i]),
              std::bit_cast<std::uint32_t>(static_cast<float>(in[i])));
  }
  convert(compute, f, back);
  EXPECT_EQ(back[1], 0x1p-140);
  EXPECT_EQ(back[2], -0x1p-149);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(back[4]), std::bit_cast<std::uint64_t>(-0.0));
  const std::vector<bf16> smallest{bf16::from_bits(1)};
  std::vector<double> wide(1);
  convert(compute, smallest, wide);
  EXPECT_EQ(wide[0], 0x1p-133);
}

TEST(ConvertOther, ThreadsShareTheWorkAndGiveTheSameBits) {
  std::vector<float> in(100003);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 42949U));
  std::vector<bf16> alone(in.size()), shared(in.size());
  core::ThreadPool pool(3);
  convert(core::Compute{}, in, alone);
  convert(core::Compute{.pool = &pool}, in, shared);
  for (std::size_t i = 0; i < in.size(); ++i)
    ASSERT_EQ(alone[i].bits(), shared[i].bits());
}

TEST(ConvertOther, ADifferentLengthThrowsWithBoth) {
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
