// SPDX-License-Identifier: MIT
#include <halfstep/numeric/text.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <system_error>

#include <gtest/gtest.h>

#include <numeric/formats.hpp>

using namespace halfstep_tests;
using halfstep::bf16;
using halfstep::fp16;

namespace {

template <class T>
T parse(const std::string& text, std::errc want = std::errc{}, std::size_t left = 0) {
  T x{};
  const auto result = from_chars(text.data(), text.data() + text.size(), x);
  EXPECT_EQ(result.ec, want) << text;
  EXPECT_EQ(static_cast<std::size_t>(text.data() + text.size() - result.ptr), left) << text;
  return x;
}

template <class T>
class Text : public testing::Test {};
TYPED_TEST_SUITE(Text, Types<AllFormats>, NameOfFormat);

TYPED_TEST(Text, EveryCodeReadsBackFromItsText) {
  int inputs = 0;
  std::size_t longest = 0;
  for (std::uint32_t bits = 0; bits < codes<TypeParam>; ++bits, ++inputs) {
    const auto x = code<TypeParam>(bits);
    const std::string text = to_string(x);
    longest = text.size() > longest ? text.size() : longest;
    const auto back = parse<TypeParam>(text);
    if (isnan(x)) {
      ASSERT_TRUE(isnan(back)) << text;
    } else {
      ASSERT_EQ(back.bits(), bits) << text;
    }
  }
  EXPECT_LE(longest, 24U);
  std::printf("%s: %d inputs, 0 mismatches, path scalar\n", name_of<TypeParam>, inputs);
  ASSERT_EQ(inputs, 1 << TypeParam::format::bits);
}

// No decimal with fewer digits lies within half a gap: checked with strtod on the printed digits.
TYPED_TEST(Text, NoShorterTextReadsBack) {
  const std::uint32_t stride = TypeParam::format::bits > 8 ? 7 : 1;
  for (std::uint32_t bits = 1; bits <= TypeParam::format::max_code; bits += stride) {
    const auto x = code<TypeParam>(bits);
    const std::string text = to_string(x);
    std::string digits;
    for (const char c : text) {
      if (c == 'e') break;
      if (c >= '0' && c <= '9' && (!digits.empty() || c != '0')) digits += c;
    }
    while (digits.size() > 1 && digits.back() == '0')
      digits.pop_back();
    if (digits.size() < 2) continue;
    char shorter[40];
    std::snprintf(shorter, sizeof shorter, "%.*e", static_cast<int>(digits.size()) - 2,
                  static_cast<double>(x));
    // What saturates is no text of the largest.
    TypeParam back{};
    const bool in_range =
        from_chars(shorter, shorter + std::strlen(shorter), back).ec == std::errc{};
    ASSERT_FALSE(in_range && TypeParam{std::strtod(shorter, nullptr)}.bits() == bits)
        << text << " and " << shorter;
  }
}

TYPED_TEST(Text, LongDecimalsRoundOnce) {
  // The middle between two neighbours, written out in full, and one digit more or less behind it.
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const auto below_max = static_cast<std::uint32_t>(random() % TypeParam::format::max_code);
    const auto x = code<TypeParam>(below_max), next = code<TypeParam>(below_max + 1);
    const double middle = (static_cast<double>(x) + static_cast<double>(next)) / 2;
    char text[600];
    char* const end =
        std::to_chars(text, text + sizeof text, middle, std::chars_format::fixed, 200).ptr;
    std::string exact(text, end);
    const bool down = TypeParam::format::has_zero && x.bits() % 2 == 0;  // scales tie upward
    ASSERT_EQ(parse<TypeParam>(exact).bits(), down ? x.bits() : next.bits()) << exact;
    ASSERT_EQ(parse<TypeParam>(exact + std::string(300, '0') + "1").bits(), next.bits()) << exact;
    const double below = std::nextafter(middle, 0.0);
    char below_text[600];
    char* const below_end = std::to_chars(below_text, below_text + sizeof below_text, below,
                                          std::chars_format::scientific, 60)
                                .ptr;
    ASSERT_EQ(parse<TypeParam>(std::string(below_text, below_end)).bits(), x.bits()) << exact;
  }
}

TEST(TextCases, TiesAndOverflowsOfPublicReports) {
  EXPECT_EQ(parse<fp16>("2.98023223876953125e-8").bits(), 0x0000);
  EXPECT_EQ(parse<fp16>("2.98023223876953126e-8").bits(), 0x0001);
  EXPECT_EQ(parse<fp16>("656e2", std::errc::result_out_of_range).bits(), 0x7C00);
  EXPECT_EQ(parse<fp16>("65519.99999").bits(), 0x7BFF);
  EXPECT_EQ(parse<bf16>("-1e9999999999", std::errc::result_out_of_range).bits(), 0xFF80);
  EXPECT_EQ(parse<bf16>("1e-9999999999").bits(), 0x0000);
  EXPECT_EQ(parse<fp16>("1.00048828125000022204").bits(), 0x3C01);
}

TEST(TextCases, WhatAFormatCannotHoldIsOutOfRange) {
  using namespace halfstep;
  const auto out = std::errc::result_out_of_range;
  EXPECT_EQ(parse<fp8_e4m3>("464").bits(), 0x7E);
  EXPECT_EQ(parse<fp8_e4m3>("464.001", out).bits(), 0x7F);
  EXPECT_EQ(parse<fp8_e4m3>("-inf", out).bits(), 0xFF);
  EXPECT_EQ(parse<fp8_e5m2>("inf").bits(), 0x7C);
  EXPECT_EQ(parse<fp8_e5m2>("61440", out).bits(), 0x7C);
  EXPECT_EQ(parse<fp6_e2m3>("7.74").bits(), 0x1F);
  EXPECT_EQ(parse<fp6_e2m3>("-100", out).bits(), 0x3F);
  EXPECT_EQ(parse<fp4_e2m1>("nan", out).bits(), 0x8);
  EXPECT_EQ(parse<fp8_e8m0>("0", out).bits(), 0xFF);
  EXPECT_EQ(parse<fp8_e8m0>("-2", out).bits(), 0xFF);
  EXPECT_EQ(parse<fp8_e4m3fnuz>("-0").bits(), 0x00);
}

TEST(TextCases, WhatIsNotPartOfTheNumberIsLeft) {
  EXPECT_EQ(parse<bf16>("2.5x", {}, 1), bf16{2.5});
  EXPECT_EQ(parse<bf16>("-.5"), bf16{-0.5});
  EXPECT_EQ(parse<bf16>("1.5e+", {}, 2), bf16{1.5});
  EXPECT_EQ(parse<bf16>("3.", {}), bf16{3});
  EXPECT_TRUE(isinf(parse<bf16>("-INFinity")));
  EXPECT_TRUE(isnan(parse<bf16>("NaN")));
  for (const std::string bad : {"", "-", "+1", " 1", ".", "e5", "x"}) {
    bf16 x{7};
    const auto result = from_chars(bad.data(), bad.data() + bad.size(), x);
    EXPECT_EQ(result.ec, std::errc::invalid_argument) << bad;
    EXPECT_EQ(result.ptr, bad.data()) << bad;
    EXPECT_EQ(x, bf16{7}) << bad;
  }
}

TEST(TextCases, PrintsTheShorterOfFixedAndScientific) {
  EXPECT_EQ(to_string(bf16{0.1F}), "0.1");
  EXPECT_EQ(to_string(bf16{1}), "1");
  EXPECT_EQ(to_string(bf16{-2.5F}), "-2.5");
  EXPECT_EQ(to_string(fp16::from_bits(1)), "6e-08");
  EXPECT_EQ(to_string(bf16::from_bits(0x7F7F)), "3.39e+38");
  EXPECT_EQ(to_string(bf16{-0.0F}), "-0");
  EXPECT_EQ(to_string(halfstep::fp8_e4m3{448}), "450");  // two digits tell it from all others
  EXPECT_EQ(to_string(halfstep::fp8_e4m3{0x1p-9F}), "0.002");
  EXPECT_EQ(to_string(halfstep::fp8_e5m2{57344}), "60000");
  EXPECT_EQ(to_string(bf16::from_bits(0xFF80)), "-inf");
  EXPECT_EQ(to_string(bf16::from_bits(0x7FC0)), "nan");
  EXPECT_EQ(to_string(halfstep::fp6_e3m2{28}), "28");  // 30 is nearer to what is too large
  char small[2];
  EXPECT_EQ(to_chars(small, small + 2, bf16{0.1F}).ec, std::errc::value_too_large);
}

TEST(TextCases, LiteralsRoundOnceFromTheirText) {
  using namespace halfstep::literals;
  static_assert((0.1_bf16).bits() == 0x3DCD && (1.00048828125000022204_fp16).bits() == 0x3C01);
  static_assert((448_fp8_e4m3).bits() == 0x7E && (0.3_fp8_e5m2).bits() == 0x35);
  static_assert((65'504_fp16).bits() == 0x7BFF && (1e-3_fp16) == fp16{1e-3});
}

}  // namespace
