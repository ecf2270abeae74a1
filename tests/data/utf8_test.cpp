// SPDX-License-Identifier: MIT
#include <halfstep/data/utf8.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace {

using namespace halfstep::data;

std::string utf8(char32_t c) {
  std::string out;
  append_utf8(out, c);
  return out;
}

TEST(Utf8, EveryCodePointSurvivesARoundTripAndNoSurrogateDoes) {
  int whole = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const std::string bytes = utf8(c);
    const Utf8Front front = utf8_front(bytes);
    if (c >= 0xD800 && c <= 0xDFFF) {
      ASSERT_EQ(front.kind, Utf8Front::Kind::broken);
      continue;
    }
    ASSERT_EQ(front.kind, Utf8Front::Kind::whole) << static_cast<std::uint32_t>(c);
    ASSERT_EQ(front.code_point, c);
    ASSERT_EQ(front.bytes, bytes.size());
    for (std::size_t n = 1; n < bytes.size(); ++n) {
      ASSERT_EQ(utf8_front(std::string_view(bytes).substr(0, n)).kind, Utf8Front::Kind::cut);
    }
    ++whole;
  }
  EXPECT_EQ(whole, 0x110000 - 0x800);
}

TEST(Utf8, ExactlyTheCodePointsAreWholeAmongAllSequencesOfThreeBytes) {
  // RFC 3629 by counting: of 2^24 three-byte strings, those whose whole is valid UTF-8 are
  // 128^3 of three ASCII, 2 x 128 x 1920 of one ASCII and one two-byte character, and 61440
  // three-byte characters (0x800 to 0xFFFF without 2048 surrogates).
  std::int64_t valid = 0;
  std::string text(3, '\0');
  for (std::uint32_t i = 0; i < 1U << 24; ++i) {
    text[0] = static_cast<char>(i >> 16);
    text[1] = static_cast<char>(i >> 8 & 0xFF);
    text[2] = static_cast<char>(i & 0xFF);
    valid += utf8_valid_until(text) == 3 ? 1 : 0;
  }
  EXPECT_EQ(valid, 128LL * 128 * 128 + 2LL * 128 * 1920 + 61440);
}

TEST(Utf8, ValidUntilSaysWhereTheFirstBrokenByteStands) {
  EXPECT_EQ(utf8_valid_until(""), 0U);
  EXPECT_EQ(utf8_valid_until("ab\xC3\xA4"), 4U);
  EXPECT_EQ(utf8_valid_until("ab\xC3"), 2U);
  EXPECT_EQ(utf8_valid_until("ab\xE4zz"), 2U);
  EXPECT_EQ(utf8_valid_until("\xC0\x80"), 0U);          // an overlong NUL
  EXPECT_EQ(utf8_valid_until("\xF4\x90\x80\x80"), 0U);  // U+110000
}

TEST(Utf8Stream, HoldsACharacterBackUntilItsLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE2"), "a");
  EXPECT_EQ(stream.push("\x82"), "");
  EXPECT_EQ(stream.push("\xAC" "b"), "\xE2\x82\xAC" "b");  // the euro sign over three pushes
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, BrokenStartsBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  // The example of the Unicode standard, table 3-8: 61 F1 80 80 E1 80 C2 62 80 63 80 BF 64.
  const std::string text = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  const std::string wanted = "a" + r + r + r + "b" + r + "c" + r + r + "d";
  Utf8Stream whole;
  EXPECT_EQ(whole.push(text) + whole.finish(), wanted);
  Utf8Stream bytewise;
  std::string out;
  for (const char c : text) out += bytewise.push(std::string_view(&c, 1));
  EXPECT_EQ(out + bytewise.finish(), wanted);
}

TEST(Utf8Stream, WhatIsCutAtTheEndIsOneReplacementAndIsForgotten) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("a"), "a");
}

TEST(Utf8Stream, WhatComesOutIsAlwaysUtf8) {
  std::uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    Utf8Stream stream;
    std::string out;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525U + 1013904223U;
      // Half of the bytes from the range where sequences begin and go on.
      const auto byte = static_cast<char>(state >> 16 | ((state >> 24 & 1) != 0 ? 0x80U : 0U));
      out += stream.push(std::string_view(&byte, 1));
      ASSERT_EQ(utf8_valid_until(out), out.size());
    }
    out += stream.finish();
    ASSERT_EQ(utf8_valid_until(out), out.size());
  }
}

}  // namespace
