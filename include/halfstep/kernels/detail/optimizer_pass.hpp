// SPDX-License-Identifier: MIT
// What the optimizers' passes are told: arrays, and factors that are the same for every element.
#pragma once

#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/kernels/held.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// Views by value: what a step reads and writes for one range of weights.
template <class Weights, class Gradient, class First, class Second>
struct Pass {
  Weights weights;
  const Gradient* gradient;
  First first;    ///< moment or momentum
  Second second;  ///< moment
};

template <class P>
struct AdamWFactors {
  P factor, new1, new2, beta2, correction, eps, decay, step;
};

template <class P>
struct SgdFactors {
  P factor, weight_decay, momentum, lr;
  bool nesterov;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
