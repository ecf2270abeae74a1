// SPDX-License-Identifier: MIT
// The tangents of attention, forward and backward: products by the real kernel, 64 queries at a
// time against all keys before them. Private to autograd/ops/; the values themselves are the
// kernels'.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/attention.hpp>
#include <halfstep/kernels/gemm.hpp>
#include <halfstep/numeric/elementary.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd::detail {

/// Tangents of one attention op. Beside scores s, probabilities p and their dropout mask m stand
/// t(s), t(p) = p (t(s) - p . t(s)); the rest is the product rule on kernels/attention.hpp's
/// formulas.
template <class T>
class AttentionTangents {
 public:
  using View = core::MatrixView<const T>;
  static constexpr std::int64_t tile = kernels::attention_tile;

  /// qkv [batch * tokens, 3 * channels]; lse, dropout: the forward's.
  AttentionTangents(const core::Compute& compute, const kernels::AttentionShape& shape,
                    Duals<T> qkv, const T* lse, const kernels::AttentionDropout& dropout,
                    std::span<std::byte> workspace)
      : compute_(compute), s_(shape), qkv_(qkv), lse_(lse), dropout_(dropout) {
    for (T*& part : parts_) {
      part = reinterpret_cast<T*>(workspace.data());
      workspace = workspace.subspan(
          std::min(workspace.size(), static_cast<std::size_t>(part_bytes(shape))));
    }
    products_ = workspace;
  }
  [[nodiscard]] static std::int64_t workspace(const core::Compute& compute,
                                              const kernels::AttentionShape& s) {
    const std::int64_t rows = std::min(tile, s.tokens);
    return 4 * part_bytes(s) +
           std::max({kernels::gemm_workspace<T>(compute, rows, s.tokens, s.width),
                     kernels::gemm_workspace<T>(compute, rows, s.width, s.tokens),
                     kernels::gemm_workspace<T>(compute, s.tokens, s.width, rows)});
  }

  /// out [batch * tokens, channels]: the output's tangents.
  void forward(T* out) {
    each_tile([&](std::int64_t pair, std::int64_t first, std::int64_t rows) {
      scores(pair, first, rows);
      compute_.parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i)
          probabilities(pair, first, rows, i);
      });
      T* const to = out + place(pair, first, s_.channels());
      const std::int64_t keys = first + rows;
      product(part(parts_[1], rows, keys), value(pair, 0, keys, 0), to, s_.channels(), false);
      product(part(parts_[0], rows, keys), value(pair, 0, keys, 1), to, s_.channels(), true);
    });
  }

  /// dqkv: the tangents of qkv's gradient, from that of the output and the output itself.
  void backward(Duals<T> dout, Duals<T> out, T* dqkv) {
    compute_.parallel(s_.rows() * 3 * s_.channels(), 4096,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        std::fill(dqkv + begin, dqkv + end, T(0));
                      });
    const std::int64_t stride = 3 * s_.channels();
    each_tile([&](std::int64_t pair, std::int64_t first, std::int64_t rows) {
      const std::int64_t keys = first + rows;
      const auto upstream = [&](const T* plane) {
        return View{plane + place(pair, first, s_.channels()), rows, s_.width, s_.channels(), 1};
      };
      scores(pair, first, rows);
      product(upstream(dout.values), value(pair, 0, keys, 0).transposed(), parts_[2], keys, false);
      product(upstream(dout.tangents), value(pair, 0, keys, 0).transposed(), parts_[3], keys,
              false);
      product(upstream(dout.values), value(pair, 0, keys, 1).transposed(), parts_[3], keys, true);
      compute_.parallel(rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t at = place(pair, first + i, s_.channels());
          dual<T> along;
          for (std::int64_t d = 0; d < s_.width; ++d)
            along += dout[at + d] * out[at + d];
          slopes(pair, first, rows, i, along);
        }
      });
      const auto left = [&](int p) { return part(parts_[p], rows, keys); };
      T* const base = dqkv + place(pair, first, stride);
      T* const of_keys = dqkv + place(pair, 0, stride) + s_.channels();
      product(left(1), key(pair, 0, keys, 0), base, stride, false);
      product(left(0), key(pair, 0, keys, 1), base, stride, true);
      product(left(1).transposed(), query(pair, first, rows, 0), of_keys, stride, true);
      product(left(0).transposed(), query(pair, first, rows, 1), of_keys, stride, true);
      product(left(3).transposed(), upstream(dout.values), of_keys + s_.channels(), stride, true);
      product(left(2).transposed(), upstream(dout.tangents), of_keys + s_.channels(), stride, true);
    });
  }

 private:
  [[nodiscard]] static std::int64_t part_bytes(const kernels::AttentionShape& s) {
    return core::round_up(
        std::min(tile, s.tokens) * s.tokens * static_cast<std::int64_t>(sizeof(T)), 64);
  }
  /// Of a head's first element in row `token` of an array of that many channels.
  [[nodiscard]] std::int64_t place(std::int64_t pair, std::int64_t token,
                                   std::int64_t stride) const {
    return (pair / s_.heads * s_.tokens + token) * stride + pair % s_.heads * s_.width;
  }
  [[nodiscard]] View packed(std::int64_t pair, std::int64_t first, std::int64_t rows, int plane,
                            std::int64_t which) const {
    const T* const data = plane == 0 ? qkv_.values : qkv_.tangents;
    return {data + place(pair, first, 3 * s_.channels()) + which * s_.channels(), rows, s_.width,
            3 * s_.channels(), 1};
  }
  [[nodiscard]] View query(std::int64_t pair, std::int64_t first, std::int64_t rows,
                           int plane) const {
    return packed(pair, first, rows, plane, 0);
  }
  [[nodiscard]] View key(std::int64_t pair, std::int64_t first, std::int64_t rows,
                         int plane) const {
    return packed(pair, first, rows, plane, 1);
  }
  [[nodiscard]] View value(std::int64_t pair, std::int64_t first, std::int64_t rows,
                           int plane) const {
    return packed(pair, first, rows, plane, 2);
  }
  [[nodiscard]] static View part(const T* data, std::int64_t rows, std::int64_t keys) {
    return {data, rows, keys, keys, 1};
  }
  void product(View a, View b, T* to, std::int64_t stride, bool accumulate) {
    kernels::gemm<T, T>(compute_, a, b, to, stride, {.accumulate = accumulate}, products_);
  }
  template <class F>
  void each_tile(const F& f) {
    for (std::int64_t pair = 0; pair < s_.batch * s_.heads; ++pair) {
      for (std::int64_t first = 0; first < s_.tokens; first += tile)
        f(pair, first, std::min(tile, s_.tokens - first));
    }
  }

  /// Unscaled scores and their tangents to parts 0 and 1, [rows, keys].
  void scores(std::int64_t pair, std::int64_t first, std::int64_t rows) {
    const std::int64_t keys = first + rows;
    product(query(pair, first, rows, 0), key(pair, 0, keys, 0).transposed(), parts_[0], keys,
            false);
    product(query(pair, first, rows, 1), key(pair, 0, keys, 0).transposed(), parts_[1], keys,
            false);
    product(query(pair, first, rows, 0), key(pair, 0, keys, 1).transposed(), parts_[1], keys, true);
  }
  [[nodiscard]] T factor(std::int64_t pair, std::int64_t i, std::int64_t j) const {
    if (dropout_.probability == 0.0F) return T(1);
    const std::int64_t sample = s_.heads * s_.tokens * s_.tokens;
    const auto element = dropout_.first_sample * static_cast<std::uint64_t>(sample) +
                         static_cast<std::uint64_t>((pair * s_.tokens + i) * s_.tokens + j);
    const double share = static_cast<double>(dropout_.probability);
    const bool kept = core::random_bits(dropout_.seed, dropout_.stream, element) >=
                      static_cast<std::uint32_t>(std::ceil(share * 0x1p32));
    return kept ? static_cast<T>(1.0 / (1.0 - share)) : T(0);
  }
  /// Row i of scores becomes probabilities, not dropped: the mask's keys alone; t(s) becomes t(p).
  /// Returns the number of keys that the query sees.
  std::int64_t softmax(std::int64_t pair, std::int64_t first, std::int64_t rows, std::int64_t i) {
    const std::int64_t keys = first + rows, seen = first + i + 1;
    const T scale = T(1) / std::sqrt(static_cast<T>(s_.width));
    T* const p = parts_[0] + i * keys;
    T* const t = parts_[1] + i * keys;
    const T whole = lse_[pair * s_.tokens + first + i];
    T mean{};
    for (std::int64_t j = 0; j < seen; ++j) {
      p[j] = numeric::exp(core::rounded(p[j] * scale) - whole);
      t[j] = core::rounded(t[j] * scale);
      mean += core::rounded(p[j] * t[j]);
    }
    for (std::int64_t j = 0; j < seen; ++j)
      t[j] = p[j] * (t[j] - mean);
    std::fill(p + seen, p + keys, T(0));
    std::fill(t + seen, t + keys, T(0));
    return seen;
  }
  /// Scores of row i and their tangents become what multiplies the values.
  void probabilities(std::int64_t pair, std::int64_t first, std::int64_t rows, std::int64_t i) {
    const std::int64_t keys = first + rows, seen = softmax(pair, first, rows, i);
    for (std::int64_t j = 0; j < seen; ++j) {
      const T kept = factor(pair, first + i, j);
      parts_[0][i * keys + j] *= kept;
      parts_[1][i * keys + j] *= kept;
    }
  }
  /// Parts 0 and 1: scores become ds / sqrt(width) with ds = p (dp - along); parts 2 and 3, dp and
  /// t(dp) before the mask, become what multiplied the values.
  void slopes(std::int64_t pair, std::int64_t first, std::int64_t rows, std::int64_t i,
              dual<T> along) {
    const std::int64_t keys = first + rows, seen = softmax(pair, first, rows, i);
    const dual<T> scale(T(1) / std::sqrt(static_cast<T>(s_.width)));
    T* row[4];
    for (int part = 0; part < 4; ++part)
      row[part] = parts_[part] + i * keys;
    for (std::int64_t j = 0; j < seen; ++j) {
      const dual<T> kept(factor(pair, first + i, j));
      const dual<T> p{row[0][j], row[1][j]};
      const dual<T> ds = p * (kept * dual<T>{row[2][j], row[3][j]} - along) * scale;
      const dual<T> weight = p * kept;
      row[0][j] = ds.value, row[1][j] = ds.tangent;
      row[2][j] = weight.value, row[3][j] = weight.tangent;
    }
    std::fill(row[2] + seen, row[2] + keys, T(0));
    std::fill(row[3] + seen, row[3] + keys, T(0));
  }

  const core::Compute& compute_;
  kernels::AttentionShape s_;
  Duals<T> qkv_;
  const T* lse_;
  kernels::AttentionDropout dropout_;
  T* parts_[4];
  std::span<std::byte> products_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd::detail
