// SPDX-License-Identifier: MIT
// The small formats as decimal text: correctly rounded parsing, shortest printing that reads back,
// and literals (1.5_bf16). Integer code, no locale, no rounding mode. Not for float and double:
// <charconv> is.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include <halfstep/core/config.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/detail/round.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {
namespace numeric::detail {

/// An integer of up to 2560 bits, enough for 256 digits and the powers of ten of these formats.
struct BigInteger {
  std::array<std::uint32_t, 80> words{};  ///< lowest first
  std::size_t used = 0;

  constexpr void multiply_add(std::uint32_t factor, std::uint32_t carry) {
    for (std::size_t i = 0; i < used; ++i) {
      const std::uint64_t sum = std::uint64_t{words[i]} * factor + carry;
      words[i] = static_cast<std::uint32_t>(sum);
      carry = static_cast<std::uint32_t>(sum >> 32);
    }
    if (carry != 0) words[used++] = carry;
  }
  /// Returns the remainder.
  constexpr std::uint32_t divide(std::uint32_t divisor) {
    std::uint64_t rest = 0;
    for (std::size_t i = used; i-- > 0;) {
      rest = (rest << 32) | words[i];
      words[i] = static_cast<std::uint32_t>(rest / divisor);
      rest %= divisor;
    }
    while (used > 0 && words[used - 1] == 0)
      --used;
    return static_cast<std::uint32_t>(rest);
  }
  constexpr void shift_words(std::size_t count) {
    for (std::size_t i = used; i-- > 0;)
      words[i + count] = words[i];
    for (std::size_t i = 0; i < count; ++i)
      words[i] = 0;
    used += count;
  }
};

/// digits * 10^exponent (and a bit more, if sticky) as an exact source of `round`.
[[nodiscard]] constexpr Exact from_decimal(bool negative, BigInteger digits, int exponent,
                                           bool sticky) {
  int shift = 0;  // value = digits * 2^-shift
  if (exponent >= 0) {
    for (; exponent > 0; --exponent)
      digits.multiply_add(10, 0);
  } else {
    // 64 bits more than 10^-exponent has (at most 4 each), so that the quotient has 64 bits too.
    const auto count = static_cast<std::size_t>((-exponent * 4 + 95) / 32);
    digits.shift_words(count);
    shift = static_cast<int>(count) * 32;
    for (; exponent <= -9; exponent += 9)
      sticky |= digits.divide(1'000'000'000) != 0;
    for (; exponent < 0; ++exponent)
      sticky |= digits.divide(10) != 0;
  }
  std::uint64_t top = 0;
  std::size_t taken = 0;
  for (; taken < 2 && taken < digits.used; ++taken)
    top = (top << 32) | digits.words[digits.used - 1 - taken];
  for (std::size_t i = 0; i + taken < digits.used; ++i)
    sticky |= digits.words[i] != 0;
  return {negative, top, static_cast<int>(digits.used - taken) * 32 - shift, sticky};
}

struct Parsed {
  std::size_t length = 0;  ///< characters that belong to the number; 0: none
  std::uint32_t code = 0;
  bool overflow = false;  ///< the format has nothing like it
};

[[nodiscard]] constexpr bool starts_with_word(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (std::size_t i = 0; i < lower.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
  }
  return true;
}

template <class Format>
[[nodiscard]] constexpr Parsed parse(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  std::size_t at = negative ? 1 : 0;
  for (const std::string_view word : {std::string_view("infinity"), std::string_view("inf")}) {
    if (starts_with_word(text.substr(at), word))
      return {at + word.size(), infinity_code<Format>(negative), !Format::has_infinity};
  }
  if (starts_with_word(text.substr(at), "nan"))
    return {at + 3, nan_code<Format>(negative), !Format::has_nan};

  BigInteger digits;
  int kept = 0, exponent = 0;
  bool any = false, sticky = false, point = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    any = true;
    if (kept < 256) {  // a tie between two values of these formats has fewer digits
      if (digits.used > 0 || c != '0') {
        digits.multiply_add(10, static_cast<std::uint32_t>(c - '0'));
        ++kept;
      }
      if (point) exponent -= exponent > -100'000'000 ? 1 : 0;
    } else {
      sticky |= c != '0';
      if (!point) exponent += exponent < 100'000'000 ? 1 : 0;
    }
  }
  if (!any) return {};
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t next = at + 1;
    const bool minus = next < text.size() && text[next] == '-';
    if (next < text.size() && (text[next] == '-' || text[next] == '+')) ++next;
    const std::size_t first = next;
    int value = 0;
    for (; next < text.size() && text[next] >= '0' && text[next] <= '9'; ++next) {
      if (value < 100'000'000) value = value * 10 + (text[next] - '0');
    }
    if (next > first) {  // else the e is not part of the number
      at = next;
      exponent += minus ? -value : value;
    }
  }
  if (digits.used == 0) return {at, zero_code<Format>(negative), !Format::has_zero};
  Exact exact{negative, 1, 0, false};
  if (kept + exponent > 60) {
    exact.exponent = 100'000;
  } else if (kept + exponent < -60) {
    exact.exponent = -100'000;
  } else {
    exact = from_decimal(negative, digits, exponent, sticky);
  }
  const bool overflow = (negative && !Format::is_signed) ||
                        round_magnitude<Format, Rounding::nearest_even>(exact) > Format::max_code;
  return {at, round<Format>(exact), overflow};
}

template <class Format>
[[nodiscard]] constexpr small_float<Format> from_code(std::uint32_t code) {
  return small_float<Format>::from_bits(static_cast<typename Format::storage>(code));
}

template <class Format, char... Text>
[[nodiscard]] consteval small_float<Format> literal() {
  char text[sizeof...(Text) + 1] = {};
  std::size_t length = 0;
  for (const char c : {Text...}) {
    if (c != '\'') text[length++] = c;
  }
  const Parsed parsed = parse<Format>({text, length});
  if (parsed.length != length) throw "halfstep: only decimal literals can be of a small format";
  if (parsed.overflow) throw "halfstep: the literal is beyond the largest value of its format";
  return from_code<Format>(parsed.code);
}

}  // namespace numeric::detail

/// Reads a decimal number as std::from_chars does (its general format, "inf" and "nan" included),
/// rounded once to nearest even however many digits there are. Differs: beyond the largest value
/// `x` becomes what converting the number gives (infinity, where there is one), with
/// std::errc::result_out_of_range; below half the smallest it becomes zero, without an error. Words
/// and signs that the format cannot hold are out of range too.
template <class Format>
constexpr std::from_chars_result from_chars(const char* first, const char* last,
                                            small_float<Format>& x) {
  const auto parsed =
      numeric::detail::parse<Format>({first, static_cast<std::size_t>(last - first)});
  if (parsed.length == 0) return {first, std::errc::invalid_argument};
  x = numeric::detail::from_code<Format>(parsed.code);
  return {first + parsed.length, parsed.overflow ? std::errc::result_out_of_range : std::errc{}};
}

/// Writes the fewest digits that read back as x, the nearest to x among those; "1e-05" or "0.001",
/// whichever is shorter. 24 characters always suffice.
template <class Format>
inline std::to_chars_result to_chars(char* first, char* last, small_float<Format> x) {
  std::string out;
  if (signbit(x)) out += '-';
  const small_float<Format> size = abs(x);
  if (isnan(x)) {
    out += "nan";
  } else if (isinf(x)) {
    out += "inf";
  } else if (iszero(x)) {
    out += '0';
  } else {
    const auto value = static_cast<double>(size);
    long best = 0;
    int exponent = 0;
    for (int precision = 0; best == 0; ++precision) {
      // "d.ddde-xx", exactly rounded. The nearest decimal may lie in the shorter half of the gap
      // below a power of two and its neighbour still within the longer half, so both are tried.
      char text[32];
      const char* const end =
          std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, precision)
              .ptr;
      const char* at = text;
      long digits = 0;
      for (; *at != 'e'; ++at) {
        if (*at != '.') digits = digits * 10 + (*at - '0');
      }
      ++at;
      std::from_chars(*at == '+' ? at + 1 : at, end, exponent);
      exponent -= precision;
      for (const long candidate : {digits, digits + 1, digits - 1}) {
        numeric::detail::BigInteger big;
        big.words[0] = static_cast<std::uint32_t>(candidate);
        big.used = candidate != 0 ? 1 : 0;
        const auto code = numeric::detail::round<Format>(
            numeric::detail::from_decimal(false, big, exponent, false));
        if (code == size.bits() && best == 0) best = candidate;
      }
    }
    for (; best % 10 == 0; best /= 10)
      ++exponent;
    const std::string digits = std::to_string(best);
    const int length = static_cast<int>(digits.size());
    const int point = length + exponent;  // digits before the decimal point, where positive
    // Appended piece by piece: g++ 12 warns of an overlap that is none in "." + string.
    std::string scientific(1, digits[0]);
    if (length > 1) scientific.append(1, '.').append(digits, 1);
    const int power = point - 1;
    scientific += power < 0 ? "e-" : "e+";
    if (power > -10 && power < 10) scientific += '0';
    scientific += std::to_string(power < 0 ? -power : power);
    std::string fixed;
    if (exponent >= 0) {
      fixed.append(digits).append(static_cast<std::size_t>(exponent), '0');
    } else if (point > 0) {
      const auto whole = static_cast<std::size_t>(point);
      fixed.append(digits, 0, whole).append(1, '.').append(digits, whole);
    } else {
      fixed.append("0.").append(static_cast<std::size_t>(-point), '0').append(digits);
    }
    out += fixed.size() <= scientific.size() ? fixed : scientific;
  }
  if (last - first < static_cast<std::ptrdiff_t>(out.size()))
    return {last, std::errc::value_too_large};
  out.copy(first, out.size());
  return {first + out.size(), std::errc{}};
}

/// to_chars as a string.
template <class Format>
[[nodiscard]] inline std::string to_string(small_float<Format> x) {
  char text[32];
  return {text, to_chars(text, text + sizeof text, x).ptr};
}

inline namespace literals {
/// 0.1_bf16, 1e-3_fp16: rounded once from the decimal text, at compile time.
template <char... Text>
[[nodiscard]] consteval bf16 operator""_bf16() {
  return numeric::detail::literal<bf16::format, Text...>();
}
template <char... Text>
[[nodiscard]] consteval fp16 operator""_fp16() {
  return numeric::detail::literal<fp16::format, Text...>();
}
template <char... Text>
[[nodiscard]] consteval fp8_e4m3 operator""_fp8_e4m3() {
  return numeric::detail::literal<fp8_e4m3::format, Text...>();
}
template <char... Text>
[[nodiscard]] consteval fp8_e5m2 operator""_fp8_e5m2() {
  return numeric::detail::literal<fp8_e5m2::format, Text...>();
}
}  // namespace literals

}  // namespace halfstep::inline HALFSTEP_CONFIG
