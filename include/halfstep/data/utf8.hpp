// SPDX-License-Identifier: MIT
// UTF-8 to code points and back, and a stream that never shows half a character.
// Not for: tokens (data/tokenizer.hpp), case, normal forms or grapheme clusters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// The front of a text, read as one UTF-8 sequence (RFC 3629: shortest form, no surrogates, at
/// most U+10FFFF).
struct Utf8Front {
  enum class Kind {
    whole,   ///< `code_point` in `bytes` bytes
    cut,     ///< all of the text, `bytes` long, may begin a character that goes on
    broken,  ///< `bytes` bytes (at least 1) that begin no character: U+FFFD stands for them
  };
  Kind kind = Kind::broken;
  std::size_t bytes = 0;
  char32_t code_point = 0xFFFD;
};

/// Reads the front of a text that is not empty. A broken front is as long as the longest start of
/// a character in it, at least one byte (Unicode 15, 3.9, "substitution of maximal subparts").
[[nodiscard]] constexpr Utf8Front utf8_front(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {Utf8Front::Kind::whole, 1, static_cast<char32_t>(first)};
  if (first < 0xC2 || first > 0xF4) return {Utf8Front::Kind::broken, 1};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte carries all the restrictions: overlong forms, surrogates, the upper end.
  const std::uint32_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const std::uint32_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  std::uint32_t code_point = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Front::Kind::cut, i};
    const std::uint32_t next = byte(i);
    if (next < (i == 1 ? low : 0x80U) || next > (i == 1 ? high : 0xBFU)) {
      return {Utf8Front::Kind::broken, i};
    }
    code_point = code_point << 6 | (next & 0x3F);
  }
  return {Utf8Front::Kind::whole, length, static_cast<char32_t>(code_point)};
}

/// Appends a code point (not a surrogate, at most U+10FFFF) as UTF-8.
constexpr void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const auto c = static_cast<std::uint32_t>(code_point);
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

/// Where the first byte stands that is not UTF-8, or the text's size if all of it is.
[[nodiscard]] constexpr std::size_t utf8_valid_until(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Front front = utf8_front(text.substr(at));
    if (front.kind != Utf8Front::Kind::whole) return at;
    at += front.bytes;
  }
  return at;
}

/// Bytes in, one or a few at a time; valid UTF-8 out.
///
/// A character whose bytes have not all come is held back (at most 3 bytes); what can become no
/// character comes out as U+FFFD. So a sample may be shown token by token, whatever the model
/// writes.
class Utf8Stream {
 public:
  /// What can be shown now that these bytes have come; often nothing.
  [[nodiscard]] std::string push(std::string_view bytes) {
    held_ += bytes;
    return take(false);
  }
  /// What was held back, as U+FFFD, or nothing. The stream is as new afterwards.
  [[nodiscard]] std::string finish() { return take(true); }

 private:
  std::string take(bool last) {
    std::string out;
    std::size_t at = 0;
    while (at < held_.size()) {
      const Utf8Front front = utf8_front(std::string_view(held_).substr(at));
      if (front.kind == Utf8Front::Kind::cut && !last) break;
      append_utf8(out, front.code_point);
      at += front.bytes;
    }
    held_.erase(0, at);
    return out;
  }
  std::string held_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
