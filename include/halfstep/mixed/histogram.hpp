// SPDX-License-Identifier: MIT
// Magnitudes as text: a histogram by powers of two beside the ranges of fp16 and bf16, and a table of
// tensors. Not for programs: the numbers are in magnitudes.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

namespace detail {

/// What F makes of magnitudes in (2^(k-1), 2^k] times 2^shift.
template <class F>
[[nodiscard]] constexpr std::string_view fate(int k, int shift) {
  if (k + shift < smallest<F>) return "zero";
  if (k + shift > std::numeric_limits<F>::max_exponent) return "overflow";
  if (k + shift == std::numeric_limits<F>::max_exponent) return "at the limit";
  return k + shift < std::numeric_limits<F>::min_exponent ? "subnormal" : "normal";
}
[[nodiscard]] inline std::string right(std::string text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
[[nodiscard]] inline std::string left(std::string_view text, std::size_t width) {
  return std::string(text) + std::string(width - std::min(width, text.size()), ' ');
}
/// "3.00 %", whatever the locale.
[[nodiscard]] inline std::string per_cent(double share) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, 100.0 * share, std::chars_format::fixed, 2).ptr;
  return std::string(buffer, end) + " %";
}
[[nodiscard]] inline std::string short_number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific, 1).ptr;
  return {buffer, end};
}

}  // namespace detail

/// One line for each power of two from the largest magnitude's to the smallest's: the share of the
/// non-zero values in (2^(k-1), 2^k], and what becomes of them in fp16, in fp16 under the power of two
/// at or below `scale`, and in bf16. "at the limit" is the bin that the format's largest number is in.
[[nodiscard]] inline std::string histogram_text(const Magnitudes& m, double scale) {
  const int shift = detail::floor_log2(scale);
  const auto row = [](const std::string& first, const std::string& share, const std::string& bar,
                      std::string_view half, std::string_view scaled, std::string_view brain) {
    return core::text(detail::right(first, 8), detail::right(share, 10), "  ", detail::left(bar, 32),
                      detail::left(half, 12), detail::left(scaled, 16), brain, "\n");
  };
  std::string text = row("up to", "share", "", "fp16", core::text("fp16 x 2^", shift), "bf16");
  if (m.nonzero() == 0) return text + "      no value but zero\n";
  const auto clamped = [](double x) {
    return std::clamp(detail::ceil_log2(x), Magnitudes::lowest, Magnitudes::highest);
  };
  const std::int64_t most = *std::max_element(m.bins.begin(), m.bins.end());
  for (int k = clamped(m.largest); k >= clamped(m.smallest); --k) {
    const std::int64_t count = m.bin(k);
    const auto length = static_cast<std::size_t>((30 * count + most - 1) / most);
    text += row(core::text("2^", k),
                detail::per_cent(static_cast<double>(count) / static_cast<double>(m.nonzero())),
                std::string(length, '#'), detail::fate<fp16>(k, 0), detail::fate<fp16>(k, shift),
                detail::fate<bf16>(k, 0));
  }
  return text;
}

/// One line for each tensor and one for all: elements, zeros, largest magnitude, shares of the
/// non-zero values that fp16 rounds to zero at scale 1 and at `scale`, the scale that saves them, and
/// the share that bf16 rounds to zero.
[[nodiscard]] inline std::string table_text(std::span<const TensorMagnitudes> rows, double scale) {
  std::size_t width = 6;
  for (const TensorMagnitudes& row : rows)
    width = std::max(width, row.name.size());
  const auto line = [&](const std::string& name, const std::string& elements, const std::string& zero,
                        const std::string& largest, const std::string& half, const std::string& scaled,
                        const std::string& advice, const std::string& brain) {
    using detail::right;
    return detail::left(name, width) + right(elements, 10) + right(zero, 10) + right(largest, 10) +
           right(half, 11) + right(scaled, 11) + right(advice, 9) + right(brain, 11) + "\n";
  };
  const auto of = [&](const std::string& name, const Magnitudes& m) {
    const ScaleAdvice advice = m.advised_scale<fp16>();
    return line(name, core::text(m.elements),
                detail::per_cent(m.elements == 0 ? 0.0
                                                 : static_cast<double>(m.zeros) /
                                                       static_cast<double>(m.elements)),
                detail::short_number(m.largest), detail::per_cent(m.share_lost<fp16>()),
                detail::per_cent(m.share_lost<fp16>(scale)),
                core::text("2^", detail::floor_log2(advice.scale)),
                detail::per_cent(m.share_lost<bf16>()));
  };
  std::string text = line("tensor", "elements", "zero", "largest", "fp16 loses",
                          core::text("x 2^", detail::floor_log2(scale)), "saved by", "bf16 loses");
  for (const TensorMagnitudes& row : rows)
    text += of(row.name, row.magnitudes);
  return text + of("all", total(rows));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
