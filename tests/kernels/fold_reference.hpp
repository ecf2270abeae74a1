// SPDX-License-Identifier: MIT
// What several arrays reduced to one come to, by plain loops over bits: the oracles of
// kernels::fold and of the collectives include this, and no header of halfstep.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace reference {

enum Format { f32, bf16, f16, f64 };
enum Kind { sum, average, minimum, maximum, product };

inline int bytes_of(Format format) { return format == f64 ? 8 : format == f32 ? 4 : 2; }

/// Element i of an array of that format. Every format's values are doubles.
inline double read(Format format, const void* data, std::int64_t i) {
  if (format == f64) return static_cast<const double*>(data)[i];
  if (format == f32) return static_cast<double>(static_cast<const float*>(data)[i]);
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  if (format == bf16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return static_cast<double>(value);
  }
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<double>(value);
}

inline std::uint16_t bf16_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7FC0;
  const std::uint32_t below = bits & 0xFFFFU;
  bits >>= 16;
  if (below > 0x8000U || (below == 0x8000U && (bits & 1U) != 0)) ++bits;
  return static_cast<std::uint16_t>(bits);
}

/// A value of the accumulator (float; double for f64), rounded once to the format.
inline void write(Format format, void* data, std::int64_t i, double value) {
  if (format == f64) {
    static_cast<double*>(data)[i] = value;
  } else if (format == f32) {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  } else if (format == bf16) {
    static_cast<std::uint16_t*>(data)[i] = bf16_of(static_cast<float>(value));
  } else {
    const auto half = static_cast<_Float16>(static_cast<float>(value));
    std::memcpy(static_cast<std::uint16_t*>(data) + i, &half, 2);
  }
}

/// a o b in the accumulator.
inline double combine(Format format, Kind kind, double a, double b) {
  if (kind == minimum || kind == maximum) {
    if (std::isnan(a) || std::isnan(b)) return NAN;
    if (a == b) return std::signbit(a) == (kind == minimum) ? a : b;  // -0 is below +0
    return (a < b) == (kind == minimum) ? a : b;
  }
  if (format == f64 || kind == average) return kind == product ? a * b : a + b;
  const float x = static_cast<float>(a), y = static_cast<float>(b);
  return static_cast<double>(kind == product ? x * y : x + y);
}

/// Sums and products of n values by the tree: the left half is the largest power of two below n.
inline double tree(Format format, Kind kind, const double* values, int n) {
  if (n == 1) return values[0];
  int left = 1;
  while (2 * left < n)
    left *= 2;
  return combine(format, kind, tree(format, kind, values, left),
                 tree(format, kind, values + left, n - left));
}
/// From the first to the last: what a ring does from where it starts.
inline double chain(Format format, Kind kind, const double* values, int n) {
  double result = values[0];
  for (int i = 1; i < n; ++i)
    result = combine(format, kind, result, values[i]);
  return result;
}

inline void store(Format format, Kind kind, void* out, std::int64_t i, double value, int n) {
  write(format, out, i, kind == average ? value / n : value);
}

inline void fold(Format format, Kind kind, const void* const* sources, int n, void* out,
                 std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < count; ++i) {
    for (int s = 0; s < n; ++s)
      values[static_cast<std::size_t>(s)] = read(format, sources[s], i);
    store(format, kind, out, i, tree(format, kind, values.data(), n), n);
  }
}

/// Arrays cut among n ranks in runs of 64 elements, the first ranks one run more; the element's
/// slice k is summed from rank k + 1 round to rank k.
inline void ring(Format format, Kind kind, const void* const* sources, int n, void* out,
                 std::int64_t count) {
  const std::int64_t runs = (count + 63) / 64;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t run = i / 64, each = runs / n, longer = runs % n;
    const std::int64_t k =
        run < longer * (each + 1) ? run / (each + 1) : longer + (run - longer * (each + 1)) / each;
    for (int s = 0; s < n; ++s)
      values[static_cast<std::size_t>(s)] = read(format, sources[(k + 1 + s) % n], i);
    store(format, kind, out, i, chain(format, kind, values.data(), n), n);
  }
}

}  // namespace reference
