// SPDX-License-Identifier: MIT
// A table of vectors looked up by number: one row per token of a vocabulary.
// Not for: adding positions, which nn::Gpt does in the same pass.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

template <class T>
struct Embedding {
  Parameter<T> table;  ///< [rows, width]

  /// Registers "table", normal around 0 with the given deviation (GPT-2's by default).
  /// @throws OptionError if a size is below 1.
  Embedding(const Scope<T>& scope, int rows, int width, float deviation = 0.02F)
      : table(scope.add("table", checked(scope, rows, width), Role::embedding,
                        Init::normal(deviation))) {}

  /// tokens, row after row of the tape's micro-batch -> [rows, tokens a row, width].
  /// @throws DataError for a token outside the table, with its place.
  [[nodiscard]] Variable<T> operator()(Tape& tape, std::span<const std::int32_t> tokens) const {
    return embedding(tape, table, tokens);
  }

 private:
  [[nodiscard]] static Shape checked(const Scope<T>& scope, int rows, int width) {
    if (rows < 1 || width < 1) {
      core::fail<OptionError>("nn::Embedding '", scope.name(), "': ", rows, " rows of width ", width,
                              "; both must be at least 1");
    }
    return {rows, width};
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
