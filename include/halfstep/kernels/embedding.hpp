// SPDX-License-Identifier: MIT
// Rows of a table by token, a row of positions added: the front of a language model, forward and
// backward. Not for the tied head, which is a linear layer with the same table.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

namespace detail {

struct EmbeddingSizes {
  std::int64_t rows, width, vocabulary, period;  ///< period: rows of the table of positions, or 1
};

/// The sizes behind four lengths, or an error.
[[nodiscard]] inline EmbeddingSizes embedding_sizes(const char* function, std::size_t tokens,
                                                    std::size_t out, std::size_t table,
                                                    std::size_t position, std::int64_t width) {
  const auto w = static_cast<std::size_t>(std::max<std::int64_t>(width, 0));
  if (w == 0 || out != tokens * w || table % w != 0 || position % w != 0) {
    core::fail<ShapeError>(function, ": width ", width, ", ", tokens, " tokens, ", out,
                           " elements of output, ", table, " of the table and ", position,
                           " of positions; the output wants tokens x width, tables whole rows of "
                           "width. Was the model's width changed in one place only?");
  }
  const auto period = position == 0 ? std::size_t{1} : position / w;
  return {static_cast<std::int64_t>(tokens), width, static_cast<std::int64_t>(table / w),
          static_cast<std::int64_t>(period)};
}

inline void check_tokens(const char* function, std::span<const std::int32_t> tokens,
                         std::int64_t vocabulary) {
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (tokens[row] >= 0 && tokens[row] < vocabulary) continue;
    core::fail<DataError>(function, ": token ", tokens[row], " at row ", row, " is not in [0, ",
                          vocabulary,
                          "). Was the text encoded by another tokenizer than the model's?");
  }
}

/// The first v in [0, vocabulary] with starts[v] + v >= item: cuts the rows of the table where the
/// work is, one unit for a row and one for each of its tokens.
[[nodiscard]] inline std::int64_t row_of_item(const std::int32_t* starts, std::int64_t vocabulary,
                                              std::int64_t item) {
  std::int64_t low = 0;
  std::int64_t high = vocabulary;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (starts[middle] + middle >= item) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace detail

/// out[r] = table[tokens[r]] + position[r mod period], rounded once to E; without positions a copy
/// of the table's bits.
///
///   tokens    [rows]               each in [0, vocabulary); checked before anything is written
///   table     [vocabulary, width]
///   position  [period, width]      or empty; period is the context where rows are whole samples
///   out       [rows, width]
///
/// @throws ShapeError if sizes do not fit, DataError for a token out of range.
template <numeric::real_element E>
void embedding(const core::Compute& compute, std::span<const std::int32_t> tokens,
               std::span<const E> table, std::span<const E> position, std::span<E> out,
               std::int64_t width) {
  const auto sizes = detail::embedding_sizes("embedding", tokens.size(), out.size(), table.size(),
                                             position.size(), width);
  detail::check_tokens("embedding", tokens, sizes.vocabulary);
  const auto body = HALFSTEP_PICK(compute.isa, embedding_forward<E>);
  const E* place = position.empty() ? nullptr : position.data();
  compute.parallel(sizes.rows, std::max<std::int64_t>(1, 16384 / width),
                   [&](std::int64_t begin, std::int64_t end, int) {
                     body(tokens.data(), table.data(), place, out.data(), sizes.period, width,
                          begin, end);
                   });
}

/// Bytes of workspace that embedding_backward wants; they need no alignment beyond 4.
[[nodiscard]] inline std::int64_t embedding_workspace(std::int64_t rows, std::int64_t vocabulary) {
  return (rows + vocabulary + 1) * std::int64_t{sizeof(std::int32_t)};
}

/// The gradients of both tables. A row's contributions are summed in ascending order of r from +0,
/// one addition each; the finished sum is stored, or added with one rounding. Rows that no token
/// names become zero, or stay as they are under accumulate.
///
///   tokens     [rows]
///   dout       [rows, width]
///   dtable     [vocabulary, width]  or empty: not wanted
///   dposition  [period, width]      or empty: not wanted
///   workspace  embedding_workspace(rows, vocabulary) bytes; unused without dtable
///
/// Cost: a counting sort of the tokens on the calling thread, then dout is read once for each
/// table. Threads share the table's rows by the number of their tokens.
/// @throws ShapeError if sizes do not fit, DataError for a token out of range.
template <numeric::real_element E>
void embedding_backward(const core::Compute& compute, std::span<const std::int32_t> tokens,
                        std::span<const E> dout, std::span<numeric::accumulator_t<E>> dtable,
                        std::span<numeric::accumulator_t<E>> dposition, std::int64_t width,
                        std::span<std::byte> workspace, bool accumulate = false) {
  const char* function = "embedding_backward";
  const auto sizes = detail::embedding_sizes(function, tokens.size(), dout.size(), dtable.size(),
                                             dposition.size(), width);
  if (!dtable.empty()) {
    detail::check_tokens(function, tokens, sizes.vocabulary);
    const std::int64_t wanted = embedding_workspace(sizes.rows, sizes.vocabulary);
    if (static_cast<std::int64_t>(workspace.size()) < wanted ||
        reinterpret_cast<std::uintptr_t>(workspace.data()) % alignof(std::int32_t) != 0 ||
        wanted > std::numeric_limits<std::int32_t>::max()) {
      core::fail<ShapeError>(function, ": workspace has ", workspace.size(), " bytes; ", wanted,
                             " are wanted, at most 2^31, aligned to 4. Was it sized for another "
                             "batch?");
    }
    auto* starts = reinterpret_cast<std::int32_t*>(workspace.data());
    std::int32_t* order = starts + sizes.vocabulary + 1;
    // Counts, then ends, then walking backwards turns ends into starts and keeps rows ascending.
    std::fill(starts, order, 0);
    for (const std::int32_t token : tokens)
      ++starts[token];
    for (std::int64_t v = 1; v <= sizes.vocabulary; ++v)
      starts[v] += starts[v - 1];
    for (auto row = static_cast<std::int32_t>(sizes.rows) - 1; row >= 0; --row) {
      order[--starts[tokens[static_cast<std::size_t>(row)]]] = row;
    }
    const auto body = HALFSTEP_PICK(compute.isa, embedding_backward_table<E>);
    compute.parallel(sizes.rows + sizes.vocabulary, std::max<std::int64_t>(1, 16384 / width),
                     [&](std::int64_t begin, std::int64_t end, int) {
                       body(order, starts, dout.data(), dtable.data(), accumulate, width,
                            detail::row_of_item(starts, sizes.vocabulary, begin),
                            detail::row_of_item(starts, sizes.vocabulary, end));
                     });
  }
  if (!dposition.empty()) {
    const auto body = HALFSTEP_PICK(compute.isa, embedding_backward_position<E>);
    compute.parallel(sizes.period, 1, [&](std::int64_t begin, std::int64_t end, int) {
      body(dout.data(), dposition.data(), accumulate, sizes.rows, sizes.period, width, begin, end);
    });
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
