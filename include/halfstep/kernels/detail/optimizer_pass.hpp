// SPDX-License-Identifier: MIT
// What the optimizers' passes are told: arrays, and factors that are the same for every element.
#pragma once

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

template <class P, class Copy>
struct Pass {
  P* weights;
  const P* gradient;
  P* first;    ///< moment or momentum; or null
  P* second;   ///< or null
  Copy* copy;  ///< the weights in another format; or null
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
