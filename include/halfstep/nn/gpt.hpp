// SPDX-License-Identifier: MIT
// The GPT: token and position tables, pre-norm blocks, a last norm, and a head that is the token
// table again. Not for: training or sampling it (train/), or loading GPT-2's own weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/ops/head_loss.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/nn/block.hpp>
#include <halfstep/nn/embedding.hpp>
#include <halfstep/nn/layer_norm.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

struct GptOptions {
  int vocabulary = 256;   ///< tokens are 0 to vocabulary - 1
  int context = 128;      ///< positions that there are vectors for: no row is longer
  int layers = 4;
  int heads = 4;
  int width = 128;        ///< a multiple of heads
  float dropout = 0.0F;   ///< after the embedding, and in each block as BlockOptions::dropout
  bool bias = true;       ///< of every linear layer and norm, as GPT-2; false as nanoGPT's small runs
};

/// How many parameters a Gpt has: with width C, (V + S) C for the tables, L (12 C^2 + 13 C) for the
/// blocks and 2 C for the last norm; without biases L (12 C^2 + 2 C) and C. The head shares the
/// token table. nanoGPT's figures leave out S C, the positions.
[[nodiscard]] constexpr std::int64_t count_parameters(const GptOptions& options) {
  const std::int64_t c = options.width;
  const std::int64_t tables = (std::int64_t{options.vocabulary} + options.context) * c;
  const std::int64_t block = 12 * c * c + (options.bias ? 13 : 2) * c;
  return tables + options.layers * block + (options.bias ? 2 : 1) * c;
}

/// Initial values are GPT-2's: N(0, 0.02) for weights and tables, 0.02 / sqrt(2 L) for the two
/// projections of a block that add to the stream, ones and zeros for norms and biases. So the first
/// loss is near ln V. Source: Radford et al., 2019, section 2.3; nanoGPT's model.py.
template <class T>
struct Gpt {
  /// What logits are kept in: float, also for 16-bit formats; double in a double model.
  using Logits = numeric::accumulator_t<T>;

  GptOptions options;
  Embedding<T> tokens, positions;
  std::vector<Block<T>> blocks;
  LayerNorm<T> norm;
  std::uint64_t dropout_stream;

  /// Registers "tokens.table", "positions.table", "blocks.0.…" and so on, "norm.…".
  /// @throws OptionError naming what is out of range.
  Gpt(const Scope<T>& scope, const GptOptions& wanted)
      : options(checked(wanted)),
        tokens(scope / "tokens", options.vocabulary, options.width),
        positions(scope / "positions", options.context, options.width),
        blocks(make_blocks(scope / "blocks", options)),
        norm(scope / "norm", options.width, options.bias),
        dropout_stream(core::stream(scope.name(), "dropout")) {}

  /// Rows cannot be longer than this.
  [[nodiscard]] int context() const { return options.context; }

  /// tokens, row after row of the tape's micro-batch -> [rows, positions, width].
  /// @throws ShapeError if a row is longer than the context; DataError for a token out of range.
  [[nodiscard]] Variable<T> embed(Tape& tape, std::span<const std::int32_t> ids) const {
    const auto rows = static_cast<std::size_t>(tape.micro().rows < 1 ? 1 : tape.micro().rows);
    if (ids.size() / rows > static_cast<std::size_t>(options.context)) {
      core::fail<ShapeError>("nn::Gpt: rows of ", ids.size() / rows, " tokens (", ids.size(),
                             " in ", rows, " rows), but the context is ", options.context,
                             ". Cut the text into shorter rows, or build the model with a longer "
                             "context.");
    }
    return dropout(embedding(tape, tokens.table, positions.table, ids), options.dropout,
                   dropout_stream);
  }

  /// x [rows, positions, width] -> logits [rows, positions, vocabulary], of the next token.
  [[nodiscard]] Variable<Logits> head(Variable<T> x) const { return logits(norm(x), tokens.table); }

  /// The loss of these tokens against the next ones, one target for each; -1: none. The bits of
  /// cross_entropy(operator()(…), targets), but logits never exist all at a time.
  [[nodiscard]] Loss loss(Tape& tape, std::span<const std::int32_t> ids,
                          std::span<const std::int32_t> targets) const {
    return loss(body(tape, ids), targets);
  }
  /// The same from what the blocks give: x [rows, positions, width].
  [[nodiscard]] Loss loss(Variable<T> x, std::span<const std::int32_t> targets) const {
    return head_loss(norm(x), tokens.table, targets);
  }

  /// All of it: logits [rows, positions, vocabulary].
  [[nodiscard]] Variable<Logits> operator()(Tape& tape, std::span<const std::int32_t> ids) const {
    return head(body(tape, ids));
  }

 private:
  [[nodiscard]] Variable<T> body(Tape& tape, std::span<const std::int32_t> ids) const {
    Variable<T> x = embed(tape, ids);
    for (const Block<T>& block : blocks) x = block(x);
    return x;
  }
  [[nodiscard]] static const GptOptions& checked(const GptOptions& options) {
    const auto positive = [](const char* name, int value) {
      if (value < 1) core::fail<OptionError>("nn::Gpt: ", name, " is ", value, "; wanted at least 1");
    };
    positive("vocabulary", options.vocabulary);
    positive("context", options.context);
    positive("layers", options.layers);
    positive("heads", options.heads);
    positive("width", options.width);
    return options;
  }

  [[nodiscard]] static std::vector<Block<T>> make_blocks(const Scope<T>& scope,
                                                         const GptOptions& options) {
    const float deviation = 0.02F / std::sqrt(2.0F * static_cast<float>(options.layers));
    std::vector<Block<T>> blocks;
    blocks.reserve(static_cast<std::size_t>(options.layers));
    for (int i = 0; i < options.layers; ++i) {
      blocks.emplace_back(scope / i, BlockOptions{.width = options.width,
                                                  .heads = options.heads,
                                                  .bias = options.bias,
                                                  .dropout = options.dropout,
                                                  .residual_deviation = deviation});
    }
    return blocks;
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
