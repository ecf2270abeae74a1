// SPDX-License-Identifier: MIT
// One pre-norm transformer block: x + attention(norm(x)), then + mlp(norm(x)).
// Not for: post-norm models, or blocks of another shape: write your own struct of layers.
#pragma once

#include <cstdint>

#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/nn/causal_attention.hpp>
#include <halfstep/nn/layer_norm.hpp>
#include <halfstep/nn/linear.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

struct BlockOptions {
  int width = 128;
  int heads = 4;
  int hidden = 0;                   ///< width of the MLP between its layers; 0: 4 x width
  bool bias = true;                 ///< of the linear layers and the norms
  float dropout = 0.0F;             ///< of attention's probabilities and both projections, [0, 1)
  float deviation = 0.02F;          ///< of initial weights
  float residual_deviation = 0.02F; ///< of those two projections
};

template <class T>
struct Block {
  using layer_tag = void;
  LayerNorm<T> norm1;
  CausalAttention<T> attention;
  LayerNorm<T> norm2;
  Linear<T> up, down;
  float dropout_share;
  std::uint64_t dropout_stream;

  /// @throws OptionError as its layers.
  Block(const Scope<T>& scope, const BlockOptions& options)
      : norm1(scope / "norm1", options.width, options.bias),
        attention(scope / "attention", options.width, options.heads,
                  {options.bias, options.dropout, options.deviation, options.residual_deviation}),
        norm2(scope / "norm2", options.width, options.bias),
        up(scope / "up", options.width, hidden(options), {options.bias, options.deviation}),
        down(scope / "down", hidden(options), options.width,
             {options.bias, options.residual_deviation}),
        dropout_share(options.dropout),
        dropout_stream(core::stream(scope.name(), "dropout")) {}

  /// x [rows, positions, width] -> the same shape. The residual stream rounds to T at each sum.
  [[nodiscard]] Variable<T> operator()(Variable<T> x) const {
    x = x + attention(norm1(x));
    return x + dropout(down(gelu(up(norm2(x)))), dropout_share, dropout_stream);
  }

 private:
  [[nodiscard]] static int hidden(const BlockOptions& options) {
    return options.hidden == 0 ? 4 * options.width : options.hidden;
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
