// SPDX-License-Identifier: MIT
// How large the numbers of a tensor are, by powers of two: what a format would round to zero, the
// loss scale that would save it, the largest. Telemetry: reads a gradient between unscale and step,
// changes nothing, and costs nothing where it is not called.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

namespace detail {
/// |value| x factor, factor > 0. Of a finite number that is not zero it is neither zero nor infinite,
/// whatever MXCSR says of subnormals: one of float counts as what it is, one of double, lost to all
/// formats, as double's smallest normal number.
template <std::floating_point R>
[[nodiscard]] double magnitude(R value, double factor) {
  using limits = std::numeric_limits<double>;
  double x = 0.0;
  if constexpr (sizeof(R) == 4) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFF'FFFFU;
    if (bits == 0) return 0.0;
    x = bits < 0x80'0000U ? static_cast<double>(bits) * 0x1p-149
                          : static_cast<double>(std::bit_cast<float>(bits));
  } else {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(value) & ~(std::uint64_t{1} << 63);
    if (bits == 0) return 0.0;
    x = std::bit_cast<double>(bits);
  }
  return x <= limits::max() ? std::clamp(x * factor, limits::min(), limits::max()) : x;
}
/// The k with 2^k <= x < 2^(k+1), for a normal x > 0.
[[nodiscard]] constexpr int floor_log2(double x) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7FFU) - 1023;
}
/// The k with 2^(k-1) < x <= 2^k, for a normal x > 0.
[[nodiscard]] constexpr int ceil_log2(double x) {
  const bool power = (std::bit_cast<std::uint64_t>(x) & 0xF'FFFF'FFFF'FFFFU) == 0;
  return floor_log2(x) + (power ? 0 : 1);
}
/// For exponents of normal doubles.
[[nodiscard]] constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}
/// F's smallest number above zero is 2^smallest<F>.
template <class F>
inline constexpr int smallest =
    ceil_log2(static_cast<double>(std::numeric_limits<F>::denorm_min()));
}  // namespace detail

/// The loss scale for a format, a power of two.
struct ScaleAdvice {
  double scale = 1.0;
  double still_lost = 0.0;  ///< share of the non-zero values that it does not save
};

/// A histogram of magnitudes, with ends. Adding two gives that of both tensors.
struct Magnitudes {
  static constexpr int lowest = -192, highest = 128;

  std::int64_t elements = 0;
  std::int64_t zeros = 0;
  std::int64_t non_finite = 0;  ///< infinities and NaNs: in no bin
  double largest = 0.0;         ///< magnitude, of the finite values
  double smallest = 0.0;        ///< magnitude, of those that are not zero
  /// bins[k - lowest] values have magnitudes in (2^(k-1), 2^k]: a bin ends where a format's
  /// rounding to zero does, half of its smallest number included. The first and the last also hold
  /// what is beyond.
  std::array<std::int64_t, highest - lowest + 1> bins{};

  [[nodiscard]] std::int64_t nonzero() const { return elements - zeros - non_finite; }
  [[nodiscard]] std::int64_t bin(int k) const { return bins[static_cast<std::size_t>(k - lowest)]; }

  /// How many values F loses at that scale, as Underflow defines it: exactly for a power of two.
  /// Another scale counts as the power below it, so no fewer than are lost; `measure` with the scale
  /// in its factor is exact.
  template <class F>
  [[nodiscard]] std::int64_t lost(double scale = 1.0) const {
    const int last = std::min(detail::smallest<F> - 1 - detail::floor_log2(scale), highest);
    std::int64_t count = 0;
    for (int k = lowest; k <= last; ++k)
      count += bin(k);
    return count;
  }
  /// The same as a share of the non-zero values; 0 where there is none.
  template <class F>
  [[nodiscard]] double share_lost(double scale = 1.0) const {
    return nonzero() == 0 ? 0.0
                          : static_cast<double>(lost<F>(scale)) / static_cast<double>(nonzero());
  }
  /// The smallest power of two with which F rounds none of them to zero, 1 at least, if F holds the
  /// largest too; else the largest one with which F holds that, which may be below 1. F has an
  /// infinity or a NaN to show that it holds a number no more.
  template <class F>
  [[nodiscard]] ScaleAdvice advised_scale() const {
    static_assert(std::numeric_limits<F>::has_infinity || std::numeric_limits<F>::has_quiet_NaN,
                  "advised_scale: a format without infinity and NaN overflows at no scale");
    if (nonzero() == 0) return {};
    int exponent = std::max(0, detail::smallest<F> - detail::ceil_log2(smallest));
    while (exponent > -1000 && !holds<F>(largest * detail::power_of_two(exponent)))
      --exponent;
    const double scale = detail::power_of_two(exponent);
    return {scale, share_lost<F>(scale)};
  }

  Magnitudes& operator+=(const Magnitudes& other) {
    smallest = nonzero() == 0         ? other.smallest
               : other.nonzero() == 0 ? smallest
                                      : std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
    elements += other.elements;
    zeros += other.zeros;
    non_finite += other.non_finite;
    for (std::size_t i = 0; i < bins.size(); ++i)
      bins[i] += other.bins[i];
    return *this;
  }
  void add(double magnitude) {
    ++elements;
    if (magnitude == 0.0) {
      ++zeros;
    } else if (!(magnitude <= std::numeric_limits<double>::max())) {
      ++non_finite;
    } else {
      smallest = largest == 0.0 ? magnitude : std::min(smallest, magnitude);
      largest = std::max(largest, magnitude);
      ++bins[static_cast<std::size_t>(std::clamp(detail::ceil_log2(magnitude), lowest, highest) -
                                      lowest)];
    }
  }

 private:
  template <class F>
  [[nodiscard]] static bool holds(double x) {
    return static_cast<double>(static_cast<F>(x)) <=
           static_cast<double>(std::numeric_limits<F>::max());
  }
};

/// Magnitudes of values x factor, factor > 0, a product in double. Cost: one read.
template <std::floating_point R>
[[nodiscard]] Magnitudes measure(const core::Compute& compute, std::span<const R> values,
                                 double factor = 1.0) {
  Magnitudes all;
  std::mutex one_at_a_time;  // sums of integers, minimum and maximum: no order shows
  compute.parallel(std::ssize(values), 65536, [&](std::int64_t begin, std::int64_t end, int) {
    Magnitudes part;
    for (std::int64_t i = begin; i < end; ++i)
      part.add(detail::magnitude(values[static_cast<std::size_t>(i)], factor));
    const std::lock_guard lock(one_at_a_time);
    all += part;
  });
  return all;
}

struct TensorMagnitudes {
  std::string name;
  Magnitudes magnitudes;
};

/// One row for each parameter, in order of registration: the gradient of the mean loss, before
/// clipping. These are sums in float; what a format loses of them, it loses of a gradient that is
/// handed over or kept in it. Gradients of activations are smaller still: `measure` takes any
/// array.
/// @throws StateError if the gradients were used already.
template <class T>
[[nodiscard]] std::vector<TensorMagnitudes> gradient_magnitudes(const Unscaled<T>& gradients) {
  tensor::ParameterTable& parameters = gradients.parameters();
  std::vector<TensorMagnitudes> rows;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    rows.push_back(
        {parameters.infos()[i].name,
         measure(parameters.runtime().compute(), gradients.sum({i}), gradients.unscale_factor())});
  }
  return rows;
}

/// All rows as one tensor.
[[nodiscard]] inline Magnitudes total(std::span<const TensorMagnitudes> rows) {
  Magnitudes all;
  for (const TensorMagnitudes& row : rows)
    all += row.magnitudes;
  return all;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
