// SPDX-License-Identifier: MIT
// The sizes of a tensor, outermost first, row-major without strides. A value type that never
// allocates. Not for: strided views (core/views.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Up to six sizes, each at least 0. An empty shape is a scalar of one element.
class Shape {
 public:
  static constexpr int max_rank = 6;

  constexpr Shape() = default;
  /// @throws ShapeError for more than six sizes, a negative one, or more elements than 2^62.
  constexpr Shape(std::initializer_list<std::int64_t> sizes) {
    if (sizes.size() > max_rank) core::fail<ShapeError>("Shape: rank ", sizes.size(), ", at most ", max_rank);
    std::int64_t elements = 1;
    for (const std::int64_t size : sizes) {
      if (size < 0) core::fail<ShapeError>("Shape: size ", size, " of dimension ", rank_, " is negative");
      if (size != 0 && elements > (std::int64_t{1} << 62) / size) {
        core::fail<ShapeError>("Shape: more than 2^62 elements at dimension ", rank_, " of size ", size);
      }
      elements *= size;
      sizes_[static_cast<std::size_t>(rank_++)] = size;
    }
  }

  [[nodiscard]] constexpr int rank() const { return rank_; }
  [[nodiscard]] constexpr std::int64_t operator[](int dimension) const {
    return sizes_[static_cast<std::size_t>(dimension)];
  }
  /// The innermost size; 1 for a scalar.
  [[nodiscard]] constexpr std::int64_t width() const { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }
  [[nodiscard]] constexpr std::int64_t elements() const {
    std::int64_t product = 1;
    for (int d = 0; d < rank_; ++d) product *= (*this)[d];
    return product;
  }
  /// The product of all sizes but the innermost: the rows of the matrix that a layer sees.
  [[nodiscard]] constexpr std::int64_t rows() const {
    std::int64_t product = 1;
    for (int d = 0; d + 1 < rank_; ++d) product *= (*this)[d];
    return product;
  }
  /// The same shape with another innermost size.
  [[nodiscard]] constexpr Shape with_width(std::int64_t width) const {
    Shape result = *this;
    if (result.rank_ == 0) result.rank_ = 1;
    result.sizes_[static_cast<std::size_t>(result.rank_ - 1)] = width;
    return result;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

/// "[4, 64, 128]", for messages.
[[nodiscard]] inline std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int d = 0; d < shape.rank(); ++d) out += core::text(d == 0 ? "" : ", ", shape[d]);
  return out + "]";
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
