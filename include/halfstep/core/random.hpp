// SPDX-License-Identifier: MIT
// Random numbers as a pure function of (seed, stream, element): nothing to save at a checkpoint,
// the same draws on any layout. Normal draws, which need log and cos, are numeric/normal.hpp.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

using RandomWords = std::array<std::uint32_t, 4>;

/// Philox4x32-10: a bijection of the counters for each key. About 10 ns.
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
[[nodiscard]] constexpr RandomWords philox(RandomWords counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;  // the golden ratio and sqrt(3) - 1, as the paper has them
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

namespace detail {
[[nodiscard]] constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
[[nodiscard]] constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}
}  // namespace detail

/// The words of elements 4 * block to 4 * block + 3 of a stream; block below 2^62.
[[nodiscard]] constexpr RandomWords random_words4(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t block) {
  return philox({detail::low_word(block), detail::high_word(block), detail::low_word(stream),
                 detail::high_word(stream)},
                {detail::low_word(seed), detail::high_word(seed)});
}

/// 32 random bits: word element mod 4 of the element's block.
[[nodiscard]] constexpr std::uint32_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t element) {
  return random_words4(seed, stream, element / 4)[element % 4];
}

/// 64 random bits, of words 2 * element (low half) and 2 * element + 1 of the stream. So element e
/// shares words with the 32-bit elements 2e and 2e + 1: use one width per stream.
[[nodiscard]] constexpr std::uint64_t random_bits64(std::uint64_t seed, std::uint64_t stream,
                                                    std::uint64_t element) {
  const RandomWords words = random_words4(seed, stream, element / 2);
  const std::size_t first = element % 2 * 2;
  return words[first] | (std::uint64_t{words[first + 1]} << 32);
}

/// Uniform on the multiples of 2^-24 in [0, 1): the upper 24 bits of a word, exactly.
[[nodiscard]] constexpr float uniform_float(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}
/// Uniform on the multiples of 2^-53 in [0, 1): the upper 53 bits, exactly.
[[nodiscard]] constexpr double uniform_double(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}
[[nodiscard]] constexpr float uniform(std::uint64_t seed, std::uint64_t stream,
                                      std::uint64_t element) {
  return uniform_float(random_bits(seed, stream, element));
}
/// As uniform, in double; of two words, see random_bits64.
[[nodiscard]] constexpr double uniform64(std::uint64_t seed, std::uint64_t stream,
                                         std::uint64_t element) {
  return uniform_double(random_bits64(seed, stream, element));
}

/// A number in [0, n), n > 0, of 64 bits (see random_bits64) by multiplication: the chances of two
/// results differ by at most 2^-64, so the bias is n / 2^64 of a chance and cannot be observed.
[[nodiscard]] constexpr std::uint64_t uniform_below(std::uint64_t seed, std::uint64_t stream,
                                                    std::uint64_t element, std::uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{random_bits64(seed, stream, element)} * n) >> 64);
}

/// The stream of a module (or parameter) and a role, "blocks.3.drop" and "dropout" say: a hash of
/// both names, never of a position. FNV-1a with a byte between the two that no UTF-8 text has,
/// then MurmurHash3's finalizer, so that every bit depends on every character.
[[nodiscard]] constexpr std::uint64_t stream(std::string_view name, std::string_view role) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto take = [&hash](unsigned byte) { hash = (hash ^ byte) * 0x100000001B3U; };
  for (const char c : name)
    take(static_cast<unsigned char>(c));
  take(0xFF);
  for (const char c : role)
    take(static_cast<unsigned char>(c));
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDU;
  hash = (hash ^ (hash >> 33)) * 0xC4CEB9FE1A85EC53U;
  return hash ^ (hash >> 33);
}

/// Where index goes in a permutation of [0, n), which (seed, epoch) choose: a bijection of [0, n)
/// for each pair, computed without memory. Cost: eight Philox calls, up to four times on average.
///
/// Eight Feistel rounds on the smallest even number of bits that holds n, repeated until the result
/// is below n. Not uniform over all n! permutations, of which a seed could not name most.
///
/// Needs 0 <= index < n.
[[nodiscard]] constexpr std::uint64_t permutation(std::uint64_t seed, std::uint64_t epoch,
                                                  std::uint64_t n, std::uint64_t index) {
  HALFSTEP_ASSERT(index < n);
  if (n <= 1) return 0;
  const unsigned half = static_cast<unsigned>(std::bit_width(n - 1) + 1) / 2;
  const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << half) - 1);
  std::uint64_t value = index;
  do {
    auto left = static_cast<std::uint32_t>(value >> half);
    auto right = static_cast<std::uint32_t>(value) & mask;
    for (std::uint32_t round = 0; round < 8; ++round) {
      // The second word of a block of random_bits is below 2^30, so these counters are never its.
      const RandomWords words =
          philox({right, 0xFFFF0000U + round, detail::low_word(epoch), detail::high_word(epoch)},
                 {detail::low_word(seed), detail::high_word(seed)});
      const std::uint32_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    value = (std::uint64_t{left} << half) | right;
  } while (value >= n);
  return value;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
