// SPDX-License-Identifier: MIT
// The keys and values of what a GPT has read, so that one more token costs one token: for sampling.
// Not for: training, or rows of several texts at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/attention.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/embedding.hpp>
#include <halfstep/kernels/gelu.hpp>
#include <halfstep/kernels/layer_norm.hpp>
#include <halfstep/kernels/linear.hpp>
#include <halfstep/nn/block.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

/// Reads a text, a token or a prompt at a time, and says what may come next. The logits are, bit
/// for bit, those of the model's forward pass over all tokens read so far: every row of every op is
/// a chain of its own, and attention_of_last gives attention's last rows.
///
/// Memory, in the ledger: layers x context x 2 width elements, and the intermediate
/// values of one block for at most 64 tokens: a prompt goes through the blocks so many at a time.
/// Work of a token: the products of one row and attention over the tokens before it; those of the
/// head only for the last of the tokens that a call reads.
template <numeric::real_element T>
class GptCache {
 public:
  using Logits = typename Gpt<T>::Logits;

  /// The Gpt and its store must outlive it. Weights that change in between are not noticed:
  /// clear().
  explicit GptCache(const Gpt<T>& gpt)
      : gpt_(&gpt), store_(gpt.tokens.table.store), runtime_(&store_->runtime()) {
    store_->lay_out();  // as a tape does that begins
    const auto& o = gpt.options;
    auto& ledger = runtime_->ledger();
    const std::int64_t c = o.width;
    hidden_ = gpt.blocks.front().up.weight.shape()[0];
    together_ = std::min<std::int64_t>(o.context, 64);
    kept_ = {ledger, core::Category::activations, c * 2 * o.context * o.layers};
    rows_ = {ledger, core::Category::activations, (3 * c + hidden_) * together_};
    statistics_ = {ledger, core::Category::activations, 2 * together_};
    logits_ = {ledger, core::Category::activations, o.vocabulary};
    const core::Compute compute = runtime_->compute();
    std::int64_t bytes =
        kernels::attention_workspace<T>({1, o.context, o.heads, c / o.heads}, compute.threads());
    const auto product = [&](std::int64_t in, std::int64_t out) {
      bytes = std::max(bytes, kernels::linear_forward_workspace<T>(compute, together_, in, out));
    };
    product(c, 2 * c);
    product(c, hidden_);
    product(hidden_, c);
    product(c, o.vocabulary);
    workspace_ = {ledger, core::Category::workspace, bytes};
  }

  /// Tokens read.
  [[nodiscard]] int size() const { return size_; }
  /// Forgets them all.
  void clear() { size_ = 0; }

  /// Reads more tokens; the logits of the one after them, valid until the next call.
  /// @throws StateError if the context has no room for them; DataError for a token out of range, or
  /// if there are none. None is read then.
  [[nodiscard]] std::span<const Logits> read(std::span<const std::int32_t> tokens) {
    const auto& o = gpt_->options;
    if (tokens.empty()) {
      core::fail<DataError>("nn::GptCache: no token is given, so none comes after it. ",
                            "Has the window moved without clear()?");
    }
    if (std::ssize(tokens) > o.context - size_) {
      core::fail<StateError>("nn::GptCache: ", size_, " tokens are read, ", tokens.size(),
                             " more are given, and the context is ", o.context,
                             ". Clear it, and read the last ones again.");
    }
    std::int64_t place = size_, rows = 0;
    for (; !tokens.empty(); tokens = tokens.subspan(static_cast<std::size_t>(rows))) {
      rows = std::min(together_, std::ssize(tokens));
      take(tokens.first(static_cast<std::size_t>(rows)), place);
      place += rows;
    }
    size_ = static_cast<int>(place);
    const std::int64_t c = o.width;
    const core::Compute compute = runtime_->compute();
    const std::span<T> last = scratch(0, rows).last(static_cast<std::size_t>(c));
    const std::span<T> y = scratch(1, 1);
    norm(compute, gpt_->norm, last, y);
    const auto table = values(gpt_->tokens.table);
    product<Logits>(compute, y, 1, table.data(), nullptr, logits_.span());
    return logits_.span();
  }
  [[nodiscard]] std::span<const Logits> read(std::int32_t token) { return read({&token, 1}); }

 private:
  /// Room for some rows of the model's width: 0 is the stream.
  [[nodiscard]] std::span<T> scratch(std::int64_t number, std::int64_t rows) {
    const std::int64_t c = gpt_->options.width;
    return rows_.span().subspan(static_cast<std::size_t>(number * together_ * c),
                                static_cast<std::size_t>(rows * c));
  }
  /// The blocks, for more tokens, which stand from `place` on.
  void take(std::span<const std::int32_t> tokens, std::int64_t place) {
    const auto& o = gpt_->options;
    const core::Compute compute = runtime_->compute();
    const std::int64_t c = o.width, rows = std::ssize(tokens);
    const std::span<T> x = scratch(0, rows), y = scratch(1, rows), z = scratch(2, rows);
    const std::span<T> hidden = rows_.span().subspan(static_cast<std::size_t>(3 * together_ * c),
                                                     static_cast<std::size_t>(rows * hidden_));
    {
      const auto table = values(gpt_->tokens.table);
      const auto positions = values(gpt_->positions.table);
      kernels::embedding<T>(compute, tokens,
                            {table.data(), static_cast<std::size_t>(o.vocabulary * c)},
                            {positions.data() + place * c, x.size()}, x, c);
    }
    const kernels::AttentionShape shape{1, place + rows, o.heads, c / o.heads};
    for (std::size_t i = 0; i < gpt_->blocks.size(); ++i) {
      const Block<T>& block = gpt_->blocks[i];
      const std::span<T> kept = kept_.span()
                                    .subspan(i * static_cast<std::size_t>(c * 2 * o.context))
                                    .first(static_cast<std::size_t>((place + rows) * 2 * c));
      norm(compute, block.norm1, x, y);
      linear(compute, block.attention.qkv, y, rows, z, 0);
      linear(compute, block.attention.qkv, y, rows,
             kept.last(static_cast<std::size_t>(rows * 2 * c)), c);
      kernels::attention_of_last<T>(compute, shape, z, kept, z, workspace_.span());
      linear(compute, block.attention.out, z, rows, y);
      kernels::add<T>(compute, x, y, x);
      norm(compute, block.norm2, x, y);
      linear(compute, block.up, y, rows, hidden);
      kernels::gelu_forward<T, kernels::GeluForm::tanh>(compute, hidden, hidden);
      linear(compute, block.down, hidden, rows, y);
      kernels::add<T>(compute, x, y, x);
    }
  }

  [[nodiscard]] tensor::Acquired<T> values(const Parameter<T>& p) const {
    return {store_->store(), p.id};
  }
  void norm(const core::Compute& compute, const LayerNorm<T>& layer, std::span<const T> x,
            std::span<T> y) {
    const auto c = static_cast<std::size_t>(gpt_->options.width);
    const auto gain = values(layer.gain);
    const auto run = [&](std::span<const T> bias) {
      kernels::layer_norm<T>(compute, x, {gain.data(), c}, bias, y,
                             statistics_.span().first(x.size() / c),
                             statistics_.span().last(x.size() / c));
    };
    if (layer.bias.store == nullptr) return run({});
    const auto bias = values(layer.bias);
    run({bias.data(), c});
  }

  /// y [rows, out] = x [rows, in] W^T + bias, or as many of the layer's outputs as y has columns,
  /// from `first` on.
  void linear(const core::Compute& compute, const Linear<T>& layer, std::span<const T> x,
              std::int64_t rows, std::span<T> y, std::int64_t first = 0) {
    const auto weight = values(layer.weight);
    const T* const from = weight.data() + first * (std::ssize(x) / rows);
    if (layer.bias.store == nullptr) return product<T>(compute, x, rows, from, nullptr, y);
    const auto bias = values(layer.bias);
    product<T>(compute, x, rows, from, bias.data() + first, y);
  }
  template <class C>
  void product(const core::Compute& compute, std::span<const T> x, std::int64_t rows,
               const T* weight, const T* bias, std::span<C> y) {
    const std::int64_t in = std::ssize(x) / rows, out = std::ssize(y) / rows;
    kernels::linear_forward<T, C>(compute, core::row_major(x.data(), rows, in),
                                  core::row_major(weight, out, in), bias,
                                  core::row_major(y.data(), rows, out), workspace_.span());
  }

  const Gpt<T>* gpt_;
  Parameters<T>* store_;
  Runtime* runtime_;
  std::int64_t hidden_ = 0;
  std::int64_t together_ = 0;  ///< tokens that go through the blocks at a time, at most
  int size_ = 0;
  /// [layers, context, 2 width]: keys and values as the layer gives them.
  tensor::Memory<T> kept_;
  tensor::Memory<T> rows_;
  tensor::Memory<numeric::accumulator_t<T>> statistics_;
  tensor::Memory<Logits> logits_;
  tensor::Memory<std::byte> workspace_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
