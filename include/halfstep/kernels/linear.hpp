// SPDX-License-Identifier: MIT
// The four products of a linear layer, y = x W^T + b: forward, and backward to input, weight and
// bias. Shapes as a layer has them; the arithmetic is gemm.hpp's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/gemm.hpp>
#include <halfstep/kernels/write.hpp>
#include <halfstep/numeric/element.hpp>

// Sizes in all of them: rows (of the batch, all tokens), in and out (the layer's widths). x is
// [rows, in], w [out, in], y and dy [rows, out]. All allocate nothing, and throw ShapeError if
// sizes do not fit or the workspace is too small.

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

namespace detail {

inline void check_linear(const char* function, const char* names, bool fits, std::int64_t rows0,
                         std::int64_t cols0, std::int64_t rows1, std::int64_t cols1,
                         std::int64_t rows2, std::int64_t cols2) {
  if (fits) return;
  core::fail<ShapeError>(function, ": ", names, " are ", rows0, " x ", cols0, ", ", rows1, " x ",
                         cols1, " and ", rows2, " x ", cols2,
                         ". Do the layer's widths fit its neighbours'?");
}

}  // namespace detail

/// Bytes of workspace that linear_forward wants, on compute's path and number of threads.
template <numeric::real_element E>
[[nodiscard]] std::int64_t linear_forward_workspace(const core::Compute& compute, std::int64_t rows,
                                                    std::int64_t in, std::int64_t out) {
  return gemm_workspace<E>(compute, rows, out, in);
}
/// And what suffices for each of the backward products.
template <numeric::real_element E>
[[nodiscard]] std::int64_t linear_backward_workspace(const core::Compute& compute,
                                                     std::int64_t rows, std::int64_t in,
                                                     std::int64_t out) {
  return std::max(gemm_workspace<E>(compute, rows, in, out),
                  gemm_workspace<E>(compute, out, in, rows));
}

/// y = x W^T + bias: each element one chain over `in`, plus the bias, rounded once to C (E, or its
/// accumulator for logits). A null bias is none.
template <numeric::real_element E, class C>
void linear_forward(const core::Compute& compute, core::MatrixView<const E> x,
                    core::MatrixView<const E> w, const E* bias, core::MatrixView<C> y,
                    std::span<std::byte> workspace) {
  detail::check_linear(
      "linear_forward", "x, w, y",
      x.cols == w.cols && y.rows == x.rows && y.cols == w.rows && y.col_stride == 1, x.rows, x.cols,
      w.rows, w.cols, y.rows, y.cols);
  gemm(compute, x, w.transposed(), y.data, y.row_stride, {.bias = bias}, workspace);
}

/// dx = dy W, each element one chain over `out`; or dx += dy W.
template <numeric::real_element E, class C>
void linear_backward_input(const core::Compute& compute, core::MatrixView<const E> dy,
                           core::MatrixView<const E> w, core::MatrixView<C> dx, Write write,
                           std::span<std::byte> workspace) {
  detail::check_linear(
      "linear_backward_input", "dy, w, dx",
      dy.cols == w.rows && dx.rows == dy.rows && dx.cols == w.cols && dx.col_stride == 1, dy.rows,
      dy.cols, w.rows, w.cols, dx.rows, dx.cols);
  gemm(compute, dy, w, dx.data, dx.row_stride, {.accumulate = write == Write::accumulate},
       workspace);
}

/// dw = dy^T x in the accumulator's type, each element one chain over the rows; or dw += dy^T x.
template <numeric::real_element E>
void linear_backward_weight(const core::Compute& compute, core::MatrixView<const E> dy,
                            core::MatrixView<const E> x,
                            core::MatrixView<numeric::accumulator_t<E>> dw, Write write,
                            std::span<std::byte> workspace) {
  detail::check_linear(
      "linear_backward_weight", "dy, x, dw",
      dy.rows == x.rows && dw.rows == dy.cols && dw.cols == x.cols && dw.col_stride == 1, dy.rows,
      dy.cols, x.rows, x.cols, dw.rows, dw.cols);
  gemm(compute, dy.transposed(), x, dw.data, dw.row_stride,
       {.accumulate = write == Write::accumulate}, workspace);
}

/// db[j] = the sum of dy[row][j] over the rows, in the accumulator's type: one chain of additions
/// from +0, rows ascending; or db += that. Threads share out the columns.
template <numeric::real_element E>
void linear_backward_bias(const core::Compute& compute, core::MatrixView<const E> dy,
                          std::span<numeric::accumulator_t<E>> db, Write write) {
  if (std::ssize(db) != dy.cols || dy.col_stride != 1) {
    core::fail<ShapeError>("linear_backward_bias: dy is ", dy.rows, " x ", dy.cols,
                           " with elements of a row ", dy.col_stride, " apart, db has ", db.size(),
                           " elements. Wanted one for each column, and rows without gaps.");
  }
  const auto body = HALFSTEP_PICK(compute.isa, column_sums<E>);
  // At least 16 K elements a thread.
  const std::int64_t grain = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(dy.rows, 1));
  compute.parallel(core::divide_up(dy.cols, 16), grain,
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(dy.data, dy.row_stride, dy.rows, begin * 16, std::min(end * 16, dy.cols),
                          db.data(), write == Write::accumulate);
                   });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
