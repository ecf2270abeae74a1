// SPDX-License-Identifier: MIT
// Arrays of one format to arrays of another, for any length and alignment: on every path the bits
// of the scalar conversion, subnormals and NaNs included, whatever MXCSR says. Not for rounding
// policies or statistics of what was rounded.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/detail/convert_avx2.hpp>
#include <halfstep/numeric/detail/convert_avx512.hpp>
#include <halfstep/numeric/detail/convert_avx512_bf16.hpp>
#include <halfstep/numeric/detail/convert_portable.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

namespace detail {

struct ConvertTable {
  void (*to_bf16)(const float*, bf16*, std::int64_t);
  void (*to_fp16)(const float*, fp16*, std::int64_t);
  void (*from_bf16)(const bf16*, float*, std::int64_t);
  void (*from_fp16)(const fp16*, float*, std::int64_t);
};
/// One row per core::Isa, in its order.
inline constexpr std::array<ConvertTable, 4> convert_tables{
    {{convert_portable::to_bf16, convert_portable::to_fp16, convert_portable::from_bf16,
      convert_portable::from_fp16},
     {convert_avx2::to_bf16, convert_avx2::to_fp16, convert_avx2::from_bf16,
      convert_avx2::from_fp16},
     {convert_avx512::to_bf16, convert_avx512::to_fp16, convert_avx512::from_bf16,
      convert_avx512::from_fp16},
     {convert_avx512_bf16::to_bf16, convert_avx512::to_fp16, convert_avx512::from_bf16,
      convert_avx512::from_fp16}}};
[[nodiscard]] inline const ConvertTable& convert_table(core::Isa isa) {
  return convert_tables[static_cast<std::size_t>(isa)];
}

/// float and double to each other in integers: the hardware's conversion flushes subnormals under
/// the environment in which bulk passes run.
[[nodiscard]] constexpr float narrow_double(double x) {
  return std::bit_cast<float>(encode<IeeeFormat<8, 23>>(x));
}
[[nodiscard]] constexpr double widen_float(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude >= 0x80'0000U) return static_cast<double>(x);
  return std::bit_cast<double>(
      std::bit_cast<std::uint64_t>(static_cast<double>(magnitude) * 0x1p-149) |
      (static_cast<std::uint64_t>(bits >> 31) << 63));
}

template <class To, class From>
[[nodiscard]] constexpr To convert_one(From x) {
  if constexpr (std::same_as<To, From>) {
    return x;
  } else if constexpr (std::same_as<From, double> && std::same_as<To, float>) {
    return narrow_double(x);
  } else if constexpr (std::same_as<From, float> && std::same_as<To, double>) {
    return widen_float(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace detail

/// A type that convert takes: float, double, bf16, fp16.
template <class T>
concept convertible_format = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, bf16> || std::same_as<T, fp16>;

/// out[i] = in[i], rounded once to nearest even. Between float and the 16-bit formats each path has
/// its own instructions; the rest is a plain loop. The arrays may be the same one where From is To,
/// else they must not overlap.
///
/// Cost: one read of `in` and one write of `out`; allocates nothing; shared over compute's threads
/// from 32768 elements on.
///
/// @throws ShapeError if the lengths differ.
template <convertible_format From, convertible_format To>
void convert(const core::Compute& compute, std::span<const From> in, std::span<To> out) {
  if (in.size() != out.size()) {
    core::fail<ShapeError>("convert: in has ", in.size(), " elements but out has ", out.size(),
                           ". Was one of them resized?");
  }
  const detail::ConvertTable& table = detail::convert_table(compute.isa);
  compute.parallel(static_cast<std::int64_t>(in.size()), 16384,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     const From* from = in.data() + begin;
                     To* to = out.data() + begin;
                     const std::int64_t count = end - begin;
                     if constexpr (std::same_as<From, float> && std::same_as<To, bf16>) {
                       table.to_bf16(from, to, count);
                     } else if constexpr (std::same_as<From, float> && std::same_as<To, fp16>) {
                       table.to_fp16(from, to, count);
                     } else if constexpr (std::same_as<From, bf16> && std::same_as<To, float>) {
                       table.from_bf16(from, to, count);
                     } else if constexpr (std::same_as<From, fp16> && std::same_as<To, float>) {
                       table.from_fp16(from, to, count);
                     } else {
                       for (std::int64_t i = 0; i < count; ++i)
                         to[i] = detail::convert_one<To>(from[i]);
                     }
                   });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
