// SPDX-License-Identifier: MIT
// Arrays of one format to arrays of another, for any length and alignment: on every path the bits
// of the scalar conversion, subnormals and NaNs included, whatever MXCSR says. Not for rounding
// policies or statistics of what was rounded.
#pragma once

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
#include <halfstep/numeric/detail/convert_sse2.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/round_to.hpp>
#include <halfstep/numeric/small_float.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

namespace detail {

/// Formats that the vector bodies know.
template <class T>
inline constexpr bool has_lanes = std::same_as<T, float>;
template <class Format>
inline constexpr bool has_lanes<small_float<Format>> = Format::has_zero;

template <class From, class To>
using ConvertBody = void (*)(const From*, To*, std::int64_t);
template <class From, class To>
struct ConvertBodies {
  ConvertBody<From, To> within_caches, past_caches;
};
/// One row per core::Isa, in its order. VCVTNE2PS2BF16 is all that AVX-512-BF16 adds.
template <class From, class To>
[[nodiscard]] constexpr ConvertBodies<From, To> convert_bodies(core::Isa isa) {
  constexpr ConvertBodies<From, To> avx512{convert_avx512::convert<From, To>,
                                           convert_avx512::convert_past_caches<From, To>};
  ConvertBodies<From, To> table[] = {
      {convert_sse2::convert<From, To>, convert_sse2::convert_past_caches<From, To>},
      {convert_avx2::convert<From, To>, convert_avx2::convert_past_caches<From, To>},
      avx512,
      avx512};
  if constexpr (std::same_as<To, bf16>) {
    table[3] = {convert_avx512_bf16::convert<From, To>,
                convert_avx512_bf16::convert_past_caches<From, To>};
  }
  return table[static_cast<std::size_t>(isa)];
}

/// Bytes read and written from which on neither array is likely to be found in a cache, before or
/// after (convert_bench).
inline constexpr std::size_t past_caches = std::size_t{64} << 20;

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

/// A type that convert takes: float, double or a small format.
template <class T>
concept convertible_format =
    std::same_as<T, float> || std::same_as<T, double> || detail::is_small_float<T>;

/// out[i] = in[i], rounded once to nearest even. Float and the small formats go to each other by
/// each path's own instructions; double and the scales (fp8_e8m0) by a plain loop. The arrays may
/// be the same one where From is To, else they must not overlap.
///
/// Cost: one read of `in` and one write of `out`; allocates nothing; shared over compute's threads
/// from 32768 elements on. From 64 MB read and written on, `out` goes past the caches.
///
/// @throws ShapeError if the lengths differ.
template <convertible_format From, convertible_format To>
void convert(const core::Compute& compute, std::span<const From> in, std::span<To> out) {
  if (in.size() != out.size()) {
    core::fail<ShapeError>("convert: in has ", in.size(), " elements but out has ", out.size(),
                           ". Was one of them resized?");
  }
  compute.parallel(
      static_cast<std::int64_t>(in.size()), 16384, [&](std::int64_t begin, std::int64_t end, int) {
        const From* from = in.data() + begin;
        To* to = out.data() + begin;
        const std::int64_t count = end - begin;
        if constexpr (std::same_as<From, To> || !detail::has_lanes<From> ||
                      !detail::has_lanes<To>) {
          for (std::int64_t i = 0; i < count; ++i)
            to[i] = detail::convert_one<To>(from[i]);
        } else {
          const auto bodies = detail::convert_bodies<From, To>(compute.isa);
          const bool large = in.size() * (sizeof(From) + sizeof(To)) >= detail::past_caches;
          (large ? bodies.past_caches : bodies.within_caches)(from, to, count);
        }
      });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
