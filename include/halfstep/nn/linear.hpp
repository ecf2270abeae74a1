// SPDX-License-Identifier: MIT
// The fully connected layer: y = x W^T + b. A struct of handles, free to copy; the values are in the
// store that its Scope came from. Not for: the tied head of a language model (nn/gpt.hpp).
#pragma once

#include <cmath>
#include <optional>

#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

struct LinearOptions {
  bool bias = true;
  /// Of the initial weights, which are normal around 0; none: 1 / sqrt(inputs), which keeps the size
  /// of what passes through. The GPT gives its own.
  std::optional<float> deviation{};
};

template <class T>
struct Linear {
  using layer_tag = void;
  Parameter<T> weight;  ///< [outputs, inputs], as PyTorch has it
  Parameter<T> bias{};  ///< [outputs], or none

  /// Registers "weight" and, unless told otherwise, "bias" (zeros).
  /// @throws OptionError if a size is below 1.
  Linear(const Scope<T>& scope, int inputs, int outputs, const LinearOptions& options = {})
      : weight(scope.add("weight", checked(scope, inputs, outputs), Role::weight,
                         Init::normal(deviation(inputs, options)))) {
    if (options.bias) bias = scope.add("bias", {outputs}, Role::bias, Init::constant(0.0F));
  }

  /// x [..., inputs] -> [..., outputs]; rounds once, after the bias.
  [[nodiscard]] Variable<T> operator()(Variable<T> x) const { return linear(x, weight, bias); }

 private:
  [[nodiscard]] static Shape checked(const Scope<T>& scope, int inputs, int outputs) {
    if (inputs < 1 || outputs < 1) {
      core::fail<OptionError>("nn::Linear '", scope.name(), "': ", inputs, " inputs and ", outputs,
                              " outputs; both must be at least 1");
    }
    return {outputs, inputs};
  }
  [[nodiscard]] static float deviation(int inputs, const LinearOptions& options) {
    return options.deviation ? *options.deviation : 1.0F / std::sqrt(static_cast<float>(inputs));
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
