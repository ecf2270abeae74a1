// SPDX-License-Identifier: MIT
// The AdamW step over one range of weights, in whatever way weights and moments are held: unscale,
// clip, decay, update, round and write in one pass. Not an optimizer: groups, state and schedules
// are optim/adamw.hpp's.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/detail/optimizer_pass.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary_double.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// Each is rounded to the weights' type after what follows from it was computed in double.
struct AdamWOptions {
  double lr = 1e-3;           ///< step size, in units of the parameter
  double beta1 = 0.9;         ///< share of the first moment that a step keeps
  double beta2 = 0.999;       ///< share of the second
  double eps = 1e-8;          ///< floor under sqrt(v), in units of the gradient
  double weight_decay = 0.0;  ///< fraction of a weight removed per unit of `lr`
};

namespace detail {

/// 1 - beta^step, in double; exact powers of beta enter the weights' hash, so not libm's pow.
[[nodiscard]] inline double bias_correction(double beta, std::int64_t step) {
  return 1.0 - core::rounded(numeric::pow(beta, static_cast<double>(step)));
}

template <class P>
[[nodiscard]] AdamWFactors<P> adamw_factors(const AdamWOptions& o, std::int64_t step,
                                            double factor) {
  AdamWFactors<P> f;
  f.factor = static_cast<P>(factor);
  f.new1 = static_cast<P>(1.0 - o.beta1);
  f.new2 = static_cast<P>(1.0 - o.beta2);
  f.beta2 = static_cast<P>(o.beta2);
  f.correction = static_cast<P>(1.0 / core::rounded(std::sqrt(bias_correction(o.beta2, step))));
  f.eps = static_cast<P>(o.eps);
  f.decay = static_cast<P>(core::fma(-o.lr, o.weight_decay, 1.0));
  f.step = static_cast<P>(o.lr / core::rounded(bias_correction(o.beta1, step)));
  return f;
}

}  // namespace detail

/// One AdamW step, in place, over n weights that are computed in P = float (or double) and held,
/// as are the moments, in one of the ways of kernels/held.hpp.
///
///   step          1 on the first call (it drives the bias correction)
///   factor        what the gradient is multiplied by first: unscale x clip, rounded to P
///   weights  [n]  updated
///   gradient [n]  read, in float, double or 16 bits; times factor, in units of the loss per unit
///                 of the weight
///   m, v     [n]  moments, updated; zero before the first step
///
///   g = factor * gradient                  m += (1 - beta1) * (g - m)
///   v = beta2 * v + (1 - beta2) * g * g    w *= 1 - lr * weight_decay
///   w -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
///
/// every a * b + c by one fma, all in P: what m, v and w are held in rounds once, at the end, and
/// the weight's new value is computed from the moments before they are rounded. The factors that
/// all elements share are computed in double.
///
/// Memory: allocates nothing, reads and writes each array once: 28 bytes a weight with everything
/// in float. A gradient that is not finite stays in m and v for good, and nothing here looks for
/// one: that is gradient_pass's job.
///
/// @throws ShapeError if the arrays differ in length, OptionError if step is below 1.
/// Source: Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2.
/// Differs: the decay is multiplied by `lr`, as PyTorch does; the paper multiplies it by the
/// schedule alone. So `weight_decay` here is the number you would give torch.optim.AdamW.
template <std::floating_point P, held Weights, numeric::real_element Gradient, held First,
          held Second>
void adamw_step(const core::Compute& compute, const AdamWOptions& options, std::int64_t step,
                double factor, const Weights& weights, std::span<const Gradient> gradient,
                const First& m, const Second& v) {
  const std::int64_t n = weights.size;
  if (std::ssize(gradient) != n || m.size != n || v.size != n) {
    core::fail<ShapeError>("adamw_step: weights has ", n, " elements, but gradient has ",
                           gradient.size(), ", m ", m.size, " and v ", v.size,
                           ". Was the optimizer built before a layer was resized?");
  }
  if (step < 1) {
    core::fail<OptionError>("adamw_step: step is ", step,
                            "; the first is 1. Is a count of applied steps passed before it was "
                            "raised?");
  }
  using Arrays = detail::Pass<Weights, Gradient, First, Second>;
  detail::AdamWFactors<P> factors;
  const Arrays pass{weights, gradient.data(), m, v};
  const auto body = HALFSTEP_PICK(compute.isa, adamw_elements<P, Arrays>);
  // Within the kernels' environment too: the caller's rounding mode must not reach the factors.
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    factors = detail::adamw_factors<P>(options, step, factor);
  });
  detail::parallel_elements(
      compute, n, [&](std::int64_t begin, std::int64_t end) { body(factors, pass, begin, end); });
}

/// The same with everything in P, and with the new weights in another format if `copy` [n] is not
/// empty, rounded to nearest even.
template <std::floating_point P, numeric::real_element Copy = P>
void adamw_step(const core::Compute& compute, const AdamWOptions& options, std::int64_t step,
                double factor, std::span<P> weights,
                std::span<const std::type_identity_t<P>> gradient,
                std::span<std::type_identity_t<P>> m, std::span<std::type_identity_t<P>> v,
                std::span<Copy> copy = {}) {
  if (copy.empty()) {
    adamw_step<P>(compute, options, step, factor, Plain(weights), gradient, Plain(m), Plain(v));
  } else {
    adamw_step<P>(compute, options, step, factor, WithCopy(weights, copy), gradient, Plain(m),
                  Plain(v));
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
