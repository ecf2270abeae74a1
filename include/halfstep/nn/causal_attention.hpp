// SPDX-License-Identifier: MIT
// Multi-head self-attention in which a position sees itself and what stands before it: projection to
// queries, keys and values, attention, output projection, dropout.
// Not for: attention to another sequence.
#pragma once

#include <cstdint>

#include <halfstep/autograd/ops/attention.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/nn/linear.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

struct CausalAttentionOptions {
  bool bias = true;
  float dropout = 0.0F;               ///< of probabilities and of output, in training, [0, 1)
  float deviation = 0.02F;            ///< of the initial query, key and value weights
  float output_deviation = 0.02F;     ///< of the initial output weights
};

template <class T>
struct CausalAttention {
  using layer_tag = void;
  int heads;
  Linear<T> qkv;  ///< width to 3 width: all queries, then keys, then values, as GPT-2's c_attn
  Linear<T> out;
  float dropout_share;
  std::uint64_t dropout_stream, probabilities_stream;

  /// Registers "qkv.…" and "out.…".
  /// @throws OptionError if width is not a multiple of heads, or an option is out of range.
  CausalAttention(const Scope<T>& scope, int width, int head_count,
                  const CausalAttentionOptions& options = {})
      : heads(checked(scope, width, head_count, options)),
        qkv(scope / "qkv", width, 3 * width, {options.bias, options.deviation}),
        out(scope / "out", width, width, {options.bias, options.output_deviation}),
        dropout_share(options.dropout),
        dropout_stream(core::stream(scope.name(), "dropout")),
        probabilities_stream(core::stream(scope.name(), "probabilities")) {}

  /// x [rows, positions, width] -> the same shape. Memory is linear in positions.
  [[nodiscard]] Variable<T> operator()(Variable<T> x) const {
    const auto mixed = attention(qkv(x), heads, dropout_share, probabilities_stream);
    return dropout(out(mixed), dropout_share, dropout_stream);
  }

 private:
  [[nodiscard]] static int checked(const Scope<T>& scope, int width, int heads,
                                   const CausalAttentionOptions& options) {
    if (heads < 1 || width < heads || width % heads != 0) {
      const int share = heads < 1 ? 0 : width / heads;
      core::fail<OptionError>("nn::CausalAttention '", scope.name(), "': width ", width,
                              " does not divide into ", heads, " heads. Choose a multiple of the "
                              "heads as width",
                              share < 1 ? std::string()
                                        : core::text(", ", share * heads, " or ",
                                                     (share + 1) * heads, " for instance"),
                              ".");
    }
    if (!(options.dropout >= 0.0F && options.dropout < 1.0F)) {
      core::fail<OptionError>("nn::CausalAttention '", scope.name(), "': dropout is ",
                              options.dropout, "; wanted a share in [0, 1)");
    }
    return heads;
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
