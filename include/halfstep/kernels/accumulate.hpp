// SPDX-License-Identifier: MIT
// Sums, dot products and matrix products with the running total kept in a format of one's choice:
// to study what a smaller accumulator does. Everything else in the library keeps totals in float or
// double. Not for speed: every addition is a scalar one, in order.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// The role of a running total. An implementer starts at +0, and promises that `add` and
/// `add_product` take x, or a times b, of any element type into the total, and that `value` is a
/// float or a double.
template <class Total, class E>
concept running_total = std::default_initializable<Total> &&
    requires(Total& total, const Total& read, E x) {
  total.add(x);
  total.add_product(x, x);
  { read.value() } -> std::floating_point;
};

namespace detail {

template <class S>
[[nodiscard]] constexpr bool is_finite(S x) {
  return x - x == S{};
}
template <class S>
[[nodiscard]] S fused(S a, S b, S c) {
  if constexpr (std::floating_point<S>) {
    return core::fma(a, b, c);
  } else {
    return fma(a, b, c);
  }
}
template <class S>
[[nodiscard]] S times(S a, S b) {
  if constexpr (std::floating_point<S>) {
    return core::rounded(a * b);
  } else {
    return a * b;
  }
}
template <class S>
using wide_t = std::conditional_t<std::same_as<S, double>, double, float>;

}  // namespace detail

/// In S: float, double, fp16 or bf16. An addend, and each factor of a product, is first rounded to
/// S; then the addition, or the product with its addition (one fma), is rounded once.
template <numeric::real_element S = float>
class TotalIn {
 public:
  template <class E>
  void add(E x) {
    total_ = total_ + static_cast<S>(x);
  }
  template <class E>
  void add_product(E a, E b) {
    total_ = detail::fused(static_cast<S>(a), static_cast<S>(b), total_);
  }
  [[nodiscard]] auto value() const { return static_cast<detail::wide_t<S>>(total_); }

 private:
  S total_{};
};

/// In S for `length` addends at a time; each such chunk, begun at +0, is then added to a total in
/// float. What GPUs do that add in few bits and promote now and then.
template <numeric::real_element S, int length = 64>
requires(length > 0) class TotalInChunks {
 public:
  template <class E>
  void add(E x) {
    chunk_.add(x);
    count();
  }
  template <class E>
  void add_product(E a, E b) {
    chunk_.add_product(a, b);
    count();
  }
  [[nodiscard]] float value() const { return total_ + static_cast<float>(chunk_.value()); }

 private:
  void count() {
    if (++used_ < length) return;
    total_ = value();
    chunk_ = {};
    used_ = 0;
  }

  TotalIn<S> chunk_;
  float total_ = 0.0F;
  int used_ = 0;
};

/// In S, with a second S that holds what the last addition lost (Kahan); products are rounded to S
/// before they are added. What was lost is 0 once the total is not finite: infinity plus 0 is
/// infinity, where the textbook's formula gives NaN. It holds as far as S can hold what is lost: a
/// count by 1 sticks at 2^8 in bf16, and at 2^16 with compensation. Compilers keep it, since
/// <halfstep/core/strict_math.hpp> refuses -ffast-math. Source: Kahan, "Further remarks on reducing
/// truncation errors", CACM 8 (1965).
template <numeric::real_element S = float>
class KahanTotal {
 public:
  template <class E>
  void add(E x) {
    take(static_cast<S>(x));
  }
  template <class E>
  void add_product(E a, E b) {
    take(detail::times(static_cast<S>(a), static_cast<S>(b)));
  }
  [[nodiscard]] auto value() const { return static_cast<detail::wide_t<S>>(total_); }

 private:
  void take(S x) {
    const S addend = x - lost_;
    const S next = total_ + addend;
    lost_ = detail::is_finite(next) ? (next - total_) - addend : S{};
    total_ = next;
  }

  S total_{}, lost_{};  // lost_: what the total has too much
};

/// The sum of x, first element first. One thread, in the kernels' environment (no subnormal
/// floats).
///   kernels::sum_by<kernels::TotalIn<fp16>>(compute, x)
template <class Total = TotalIn<float>, numeric::real_element E>
requires running_total<Total, E>
[[nodiscard]] auto sum_by(const core::Compute& compute, std::span<const E> x) {
  Total total;
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (const E value : x)
      total.add(value);
  });
  return total.value();
}

namespace detail {

// The library's own order: for bf16 element 2i + 1 of each pair before 2i, as its products have it.
template <class Total, class E>
[[nodiscard]] auto chain(const E* a, std::int64_t a_stride, const E* b, std::int64_t b_stride,
                         std::int64_t n) {
  Total total;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t pair = i % 2 == 0 ? i + 1 : i - 1;
    const std::int64_t at = std::same_as<E, bf16> && (i | 1) < n ? pair : i;
    total.add_product(a[at * a_stride], b[at * b_stride]);
  }
  return total.value();
}

}  // namespace detail

/// The sum of a[i] b[i]. With TotalIn<float>, the bits of kernels::gemm, which is to say: for bf16
/// the second of each pair first.
/// @throws ShapeError if the lengths differ.
template <class Total = TotalIn<float>, numeric::real_element E>
requires running_total<Total, E>
[[nodiscard]] auto dot_by(const core::Compute& compute, std::span<const E> a,
                          std::span<const std::type_identity_t<E>> b) {
  detail::check_sizes("dot_by", "a", a.size(), "b", b.size());
  decltype(Total().value()) result{};
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    result = detail::chain<Total>(a.data(), 1, b.data(), 1, std::ssize(a));
  });
  return result;
}

/// c = a b: every element a dot product as above. a [m, k], b [k, n], c [m, n]; rows of c are
/// shared among threads, which does not show.
/// @throws ShapeError if the shapes do not fit.
template <class Total = TotalIn<float>, numeric::real_element E, std::floating_point C>
requires running_total<Total, E>
void product_by(const core::Compute& compute, core::MatrixView<const E> a,
                core::MatrixView<const E> b, core::MatrixView<C> c) {
  if (a.cols != b.rows || c.rows != a.rows || c.cols != b.cols) {
    core::fail<ShapeError>("product_by: a is [", a.rows, ", ", a.cols, "], b [", b.rows, ", ",
                           b.cols, "] and c [", c.rows, ", ", c.cols,
                           "], wanted [m, k], [k, n] and [m, n]. Is one of them transposed?");
  }
  compute.parallel(c.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        c(i, j) = static_cast<C>(detail::chain<Total>(
            a.row(i), a.col_stride, b.data + j * b.col_stride, b.row_stride, a.cols));
      }
    }
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
