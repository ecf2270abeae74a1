// SPDX-License-Identifier: MIT
// The tangents of layer norm and RMS norm, forward and backward: their formulas once more, on rows
// of duals. Private to autograd/ops/; the values themselves are the kernels'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dual.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd::detail {

/// What a row is moved and scaled by: xhat = (x - mean) * rstd. The mean of RMS norm is 0.
template <class T>
struct RowStatistics {
  dual<T> mean, rstd;
  [[nodiscard]] dual<T> hat(dual<T> x) const { return (x - mean) * rstd; }
};

template <bool centred, class T>
[[nodiscard]] RowStatistics<T> row_statistics(Duals<T> x, std::int64_t width, double eps) {
  const dual<T> count(static_cast<T>(width));
  RowStatistics<T> s;
  if constexpr (centred) {
    for (std::int64_t j = 0; j < width; ++j)
      s.mean += x[j];
    s.mean /= count;
  }
  dual<T> square;
  for (std::int64_t j = 0; j < width; ++j) {
    const dual<T> away = x[j] - s.mean;
    square += away * away;
  }
  s.rstd = dual<T>(T(1)) / sqrt(square / count + dual<T>(static_cast<T>(eps)));
  return s;
}

template <class T>
[[nodiscard]] Duals<T> row_of(Duals<T> x, std::int64_t row, std::int64_t width) {
  return {x.values + row * width, x.tangents + row * width};
}

/// out [rows, width] = the tangents of xhat * gain + bias; null bias tangents: none.
template <bool centred, class T>
void norm_tangents(const core::Compute& compute, Duals<T> x, Duals<T> gain, const T* bias_tangents,
                   T* out, std::int64_t rows, std::int64_t width, double eps) {
  compute.parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const Duals<T> in = row_of(x, row, width);
      const auto s = row_statistics<centred>(in, width, eps);
      for (std::int64_t j = 0; j < width; ++j) {
        const T scaled = (s.hat(in[j]) * gain[j]).tangent;
        out[row * width + j] = bias_tangents == nullptr ? scaled : scaled + bias_tangents[j];
      }
    }
  });
}

/// out [rows, width] = the tangents of the gradient of x, which is rstd (g - mean(g) - xhat mean(g
/// xhat)) with g = dy gain; for RMS norm without mean(g).
template <bool centred, class T>
void norm_input_tangents(const core::Compute& compute, Duals<T> dy, Duals<T> x, Duals<T> gain,
                         T* out, std::int64_t rows, std::int64_t width, double eps) {
  const dual<T> count(static_cast<T>(width));
  compute.parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const Duals<T> in = row_of(x, row, width), upstream = row_of(dy, row, width);
      const auto s = row_statistics<centred>(in, width, eps);
      dual<T> mean, along;
      for (std::int64_t j = 0; j < width; ++j) {
        const dual<T> g = upstream[j] * gain[j];
        if constexpr (centred) mean += g;
        along += g * s.hat(in[j]);
      }
      mean /= count, along /= count;
      for (std::int64_t j = 0; j < width; ++j) {
        const dual<T> g = upstream[j] * gain[j];
        out[row * width + j] = (s.rstd * (g - mean - s.hat(in[j]) * along)).tangent;
      }
    }
  });
}

/// out [width] = the tangents of the gradient of gain, the sum over the rows of dy xhat; or adds
/// them. Workspace: rows RowStatistics.
template <bool centred, class T>
void norm_gain_tangents(const core::Compute& compute, Duals<T> dy, Duals<T> x, T* out,
                        bool accumulate, std::int64_t rows, std::int64_t width, double eps,
                        std::byte* workspace) {
  auto* const statistics = reinterpret_cast<RowStatistics<T>*>(workspace);
  compute.parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      statistics[row] = row_statistics<centred>(row_of(x, row, width), width, eps);
    }
  });
  compute.parallel(width, 8, [&](std::int64_t begin, std::int64_t end, int) {
    if (!accumulate) std::fill(out + begin, out + end, T(0));
    for (std::int64_t row = 0; row < rows; ++row) {
      const Duals<T> in = row_of(x, row, width), upstream = row_of(dy, row, width);
      for (std::int64_t j = begin; j < end; ++j)
        out[j] += (upstream[j] * statistics[row].hat(in[j])).tangent;
    }
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd::detail
