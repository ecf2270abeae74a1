// SPDX-License-Identifier: MIT
// Causal self-attention over packed queries, keys and values, forward and backward, in memory
// linear in the number of tokens: probabilities are never stored. Not for the projections around
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/detail/dropout_mask.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// Sizes of one call. Channels are heads * width.
struct AttentionShape {
  std::int64_t batch = 0;   ///< sequences
  std::int64_t tokens = 0;  ///< of a sequence
  std::int64_t heads = 0;
  std::int64_t width = 0;  ///< of a head

  [[nodiscard]] constexpr std::int64_t rows() const { return batch * tokens; }
  [[nodiscard]] constexpr std::int64_t channels() const { return heads * width; }
};

/// Dropout of the probabilities, as GPT-2's attn_pdrop. The element of (sequence b, head h,
/// query i, key j) in the random stream is ((first_sample + b) * heads + h) * tokens^2 + i * tokens
/// + j, so threads, tiles and micro-batches do not show in the mask and nothing is saved for the
/// backward.
struct AttentionDropout {
  float probability = 0.0F;  ///< in [0, 1), taken to the next multiple of 2^-32; 0: none
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;        ///< the layer's: see core::stream
  std::uint64_t first_sample = 0;  ///< number of sequence 0 in the whole run
};

/// Queries and keys of a tile. The running maximum rescales once a tile, so it shows in the bits
/// and is a part of the definition.
inline constexpr std::int64_t attention_tile = 64;

namespace detail {

/// Where a worker's parts lie in its share of the workspace, in elements of the accumulator type.
struct AttentionLayout {
  std::int64_t tokens, heads, width;
  std::int64_t padded;  ///< width, in whole vectors
  std::int64_t tiles;   ///< of queries, of a sequence
  std::int64_t keys = 0, values = 0, key_rows = 0, key_gradients = 0, value_gradients = 0;
  std::int64_t queries = 0, output = 0, query_gradients = 0, scores = 0, slopes = 0, rows = 0;
  std::int64_t size = 0;

  constexpr AttentionLayout(const AttentionShape& s, bool backward)
      : tokens(s.tokens),
        heads(s.heads),
        width(s.width),
        padded(core::round_up(s.width, 16)),
        tiles(core::divide_up(s.tokens, attention_tile)) {
    constexpr std::int64_t tile = attention_tile;
    const auto take = [this](std::int64_t& at, std::int64_t elements) {
      at = size;
      size += core::round_up(elements, 16);
    };
    take(keys, tiles * tile * width);
    if (backward) {
      take(values, tiles * tile * width);
      take(key_rows, tokens * padded);
      take(key_gradients, tokens * padded);
      take(value_gradients, tokens * padded);
      take(query_gradients, tile * padded);
      take(slopes, tile * tile);
    } else {
      take(values, tokens * padded);
    }
    take(queries, tile * padded);
    take(output, tile * padded);
    take(scores, tile * tile);
    take(rows, 4 * tile);
  }
};

inline void check_attention(const char* function, const AttentionShape& s, std::size_t qkv,
                            std::size_t out, std::size_t lse) {
  if (s.batch < 0 || s.tokens < 1 || s.heads < 1 || s.width < 1) {
    core::fail<ShapeError>(function, ": batch ", s.batch, ", tokens ", s.tokens, ", heads ",
                           s.heads, ", width of a head ", s.width,
                           "; each wants at least 1 (batch 0). Is the model's width below its "
                           "number of heads?");
  }
  const auto rows = static_cast<std::size_t>(s.rows());
  const auto channels = static_cast<std::size_t>(s.channels());
  if (qkv != 3 * rows * channels || out != rows * channels ||
      lse != rows * static_cast<std::size_t>(s.heads)) {
    core::fail<ShapeError>(function, ": qkv has ", qkv, " elements, out ", out, " and lse ", lse,
                           "; batch ", s.batch, " x tokens ", s.tokens, " x heads ", s.heads,
                           " x width ", s.width, " wants ", 3 * rows * channels, ", ",
                           rows * channels, " and ", rows * static_cast<std::size_t>(s.heads),
                           ". Does the projection in front make three times the channels?");
  }
}

template <class A>
[[nodiscard]] std::int64_t attention_bytes(const AttentionLayout& layout, int threads) {
  return layout.size * std::int64_t{sizeof(A)} * threads + core::round_up(alignof(A), 64);
}

template <class A>
[[nodiscard]] DropoutMask<A> attention_mask(const core::Compute& compute, const char* function,
                                            const AttentionShape& s, const AttentionDropout& d) {
  if (d.probability == 0.0F) return {};
  const auto of_a_sample = static_cast<std::uint64_t>(s.heads * s.tokens * s.tokens);
  return dropout_mask<A>(compute, function, d.probability, d.seed, d.stream,
                         d.first_sample * of_a_sample);
}

/// The workspace's first element on a cache line.
template <class A>
[[nodiscard]] A* attention_memory(const char* function, const AttentionLayout& layout, int threads,
                                  std::span<std::byte> workspace) {
  const std::int64_t wanted = attention_bytes<A>(layout, threads);
  if (static_cast<std::int64_t>(workspace.size()) < wanted) {
    core::fail<ShapeError>(function, ": workspace has ", workspace.size(), " bytes; ", threads,
                           " threads and ", layout.tokens, " tokens want ", wanted,
                           ". Was it sized for another path, pool or shape?");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
  return reinterpret_cast<A*>(workspace.data() + (64 - address % 64) % 64);
}

}  // namespace detail

/// Bytes of workspace for that many threads: linear in tokens, independent of the batch. Forward:
/// keys and values of one head for each thread.
template <numeric::real_element E>
[[nodiscard]] std::int64_t attention_workspace(const AttentionShape& shape, int threads) {
  return detail::attention_bytes<numeric::accumulator_t<E>>({shape, false}, threads);
}
/// Backward: five times one head's rows for each thread.
template <numeric::real_element E>
[[nodiscard]] std::int64_t attention_backward_workspace(const AttentionShape& shape, int threads) {
  return detail::attention_bytes<numeric::accumulator_t<E>>({shape, true}, threads);
}

/// Multiplications and additions of the two products over the pairs that the mask leaves.
[[nodiscard]] constexpr std::int64_t attention_flops(const AttentionShape& s) {
  return 2 * s.batch * s.channels() * s.tokens * (s.tokens + 1);
}
/// Likewise of the five products of the backward, the scores computed again among them.
[[nodiscard]] constexpr std::int64_t attention_backward_flops(const AttentionShape& s) {
  return 5 * s.batch * s.channels() * s.tokens * (s.tokens + 1);
}

/// out = softmax(q k^T / sqrt(width), over keys no later than the query) v, for each head.
///
///   qkv        [batch * tokens, 3 * channels]  queries, keys, values; head h at columns h * width
///   out        [batch * tokens, channels]
///   lse        [batch, heads, tokens]  written, for the backward: log of the sum of exp(score)
///   workspace  attention_workspace<E>(shape, compute.threads()) bytes, any alignment
///
/// Definition, per query i, over tiles of 64 keys from key 0 on, the last one ending at key i:
/// scores s[j] = (chain of fma over the width from +0, in pairs for bf16) * (1 / sqrt(width));
/// m' = max(m, s[j]…), p[j] = exp(s[j] - m'), key j of the tile in lane j mod 16 of their sum t;
/// with a = exp(m - m') the sum becomes fma(sum, a, t) and each output o * a (in the first tile t
/// and +0), then o's chain goes on over the tile's p[j] rounded to E times v[j], in pairs for bf16.
/// out = o / sum, rounded once to E; lse = m + log(sum).
///
/// With dropout p[j] is, after it was summed and before it is rounded to E, multiplied by
/// 1 / (1 - probability) (rounded to the accumulator's type) where its mask keeps it, else +0: see
/// AttentionDropout and kernels/dropout.hpp. So lse is that of all keys. In fp16 a probability
/// above 1 - 2^-16 overflows.
///
/// Keys after the query are not read, so neither they nor what a NaN makes of them can reach it.
/// Threads share (sequence, head, tile of queries). Counts attention_flops.
/// Source: Dao, "FlashAttention-2", 2023, algorithm 1. Differs: 64 x 64 tiles clipped exactly.
/// @throws ShapeError if sizes do not fit or the workspace is too small, OptionError if the
/// probability is not in [0, 1).
template <numeric::real_element E>
void attention(const core::Compute& compute, const AttentionShape& shape, std::span<const E> qkv,
               std::span<E> out, std::span<numeric::accumulator_t<E>> lse,
               std::span<std::byte> workspace, const AttentionDropout& dropout = {}) {
  using A = numeric::accumulator_t<E>;
  detail::check_attention("attention", shape, qkv.size(), out.size(), lse.size());
  const core::PhaseScope phase(compute.counters, core::Phase::attention);
  const detail::AttentionLayout layout(shape, false);
  A* work = detail::attention_memory<A>("attention", layout, compute.threads(), workspace);
  using Mask = detail::DropoutMask<A>;
  const Mask mask = detail::attention_mask<A>(compute, "attention", shape, dropout);
  const Mask* const drops = mask.threshold == 0 ? nullptr : &mask;
  const auto body = HALFSTEP_PICK(compute.isa, attention_forward<E, detail::AttentionLayout, Mask>);
  compute.share(shape.batch * shape.heads * layout.tiles, 1,
                [&](std::int64_t begin, std::int64_t end, int worker) {
                  body(layout, drops, qkv.data(), out.data(), lse.data(),
                       work + worker * layout.size, begin, end);
                });
  if (compute.counters != nullptr) {
    compute.counters->flops += static_cast<std::uint64_t>(attention_flops(shape));
  }
}

/// The rows of attention's `out` that belong to the last tokens of each sequence, bit for bit, and
/// nothing else: with keys and values kept from the tokens before, what some more tokens cost.
///
///   queries      [batch, last, channels]  of the last tokens, from 1 to all
///   keys_values  [batch * tokens, 2 * channels]  of every token
///   out          [batch, last, channels]  may be queries
///   workspace    attention_workspace<E>(shape, compute.threads()) bytes, any alignment
///
/// Threads share (sequence, head). Counts 4 x channels operations for each pair of a query and a
/// key no later than it.
/// @throws ShapeError if sizes do not fit or the workspace is too small.
template <numeric::real_element E>
void attention_of_last(const core::Compute& compute, const AttentionShape& shape,
                       std::span<const E> queries, std::span<const E> keys_values, std::span<E> out,
                       std::span<std::byte> workspace) {
  using A = numeric::accumulator_t<E>;
  const char* function = "attention_of_last";
  const std::int64_t all = shape.rows() * shape.channels();
  const std::int64_t row = shape.batch * shape.channels();
  const std::int64_t last = row == 0 ? 1 : std::ssize(queries) / row;
  detail::check_attention(function, shape, static_cast<std::size_t>(3 * all),
                          static_cast<std::size_t>(all),
                          static_cast<std::size_t>(shape.rows() * shape.heads));
  if (std::ssize(keys_values) != 2 * all || std::ssize(queries) != last * row ||
      queries.size() != out.size() || last < 1 || last > shape.tokens) {
    core::fail<ShapeError>(function, ": queries have ", queries.size(), " elements, keys_values ",
                           keys_values.size(), " and out ", out.size(), "; batch ", shape.batch,
                           " x tokens ", shape.tokens, " x channels ", shape.channels(),
                           " wants keys_values of ", 2 * all, ", and queries and out of ", row,
                           " for each of 1 to all tokens. Are the queries' own keys there?");
  }
  const core::PhaseScope phase(compute.counters, core::Phase::attention);
  const detail::AttentionLayout layout(shape, false);
  A* work = detail::attention_memory<A>(function, layout, compute.threads(), workspace);
  const auto body = HALFSTEP_PICK(compute.isa, attention_of_last<E, detail::AttentionLayout>);
  compute.share(shape.batch * shape.heads, 1,
                [&](std::int64_t begin, std::int64_t end, int worker) {
                  body(layout, last, queries.data(), keys_values.data(), out.data(),
                       work + worker * layout.size, begin, end);
                });
  if (compute.counters != nullptr) {
    const std::int64_t pairs = last * shape.tokens - last * (last - 1) / 2;
    compute.counters->flops += static_cast<std::uint64_t>(4 * row * pairs);
  }
}

/// The gradient of qkv from that of out.
///
///   dout, out  [batch * tokens, channels]      out and lse from the forward
///   dqkv       [batch * tokens, 3 * channels]  overwritten; may be qkv
///   workspace  attention_backward_workspace<E>(shape, compute.threads()) bytes, any alignment
///
/// Definition: d[i] = sum of dout * out over the width (fma, column in lane column mod 16);
/// p = exp(s - lse), dp = dout . v, ds = (p * (dp - d)) / sqrt(width); dq = ds k, dk = ds^T q,
/// dv = p^T dout with ds and p rounded to E: each element one chain from +0, keys or queries
/// ascending (in pairs for bf16), rounded once to E. Tiles do not show.
///
/// With dropout, which is to be the forward's: p in dv is dropped as there, dp is multiplied by
/// 1 / (1 - probability) where the mask keeps it, else +0; p in ds is whole.
///
/// Threads share (sequence, head), so one sequence with one head runs on one thread.
/// Counts attention_backward_flops.
/// @throws ShapeError if sizes do not fit or the workspace is too small, OptionError if the
/// probability is not in [0, 1).
template <numeric::real_element E>
void attention_backward(const core::Compute& compute, const AttentionShape& shape,
                        std::span<const E> dout, std::span<const E> out, std::span<const E> qkv,
                        std::span<const numeric::accumulator_t<E>> lse, std::span<E> dqkv,
                        std::span<std::byte> workspace, const AttentionDropout& dropout = {}) {
  using A = numeric::accumulator_t<E>;
  const char* function = "attention_backward";
  detail::check_attention(function, shape, qkv.size(), out.size(), lse.size());
  detail::check_attention(function, shape, dqkv.size(), dout.size(), lse.size());
  const core::PhaseScope phase(compute.counters, core::Phase::attention);
  const detail::AttentionLayout layout(shape, true);
  A* work = detail::attention_memory<A>(function, layout, compute.threads(), workspace);
  using Mask = detail::DropoutMask<A>;
  const Mask mask = detail::attention_mask<A>(compute, function, shape, dropout);
  const Mask* const drops = mask.threshold == 0 ? nullptr : &mask;
  using Layout = detail::AttentionLayout;
  const auto body = HALFSTEP_PICK(compute.isa, attention_backward<E, Layout, Mask>);
  compute.share(shape.batch * shape.heads, 1,
                [&](std::int64_t begin, std::int64_t end, int worker) {
                  body(layout, drops, dout.data(), out.data(), qkv.data(), lse.data(), dqkv.data(),
                       work + worker * layout.size, begin, end);
                });
  if (compute.counters != nullptr) {
    compute.counters->flops += static_cast<std::uint64_t>(attention_backward_flops(shape));
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
