// SPDX-License-Identifier: MIT
// The step of stochastic gradient descent over one range of weights, in whatever way weights and
// velocity are held, with momentum, Nesterov's form and L2 decay. Not an optimizer: groups, state
// and schedules are optim/sgd.hpp's.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/detail/optimizer_pass.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// Each is rounded to the weights' type.
struct SgdOptions {
  double lr = 1e-2;           ///< step size, in units of the parameter per unit of its gradient
  double momentum = 0.0;      ///< share of the velocity that a step keeps; 0: none, and no buffer
  double weight_decay = 0.0;  ///< times the weight, added to its gradient (L2, not decoupled)
  bool nesterov = false;      ///< look ahead by one more momentum step
};

/// One step, in place, over n weights that are computed in P = float (or double) and held, as is
/// the velocity, in one of the ways of kernels/held.hpp.
///
///   factor        what the gradient is multiplied by first: unscale x clip, rounded to P
///   weights  [n]  updated
///   gradient [n]  read, in float, double or 16 bits
///   velocity [n]  updated; zero before the first step; empty if momentum is 0
///
///   g = factor * gradient + weight_decay * w     velocity = momentum * velocity + g
///   w -= lr * (nesterov ? g + momentum * velocity : velocity)
///
/// all in P, from the velocity before it is rounded to what it is held in.
///
/// Memory: allocates nothing, reads and writes each array once: 20 bytes a weight in float with
/// momentum.
///
/// @throws ShapeError if the arrays differ in length, OptionError for Nesterov without momentum.
/// Source: Sutskever et al., "On the importance of initialization and momentum", ICML 2013.
/// Differs: lr multiplies the velocity when it is applied, as PyTorch does, not when it is made.
template <std::floating_point P, held Weights, numeric::real_element Gradient, held Velocity>
void sgd_step(const core::Compute& compute, const SgdOptions& options, double factor,
              const Weights& weights, std::span<const Gradient> gradient,
              const Velocity& velocity) {
  const std::int64_t n = weights.size;
  const std::int64_t wanted = options.momentum == 0.0 ? 0 : n;
  if (std::ssize(gradient) != n || velocity.size != wanted) {
    core::fail<ShapeError>("sgd_step: weights has ", n, " elements, but gradient has ",
                           gradient.size(), " and velocity ", velocity.size, " (wanted ", wanted,
                           "). Was the optimizer built before a layer was resized?");
  }
  if (options.nesterov && options.momentum == 0.0) {
    core::fail<OptionError>("sgd_step: nesterov needs a momentum, which is 0.");
  }
  detail::SgdFactors<P> factors;
  // Rounded within the kernels' environment: the caller's rounding mode must not reach the weights.
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    factors = {static_cast<P>(factor), static_cast<P>(options.weight_decay),
               static_cast<P>(options.momentum), static_cast<P>(options.lr), options.nesterov};
  });
  using Arrays = detail::Pass<Weights, Gradient, Velocity, Velocity>;
  Velocity held_velocity = velocity;
  if (wanted == 0) held_velocity.data = nullptr;
  const Arrays pass{weights, gradient.data(), held_velocity, held_velocity};
  const auto body = HALFSTEP_PICK(compute.isa, sgd_elements<P, Arrays>);
  detail::parallel_elements(
      compute, n, [&](std::int64_t begin, std::int64_t end) { body(factors, pass, begin, end); });
}

/// The same with everything in P, and with the new weights in another format if `copy` [n] is not
/// empty, rounded to nearest even.
template <std::floating_point P, numeric::real_element Copy = P>
void sgd_step(const core::Compute& compute, const SgdOptions& options, double factor,
              std::span<P> weights, std::span<const std::type_identity_t<P>> gradient,
              std::span<std::type_identity_t<P>> velocity, std::span<Copy> copy = {}) {
  if (copy.empty()) {
    sgd_step<P>(compute, options, factor, Plain(weights), gradient, Plain(velocity));
  } else {
    sgd_step<P>(compute, options, factor, WithCopy(weights, copy), gradient, Plain(velocity));
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
