// SPDX-License-Identifier: MIT
// The keys and values of what a GPT has read, so that one more token costs one token: for sampling.
// Not for: training, or rows of several texts at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

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

/// Reads a text token by token and says after each what may come next. The logits are, bit for bit,
/// those of the model's forward pass over all tokens read so far: every row of every op is a chain
/// of its own, and attention_of_last is attention's last row.
///
/// Memory, in the ledger: layers x context x 3 width elements, and a few rows. Work of a token: the
/// products of one row and attention over the tokens before it; those of the head only for the last
/// of the tokens that a call reads.
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
    kept_ = {ledger, core::Category::activations, c * 3 * o.context * o.layers};
    rows_ = {ledger, core::Category::activations, 3 * c + hidden_};
    statistics_ = {ledger, core::Category::activations, 2};
    logits_ = {ledger, core::Category::activations, o.vocabulary};
    const core::Compute compute = runtime_->compute();
    std::int64_t bytes =
        kernels::attention_workspace<T>({1, o.context, o.heads, c / o.heads}, compute.threads());
    const auto product = [&](std::int64_t in, std::int64_t out) {
      bytes = std::max(bytes, kernels::linear_forward_workspace<T>(compute, 1, in, out));
    };
    product(c, 3 * c);
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
  /// @throws StateError if the context is full; DataError for a token out of range, or if there are
  /// none. Those before it are read then.
  [[nodiscard]] std::span<const Logits> read(std::span<const std::int32_t> tokens) {
    if (tokens.empty()) {
      core::fail<DataError>("nn::GptCache: no token is given, so none comes after it. ",
                            "Has the window moved without clear()?");
    }
    for (const std::int32_t token : tokens)
      take(token);
    const auto& o = gpt_->options;
    const std::int64_t c = o.width;
    const core::Compute compute = runtime_->compute();
    const auto [x, y] = first_rows();
    norm(compute, gpt_->norm, x, y);
    const auto table = values(gpt_->tokens.table);
    kernels::linear_forward<T, Logits>(
        compute, row(y.data(), c), core::row_major(table.data(), std::int64_t{o.vocabulary}, c),
        nullptr, row(logits_.data(), o.vocabulary), workspace_.span());
    return logits_.span();
  }
  [[nodiscard]] std::span<const Logits> read(std::int32_t token) { return read({&token, 1}); }

 private:
  /// The stream at the last token, and room for one row more.
  [[nodiscard]] std::pair<std::span<T>, std::span<T>> first_rows() {
    const auto c = static_cast<std::size_t>(gpt_->options.width);
    return {rows_.span().first(c), rows_.span().subspan(c, c)};
  }
  /// The blocks, for one more token.
  void take(std::int32_t token) {
    const auto& o = gpt_->options;
    if (size_ >= o.context) {
      core::fail<StateError>("nn::GptCache: ", size_, " tokens are read, and the context is ",
                             o.context, ". Clear it, and read the last ones again.");
    }
    const core::Compute compute = runtime_->compute();
    const std::int64_t c = o.width, place = size_;
    const auto [x, y] = first_rows();
    const std::span<T> z =
        rows_.span().subspan(static_cast<std::size_t>(2 * c), static_cast<std::size_t>(c));
    const std::span<T> hidden = rows_.span().last(static_cast<std::size_t>(hidden_));
    {
      const auto table = values(gpt_->tokens.table);
      const auto positions = values(gpt_->positions.table);
      kernels::embedding<T>(compute, {&token, 1},
                            {table.data(), static_cast<std::size_t>(o.vocabulary * c)},
                            {positions.data() + place * c, x.size()}, x, c);
    }
    const kernels::AttentionShape shape{1, place + 1, o.heads, c / o.heads};
    for (std::size_t i = 0; i < gpt_->blocks.size(); ++i) {
      const Block<T>& block = gpt_->blocks[i];
      const std::span<T> kept =
          kept_.span().subspan(i * static_cast<std::size_t>(c * 3 * o.context));
      norm(compute, block.norm1, x, y);
      const std::span<T> all = kept.first(static_cast<std::size_t>((place + 1) * 3 * c));
      linear(compute, block.attention.qkv, y, all.last(static_cast<std::size_t>(3 * c)));
      kernels::attention_of_last<T>(compute, shape, all, y, workspace_.span());
      linear(compute, block.attention.out, y, z);
      kernels::add<T>(compute, x, z, x);
      norm(compute, block.norm2, x, y);
      linear(compute, block.up, y, hidden);
      kernels::gelu_forward<T, kernels::GeluForm::tanh>(compute, hidden, hidden);
      linear(compute, block.down, hidden, y);
      kernels::add<T>(compute, x, y, x);
    }
    ++size_;
  }

  [[nodiscard]] tensor::Acquired<T> values(const Parameter<T>& p) const {
    return {store_->store(), p.id};
  }
  template <class S>
  [[nodiscard]] static core::MatrixView<S> row(S* data, std::int64_t width) {
    return core::row_major(data, std::int64_t{1}, width);
  }

  void norm(const core::Compute& compute, const LayerNorm<T>& layer, std::span<const T> x,
            std::span<T> y) {
    const auto gain = values(layer.gain);
    const auto run = [&](std::span<const T> bias) {
      kernels::layer_norm<T>(compute, x, {gain.data(), x.size()}, bias, y,
                             statistics_.span().first(1), statistics_.span().last(1));
    };
    if (layer.bias.store == nullptr) return run({});
    const auto bias = values(layer.bias);
    run({bias.data(), x.size()});
  }

  void linear(const core::Compute& compute, const Linear<T>& layer, std::span<const T> x,
              std::span<T> y) {
    const auto weight = values(layer.weight);
    const auto run = [&](const T* bias) {
      kernels::linear_forward<T, T>(compute, row(x.data(), std::ssize(x)),
                                    core::row_major(weight.data(), std::ssize(y), std::ssize(x)),
                                    bias, row(y.data(), std::ssize(y)), workspace_.span());
    };
    if (layer.bias.store == nullptr) return run(nullptr);
    const auto bias = values(layer.bias);
    run(bias.data());
  }

  const Gpt<T>* gpt_;
  Parameters<T>* store_;
  Runtime* runtime_;
  std::int64_t hidden_ = 0;
  int size_ = 0;
  /// [layers, context, 3 width]: queries, keys and values as the layer gives them.
  tensor::Memory<T> kept_;
  tensor::Memory<T> rows_;
  tensor::Memory<numeric::accumulator_t<T>> statistics_;
  tensor::Memory<Logits> logits_;
  tensor::Memory<std::byte> workspace_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
