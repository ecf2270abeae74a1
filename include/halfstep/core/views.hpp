// SPDX-License-Identifier: MIT
// A matrix that somebody else owns, by pointer, sizes and strides: what kernels take. Owns nothing
// and checks nothing; shapes are checked where tensors meet.
#pragma once

#include <cstdint>
#include <type_traits>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// The smallest multiple of unit that is no less than value. value >= 0, unit > 0, no overflow.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}
/// value / unit, rounded up. As above.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit;
}

/// Element (i, j) lies at data[i * row_stride + j * col_stride]; strides count elements, and may be
/// negative or 0.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  [[nodiscard]] constexpr T& operator()(std::int64_t row, std::int64_t col) const {
    return data[row * row_stride + col * col_stride];
  }
  [[nodiscard]] constexpr std::int64_t size() const { return rows * cols; }
  [[nodiscard]] constexpr T* row(std::int64_t index) const { return data + index * row_stride; }
  /// The same elements with rows and columns exchanged. Moves nothing.
  [[nodiscard]] constexpr MatrixView transposed() const {
    return {data, cols, rows, col_stride, row_stride};
  }
  /// Rows [first, first + count) and columns [left, left + width).
  [[nodiscard]] constexpr MatrixView block(std::int64_t first, std::int64_t left,
                                           std::int64_t count, std::int64_t width) const {
    return {data + first * row_stride + left * col_stride, count, width, row_stride, col_stride};
  }
  /// Rows follow each other without gaps, elements of a row too.
  [[nodiscard]] constexpr bool contiguous() const {
    return (cols <= 1 || col_stride == 1) && (rows <= 1 || row_stride == cols);
  }

  constexpr operator MatrixView<const T>() const  // NOLINT: adds const, as pointers do
      requires(!std::is_const_v<T>) {
    return {data, rows, cols, row_stride, col_stride};
  }
};

/// A matrix stored row after row without gaps.
template <class T>
[[nodiscard]] constexpr MatrixView<T> row_major(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, 1};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
