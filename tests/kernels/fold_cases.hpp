// SPDX-License-Identifier: MIT
// Arrays for tests of reductions over arrays: whose sum depends on the order, and whose sum does
// not. Not part of the library.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <halfstep/core/random.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace fold_cases {

using halfstep::bf16;
using halfstep::fp16;
using halfstep::kernels::Reduction;

/// As in fold_reference.hpp.
template <class E>
inline constexpr int format_number = std::is_same_v<E, float>  ? 0
                                     : std::is_same_v<E, bf16> ? 1
                                     : std::is_same_v<E, fp16> ? 2
                                                               : 3;
inline constexpr std::array<Reduction, 5> reductions{
    Reduction::sum, Reduction::average, Reduction::min, Reduction::max, Reduction::product};

/// What array number `array` holds: any sign, and exponents that vary so widely that sums of
/// several arrays depend on their order; near 1 for products, which stay in range so.
template <class E>
std::vector<E> order_sensitive(int array, std::int64_t count, Reduction reduction) {
  const std::uint32_t exponents = reduction == Reduction::product ? 2 : 12;
  std::vector<E> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t word =
        halfstep::core::random_bits64(7, static_cast<std::uint64_t>(array), i);
    const float size = 1.0F + static_cast<float>(word & 0xFFFFU) * 0x1p-16F;
    const auto exponent = static_cast<std::uint32_t>((word >> 16) % exponents);
    const float scale = std::bit_cast<float>((127U - exponents / 2 + exponent) << 23);
    out[i] = static_cast<E>((word >> 63 != 0 ? -size : size) * scale);
  }
  return out;
}

/// Integers so small that every partial sum of 8 arrays is exact in every format, in any order; for
/// products powers of two. What nccl-tests checks collectives with.
template <class E>
std::vector<E> exact(int array, std::int64_t count, Reduction reduction) {
  std::vector<E> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t word =
        halfstep::core::random_bits64(8, static_cast<std::uint64_t>(array), i);
    const auto small = static_cast<int>(word % 33) - 16;
    const float power = word % 2 == 0 ? 2.0F : 0.5F;
    out[i] = static_cast<E>(reduction == Reduction::product ? power : static_cast<float>(small));
  }
  return out;
}

template <class E>
bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0);
}

}  // namespace fold_cases
