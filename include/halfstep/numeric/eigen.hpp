// SPDX-License-Identifier: MIT
// What Eigen needs to know about our scalars, and Eigen's view of our arrays. The only header that
// includes Eigen. For inspection and for reference computations; never multiply or sum bf16 or fp16
// matrices with it: its accumulators are of the element type (8192 ones give 256 to 8096).
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <Eigen/Core>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace Eigen {

template <class Format>
struct NumTraits<halfstep::small_float<Format>> {
  using Scalar = halfstep::small_float<Format>;
  using Limits = std::numeric_limits<Scalar>;
  using Real = Scalar;
  using NonInteger = Scalar;
  using Nested = Scalar;
  using Literal = float;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = Limits::is_signed,
    RequireInitialization = 0,
    ReadCost = 1,
    AddCost = 4,
    MulCost = 4
  };
  static constexpr Scalar epsilon() { return Limits::epsilon(); }
  /// As for float: a few epsilons.
  static constexpr Scalar dummy_precision() {
    return Scalar{5.0F * static_cast<float>(Limits::epsilon())};
  }
  static constexpr Scalar highest() { return Limits::max(); }
  static constexpr Scalar lowest() { return Limits::lowest(); }
  static constexpr Scalar infinity() { return Limits::infinity(); }
  static constexpr Scalar quiet_NaN() { return Limits::quiet_NaN(); }
  static constexpr int digits10() { return Limits::digits10; }
};

template <class T>
struct NumTraits<halfstep::dual<T>> : NumTraits<T> {
  using Real = halfstep::dual<T>;
  using NonInteger = halfstep::dual<T>;
  using Nested = halfstep::dual<T>;
  using Literal = T;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 2,
    AddCost = 2,
    MulCost = 6
  };
};

/// A small scalar with a float gives a float.
template <class Format, class Op>
struct ScalarBinaryOpTraits<halfstep::small_float<Format>, float, Op> {
  using ReturnType = float;
};
template <class Format, class Op>
struct ScalarBinaryOpTraits<float, halfstep::small_float<Format>, Op> {
  using ReturnType = float;
};

namespace internal {

// Eigen's functors write a * b, which our explicit conversions refuse for mixed types; these widen.
#define HALFSTEP_EIGEN_MIXED(functor, symbol)                          \
  template <class Format>                                              \
  struct functor<halfstep::small_float<Format>, float>                 \
      : binary_op_base<halfstep::small_float<Format>, float> {         \
    using result_type = float;                                         \
    float operator()(halfstep::small_float<Format> a, float b) const { \
      return static_cast<float>(a) symbol b;                           \
    }                                                                  \
  };                                                                   \
  template <class Format>                                              \
  struct functor<float, halfstep::small_float<Format>>                 \
      : binary_op_base<float, halfstep::small_float<Format>> {         \
    using result_type = float;                                         \
    float operator()(float a, halfstep::small_float<Format> b) const { \
      return a symbol static_cast<float>(b);                           \
    }                                                                  \
  };
HALFSTEP_EIGEN_MIXED(scalar_sum_op, +)
HALFSTEP_EIGEN_MIXED(scalar_difference_op, -)
HALFSTEP_EIGEN_MIXED(scalar_product_op, *)
HALFSTEP_EIGEN_MIXED(scalar_quotient_op, /)
#undef HALFSTEP_EIGEN_MIXED

}  // namespace internal
}  // namespace Eigen

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

template <class T>
using EigenMatrix =
    Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using EigenMap =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const EigenMatrix<T>, EigenMatrix<T>>>;

/// The elements as a row-major matrix, without a copy; writable unless T is const.
/// @throws ShapeError if there are not rows * cols of them.
template <class T>
[[nodiscard]] EigenMap<T> map(std::span<T> elements, Eigen::Index rows, Eigen::Index cols) {
  if (rows < 0 || cols < 0 || static_cast<std::size_t>(rows * cols) != elements.size()) {
    core::fail<ShapeError>("map: ", elements.size(), " elements cannot be a matrix of ", rows,
                           " rows and ", cols, " columns. Are rows and columns of another tensor?");
  }
  return {elements.data(), rows, cols};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
