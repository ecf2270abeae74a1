// SPDX-License-Identifier: MIT
// Layer normalisation over the innermost dimension, with a learned gain and an optional bias.
// Not for: normalising without learned parameters, or over anything but the width.
#pragma once

#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

template <class T>
struct LayerNorm {
  using layer_tag = void;
  Parameter<T> gain;    ///< [width], ones at first
  Parameter<T> bias{};  ///< [width], zeros at first; or none

  /// @throws OptionError if width is below 1.
  LayerNorm(const Scope<T>& scope, int width, bool with_bias = true)
      : gain(scope.add("gain", checked(scope, width), Role::gain, Init::constant(1.0F))) {
    if (with_bias) bias = scope.add("bias", {width}, Role::bias, Init::constant(0.0F));
  }

  /// x [..., width] -> the same shape. Statistics are in float (double in a double model).
  [[nodiscard]] Variable<T> operator()(Variable<T> x) const { return layer_norm(x, gain, bias); }

 private:
  [[nodiscard]] static Shape checked(const Scope<T>& scope, int width) {
    if (width < 1) {
      core::fail<OptionError>("nn::LayerNorm '", scope.name(), "': width is ", width,
                              "; wanted at least 1");
    }
    return {width};
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
