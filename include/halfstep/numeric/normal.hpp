// SPDX-License-Identifier: MIT
// Normal draws as a pure function of (seed, stream, element), for initial weights. Uniform ones are
// core/random.hpp's. Not for cryptography.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/target.hpp>
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

namespace detail {

inline void fill_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first,
                        std::span<float> out) {
  std::array<float, 2> pair{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = first + i;
    if (i == 0 || element % 2 == 0) pair = normal_pair(seed, stream, element / 2);
    out[i] = pair[element % 2];
  }
}
/// The same with all that it calls compiled into it, so that fma is an instruction and no call: not
/// between HALFSTEP_BEGIN_TARGET and END, whose functions inline none of other options. Contraction
/// changes nothing: products that feed sums have barriers (core/fma.hpp), or are by a power of two
/// and exact.
__attribute__((target(HALFSTEP_ISA_AVX2), flatten)) HALFSTEP_NOINLINE inline void fill_normal_avx2(
    std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::span<float> out) {
  fill_normal(seed, stream, first, out);
}

}  // namespace detail

/// out[i] = normal(seed, stream, first + i). On every path but the portable one a draw costs half
/// as much where g++ compiles it (38 ns here; clang does not inline that deep).
inline void fill_normal(core::Isa isa, std::uint64_t seed, std::uint64_t stream,
                        std::uint64_t first, std::span<float> out) {
  (isa == core::Isa::portable ? detail::fill_normal : detail::fill_normal_avx2)(seed, stream, first,
                                                                                out);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
