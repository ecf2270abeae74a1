// SPDX-License-Identifier: MIT
// Normal draws as a pure function of (seed, stream, element), for initial weights. Uniform ones are
// core/random.hpp's. Not for cryptography.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/numeric/elementary_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

/// Two independent draws of mean 0 and variance 1, by Box and Muller in double and one rounding to
/// float: the cosine and the sine of one Philox block, that of core::random_bits elements 4 pair to
/// 4 pair + 3, so use a stream for one kind of draw only.
///
/// The radius takes 64 bits, so |draw| reaches 9.4; about 160 ns.
[[nodiscard]] inline std::array<float, 2> normal_pair(std::uint64_t seed, std::uint64_t stream,
                                                      std::uint64_t pair) {
  const core::RandomWords words = core::random_words4(seed, stream, pair);
  // In (0, 1]: the middle of one of 2^53 cells would do, but the 64 bits are there, and they make
  // the tail finer where it is thin. + 1 keeps the logarithm finite.
  const std::uint64_t bits = words[0] | (static_cast<std::uint64_t>(words[1]) << 32);
  const double u =
      (static_cast<double>(bits >> 11) + static_cast<double>(bits & 0x7FF) * 0x1p-11 + 0x1p-11) *
      0x1p-53;
  const double radius = std::sqrt(-2.0 * log(u));
  const std::uint64_t turn = words[2] | (static_cast<std::uint64_t>(words[3]) << 32);
  const double angle = static_cast<double>(turn >> 11) * 0x1.921fb54442d18p-51;  // 2 pi / 2^53
  return {static_cast<float>(core::rounded(radius * cos(angle))),
          static_cast<float>(core::rounded(radius * sin(angle)))};
}

/// One of them: elements 2i and 2i + 1 are pair i.
[[nodiscard]] inline float normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  return normal_pair(seed, stream, element / 2)[element % 2];
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
