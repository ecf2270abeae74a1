// SPDX-License-Identifier: MIT
// x modulo pi / 2 for every double, to some 100 bits: by three parts of pi / 2 where x is small, by
// 192 bits of 2 / pi where it is not. For sin and cos alone.
#pragma once

#include <bit>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/numeric/detail/double_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail {

/// x = quadrant * pi / 2 + rest modulo 2 pi, |rest| <= pi / 4 and a hair.
struct Angle {
  int quadrant = 0;
  Pair rest;
};

/// The first 1280 bits of 2 / pi after the binary point.
inline constexpr std::uint64_t two_over_pi[20] = {
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D};
inline constexpr Pair half_pi{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
inline constexpr double half_pi_third = -0x1.f1976b7ed8fbcp-110;

/// 64 bits of 2 / pi from bit `position` on; those before the binary point are 0.
[[nodiscard]] inline std::uint64_t two_over_pi_bits(int position) {
  const auto word = [](int index) {
    return index < 0 || index >= 20 ? std::uint64_t{0} : two_over_pi[index];
  };
  const int index = (position + 64) / 64 - 1;  // rounds down: position is at least -64
  const int shift = position - 64 * index;
  return shift == 0 ? word(index) : (word(index) << shift) | (word(index + 1) >> (64 - shift));
}

/// For 2^20 <= |x|, finite.
[[nodiscard]] inline Angle reduce_large(double x) {
  __extension__ using Wide = unsigned __int128;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t significand = (bits & 0xF'FFFF'FFFF'FFFF) | (std::uint64_t{1} << 52);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1075;
  // |x| = significand * 2^exponent. Bits of 2 / pi that give multiples of 4 quadrants are skipped;
  // 192 are used, so what is left out is below 2^-137 of a quadrant, and no double comes nearer to
  // a multiple of pi / 2 than 2^-62.
  const int position = exponent - 2;
  const Wide low = Wide{significand} * two_over_pi_bits(position + 128);
  const Wide middle = Wide{significand} * two_over_pi_bits(position + 64) + (low >> 64);
  const auto high =
      static_cast<std::uint64_t>(Wide{significand} * two_over_pi_bits(position) + (middle >> 64));
  // Two bits of quadrant, then 190 of fraction, in three words.
  int quadrant = static_cast<int>(high >> 62);
  std::uint64_t w[3] = {
      (high << 2) | (static_cast<std::uint64_t>(middle) >> 62),
      (static_cast<std::uint64_t>(middle) << 2) | (static_cast<std::uint64_t>(low) >> 62),
      static_cast<std::uint64_t>(low) << 2};
  bool negative = false;
  if ((w[0] >> 63) != 0) {  // more than half a quadrant: count from the next one
    quadrant = (quadrant + 1) & 3;
    negative = true;
    w[2] = ~w[2] + 1;
    w[1] = ~w[1] + (w[2] == 0 ? 1 : 0);
    w[0] = ~w[0] + (w[1] == 0 && w[2] == 0 ? 1 : 0);
  }
  int places = 0;  // leading zeros removed
  if (w[0] == 0) {
    w[0] = w[1];
    w[1] = w[2];
    w[2] = 0;
    places = 64;
  }
  if (const int lead = std::countl_zero(w[0]); lead > 0 && lead < 64) {
    w[0] = (w[0] << lead) | (w[1] >> (64 - lead));
    w[1] = (w[1] << lead) | (w[2] >> (64 - lead));
    places += lead;
  }
  const auto power = [](int k) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
  };
  // 53 bits, then the next 53: both conversions are exact.
  Pair fraction{static_cast<double>(w[0] >> 11) * power(-53 - places),
                static_cast<double>(((w[0] & 0x7FF) << 42) | (w[1] >> 22)) * power(-106 - places)};
  if (negative != ((bits >> 63) != 0)) {
    fraction.high = -fraction.high;
    fraction.low = -fraction.low;
  }
  return {(bits >> 63) != 0 ? (4 - quadrant) & 3 : quadrant, multiply(fraction, half_pi)};
}

/// For finite x.
[[nodiscard]] inline Angle reduce_angle(double x) {
  const double size =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7FFF'FFFF'FFFF'FFFF);
  if (size >= 0x1p20) return reduce_large(x);
  const double n = round_to_integer(core::rounded(x * 0x1.45f306dc9c883p-1));
  const double exact =
      core::fma(-n, half_pi.high, x);  // both are multiples of 2^-53, and it is below 1
  const Pair second = two_product(n, half_pi.low);
  const Pair rest = two_sum(exact, -second.high);
  const double low = core::fma(-n, half_pi_third, core::rounded(rest.low - second.low));
  return {static_cast<int>(static_cast<std::int64_t>(n) & 3), fast_two_sum(rest.high, low)};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail
