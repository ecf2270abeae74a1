// SPDX-License-Identifier: MIT
// RMSNorm over the rows of a matrix, forward and backward: layer_norm.hpp without mean and bias.
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
#include <halfstep/kernels/layer_norm.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// y = x * rstd * gain for each row, rstd = 1 / sqrt(mean(x^2) + eps). Shapes, order of sums,
/// rounding and errors as layer_norm.
///
/// Source: Zhang & Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
template <numeric::real_element E>
void rms_norm(const core::Compute& compute, std::span<const E> x, std::span<const E> gain,
              std::span<E> y, std::span<numeric::accumulator_t<E>> rstd,
              const NormOptions& options = {}) {
  using A = numeric::accumulator_t<E>;
  detail::check_norm("rms_norm", x.size(), y.size(), "y", gain.size(), 0, rstd.size(), rstd.size());
  if (!(options.eps >= static_cast<double>(std::numeric_limits<A>::min()))) {
    core::fail<OptionError>("rms_norm: eps is ", options.eps,
                            "; it wants to be a normal number above 0, or a row of zeros divides by 0.");
  }
  const auto body = HALFSTEP_PICK(compute.isa, norm_forward<E, false>);
  const auto width = static_cast<std::int64_t>(gain.size());
  compute.parallel(static_cast<std::int64_t>(rstd.size()), detail::norm_grain(width),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(x.data(), gain.data(), nullptr, y.data(), nullptr, rstd.data(),
                          static_cast<A>(options.eps), width, begin, end);
                   });
}

/// dx = rstd * (g - xhat * mean(g * xhat)) with g = dy * gain and xhat = x * rstd.
/// As layer_norm_backward_input.
template <numeric::real_element E>
void rms_norm_backward_input(const core::Compute& compute, std::span<const E> dy,
                             std::span<const E> x, std::span<const E> gain,
                             std::span<const numeric::accumulator_t<E>> rstd, std::span<E> dx,
                             bool accumulate = false) {
  const char* function = "rms_norm_backward_input";
  detail::check_norm(function, x.size(), dy.size(), "dy", gain.size(), 0, rstd.size(), rstd.size());
  detail::check_norm(function, x.size(), dx.size(), "dx", gain.size(), 0, rstd.size(), rstd.size());
  const auto body = HALFSTEP_PICK(compute.isa, norm_backward_input<E, false>);
  const auto width = static_cast<std::int64_t>(gain.size());
  compute.parallel(static_cast<std::int64_t>(rstd.size()), detail::norm_grain(width),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(dy.data(), x.data(), gain.data(), nullptr, rstd.data(), dx.data(),
                          accumulate, width, begin, end);
                   });
}

/// dgain per column: one chain of fma(dy, xhat, .) over the rows. As
/// layer_norm_backward_parameters.
template <numeric::real_element E>
void rms_norm_backward_gain(const core::Compute& compute, std::span<const E> dy,
                            std::span<const E> x, std::span<const numeric::accumulator_t<E>> rstd,
                            std::span<numeric::accumulator_t<E>> dgain, bool accumulate = false) {
  detail::check_norm("rms_norm_backward_gain", x.size(), dy.size(), "dy", dgain.size(), 0,
                     rstd.size(), rstd.size());
  const auto body = HALFSTEP_PICK(compute.isa, norm_backward_parameters<E, false>);
  const auto width = static_cast<std::int64_t>(dgain.size());
  const auto rows = static_cast<std::int64_t>(rstd.size());
  compute.parallel((width + 15) / 16, std::max<std::int64_t>(4, 1024 / (rows + 1)),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(dy.data(), x.data(), nullptr, rstd.data(), dgain.data(), nullptr,
                          accumulate, rows, width, begin, end);
                   });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
