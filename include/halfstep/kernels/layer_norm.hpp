// SPDX-License-Identifier: MIT
// LayerNorm over the rows of a matrix, forward and backward, statistics saved in between. Without
// mean and bias: rms_norm.hpp. Not for a residual sum in front of it, which rounds on its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

struct NormOptions {
  double eps = 1e-5;  ///< added to the variance, in its units: those of x squared; above 0
};

namespace detail {

/// Rows per thread below which another thread costs more than it saves: about 16 K elements.
[[nodiscard]] inline std::int64_t norm_grain(std::int64_t d) {
  return std::max<std::int64_t>(1, 16384 / d);
}

inline void check_norm(const char* function, std::size_t x, std::size_t other, const char* name,
                       std::size_t gain, std::size_t bias, std::size_t mean, std::size_t rstd) {
  if (gain == 0) {
    core::fail<ShapeError>(function,
                           ": gain is empty, so rows have no width. Was the layer built?");
  }
  if (bias != 0 && bias != gain) {
    core::fail<ShapeError>(function, ": gain has ", gain, " elements but bias ", bias,
                           "; both want the width of a row, or bias none.");
  }
  if (mean != rstd || x != rstd * gain) {
    core::fail<ShapeError>(function, ": x has ", x, " elements, gain ", gain, ", mean ", mean,
                           " and rstd ", rstd,
                           "; x wants rows x width, mean and rstd one for each row. Does the "
                           "layer's width fit the input's?");
  }
  if (other != x) {
    core::fail<ShapeError>(function, ": x has ", x, " elements but ", name, " ", other,
                           ". Was it made for another batch?");
  }
}

}  // namespace detail

/// y = (x - mean(x)) * rstd * gain + bias for each row, rstd = 1 / sqrt(variance(x) + eps).
///
///   x, y        [rows, width]  y may be x
///   gain, bias  [width]        bias may be empty: none
///   mean, rstd  [rows]         written, for the backward
///
/// Statistics are float (double for double), by two passes, sums in 16 lanes: element j in lane
/// j mod 16, lanes folded 8, 4, 2, 1. The variance divides by width. (x - mean) * rstd rounds in
/// float; gain and bias follow in one fma; y rounds once to E.
///
/// Memory: allocates nothing; reads and writes each row once (it stays in cache for three passes).
/// @throws ShapeError if sizes do not fit, OptionError if eps is not above 0.
template <numeric::real_element E>
void layer_norm(const core::Compute& compute, std::span<const E> x, std::span<const E> gain,
                std::span<const E> bias, std::span<E> y, std::span<numeric::accumulator_t<E>> mean,
                std::span<numeric::accumulator_t<E>> rstd, const NormOptions& options = {}) {
  using A = numeric::accumulator_t<E>;
  detail::check_norm("layer_norm", x.size(), y.size(), "y", gain.size(), bias.size(), mean.size(),
                     rstd.size());
  if (!(options.eps >= static_cast<double>(std::numeric_limits<A>::min()))) {
    core::fail<OptionError>("layer_norm: eps is ", options.eps,
                            "; it wants to be a normal number above 0, or a constant row divides by 0.");
  }
  const auto body = HALFSTEP_PICK(compute.isa, norm_forward<E, true>);
  const auto width = static_cast<std::int64_t>(gain.size());
  const E* offset = bias.empty() ? nullptr : bias.data();
  compute.parallel(static_cast<std::int64_t>(rstd.size()), detail::norm_grain(width),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(x.data(), gain.data(), offset, y.data(), mean.data(), rstd.data(),
                          static_cast<A>(options.eps), width, begin, end);
                   });
}

/// The gradient of x from that of y: with g = dy * gain and xhat = (x - mean) * rstd,
/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), rounded once to E.
///
///   dy, x, dx   [rows, width]  dx may be dy
///   mean, rstd  [rows]         from the forward
///   accumulate  adds to dx, with one rounding, instead of overwriting it
///
/// @throws ShapeError if sizes do not fit.
template <numeric::real_element E>
void layer_norm_backward_input(const core::Compute& compute, std::span<const E> dy,
                               std::span<const E> x, std::span<const E> gain,
                               std::span<const numeric::accumulator_t<E>> mean,
                               std::span<const numeric::accumulator_t<E>> rstd, std::span<E> dx,
                               bool accumulate = false) {
  const char* function = "layer_norm_backward_input";
  detail::check_norm(function, x.size(), dy.size(), "dy", gain.size(), 0, mean.size(), rstd.size());
  detail::check_norm(function, x.size(), dx.size(), "dx", gain.size(), 0, mean.size(), rstd.size());
  const auto body = HALFSTEP_PICK(compute.isa, norm_backward_input<E, true>);
  const auto width = static_cast<std::int64_t>(gain.size());
  compute.parallel(static_cast<std::int64_t>(rstd.size()), detail::norm_grain(width),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(dy.data(), x.data(), gain.data(), mean.data(), rstd.data(), dx.data(),
                          accumulate, width, begin, end);
                   });
}

/// The gradients of gain and bias: per column one chain over the rows from +0, dgain by
/// fma(dy, xhat, .), dbias by sums. The finished chain is stored, or added with one rounding.
///
///   dy, x         [rows, width]
///   dgain, dbias  [width]  dbias may be empty: not wanted
///
/// @throws ShapeError if sizes do not fit.
template <numeric::real_element E>
void layer_norm_backward_parameters(const core::Compute& compute, std::span<const E> dy,
                                    std::span<const E> x,
                                    std::span<const numeric::accumulator_t<E>> mean,
                                    std::span<const numeric::accumulator_t<E>> rstd,
                                    std::span<numeric::accumulator_t<E>> dgain,
                                    std::span<numeric::accumulator_t<E>> dbias,
                                    bool accumulate = false) {
  using A = numeric::accumulator_t<E>;
  detail::check_norm("layer_norm_backward_parameters", x.size(), dy.size(), "dy", dgain.size(),
                     dbias.size(), mean.size(), rstd.size());
  const auto body = HALFSTEP_PICK(compute.isa, norm_backward_parameters<E, true>);
  const auto width = static_cast<std::int64_t>(dgain.size());
  const auto rows = static_cast<std::int64_t>(rstd.size());
  A* offset = dbias.empty() ? nullptr : dbias.data();
  // Vectors of 16 columns are shared out; a part of less than 64 columns reads lines by halves.
  compute.parallel((width + 15) / 16, std::max<std::int64_t>(4, 1024 / (rows + 1)),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(dy.data(), x.data(), mean.data(), rstd.data(), dgain.data(), offset,
                          accumulate, rows, width, begin, end);
                   });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
