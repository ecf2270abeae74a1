// SPDX-License-Identifier: MIT
// One hash for each format over what the library promises to compute in integers: conversions,
// comparison, classification, fma, nextafter, total order, printing, parsing. Whatever the rounding
// mode, FTZ, DAZ or -ffast-math, it must be the same.
#pragma once

#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>

#include <halfstep/numeric/round_to.hpp>
#include <halfstep/numeric/text.hpp>
#include <numeric/formats.hpp>

namespace halfstep_tests {

struct IntegerHash {
  std::uint64_t value = 0xCBF29CE484222325;
  void add(std::uint64_t x) {
    value = (value ^ x) * 0x100000001B3;
    value ^= value >> 29;
  }
};

/// All bit patterns, then ones with the exponent of `code`'s neighbourhood: SplitMix64.
struct BitPatterns {
  std::uint64_t state = 1;
  std::uint64_t next() {
    state += 0x9E3779B97F4A7C15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
};

template <class T>
[[nodiscard]] std::uint64_t hash_of_integer_code(int rounds) {
  using halfstep::numeric::Overflow;
  using halfstep::numeric::round_to;
  using halfstep::numeric::Rounding;
  IntegerHash h;
  BitPatterns in;
  for (int i = 0; i < rounds; ++i) {
    const std::uint64_t r = in.next(), s = in.next();
    // Every second number among the format's own, with all the bits behind that float has.
    const auto near = std::bit_cast<std::uint32_t>(
        static_cast<float>(code<T>(static_cast<std::uint32_t>(r & 0xFFFF))));
    const auto f =
        std::bit_cast<float>(i % 2 == 0 ? static_cast<std::uint32_t>(r >> 16)
                                        : near ^ static_cast<std::uint32_t>(s & 0x1FFFF));
    const auto wide = std::bit_cast<std::uint64_t>(
        static_cast<double>(code<T>(static_cast<std::uint32_t>(s & 0xFFFF))));
    const auto d = std::bit_cast<double>(i % 2 == 0 ? s : wide ^ (r & 0x1'FFFF'FFFF'FFFF));
    long double l = 0;
    const std::uint64_t significand = r | (std::uint64_t{1} << 63);
    const auto top = static_cast<std::uint16_t>((s & 0x8000) | (16383 - 150 + s % 300));
    std::memcpy(&l, &significand, 8);
    std::memcpy(reinterpret_cast<unsigned char*>(&l) + 8, &top, 2);
    const T a{f}, b{d}, c = code<T>(static_cast<std::uint32_t>(s >> 40) & 0xFFFF);
    h.add(a.bits());
    h.add(b.bits());
    h.add(T{l}.bits());
    h.add(T{static_cast<std::int64_t>(r) >> (s % 64)}.bits());
    h.add((round_to<T, Rounding::stochastic, Overflow::saturate>(f, s)).bits());
    h.add((round_to<T, Rounding::down, Overflow::nan>(d)).bits());
    h.add(std::bit_cast<std::uint32_t>(round_to<float, Rounding::to_odd>(d)));
    h.add(std::bit_cast<std::uint32_t>(static_cast<float>(c)));
    h.add(std::bit_cast<std::uint64_t>(static_cast<double>(c)));
    h.add(halfstep::bf16{c}.bits());
    h.add(fma(a, b, c).bits());
    h.add(nextafter(a, c).bits());
    h.add(std::uint64_t{a < b} | std::uint64_t{a == c} << 1 | std::uint64_t{b >= c} << 2 |
          std::uint64_t{totally_before(a, c)} << 3 | std::uint64_t{isnan(c)} << 4 |
          std::uint64_t{isinf(a)} << 5 | std::uint64_t{isnormal(c)} << 6 |
          std::uint64_t{isfinite(b)} << 7 | std::uint64_t{iszero(c)} << 8 |
          std::uint64_t{static_cast<bool>(a)} << 9);
    if (i % 16 == 0) {
      const std::string text = to_string(c);
      for (const char letter : text)
        h.add(static_cast<unsigned char>(letter));
      T back{};
      (void)from_chars(text.data(), text.data() + text.size(), back);
      h.add(back.bits());
    }
  }
  return h.value;
}

/// Calls `body(name, hash)` for every format.
template <class Body, class... T>
void hash_formats(int rounds, Body body, Formats<T...>) {
  (body(name_of<T>, hash_of_integer_code<T>(rounds)), ...);
}

}  // namespace halfstep_tests
