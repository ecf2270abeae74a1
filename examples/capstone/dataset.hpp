// SPDX-License-Identifier: MIT
// The text of a run: a file, or a language generated from a grammar, with what is known of it
// without a model.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <halfstep/data/grammar.hpp>
#include <halfstep/data/ngram.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/data/tokenizer.hpp>

#include "options.hpp"

namespace capstone {

struct Dataset {
  std::string bytes;
  halfstep::data::Text text;
  std::size_t split_bytes;                          ///< where the held-out part begins
  std::optional<halfstep::data::Grammar> grammar;   ///< of a generated language
};

/// @throws FileError, DataError, OptionError, saying what to do; nothing is written.
[[nodiscard]] inline Dataset load_dataset(
    const Options& options, const std::optional<halfstep::data::Tokenizer>& tokenizer = std::nullopt) {
  namespace data = halfstep::data;
  std::optional<data::Grammar> grammar;
  std::string bytes;
  if (options.data == "grammar") {
    grammar = data::Grammar::sentences();
    // The language is the same for every seed of the run, so that seeds can be compared.
    bytes = grammar->generate(1, std::size_t{1} << 20);
  } else {
    bytes = halfstep::core::read_whole_file(options.data);
    if (bytes.empty()) {
      halfstep::core::fail<halfstep::FileError>("--data '", options.data,
                                                "' is empty. Give a file with text in it.");
    }
  }
  const data::TextOptions text_options{
      .held_out = options.held_out,
      .tokenizer = options.tokenizer == "byte" ? data::TokenizerKind::byte
                                               : data::TokenizerKind::character,
      .seed = options.seed};
  data::Text text = data::Text::from_string(bytes, text_options, tokenizer);
  text.require_context(options.context);
  const auto split = static_cast<std::size_t>(text.tokenizer().count_bytes(text.train()));
  return {std::move(bytes), std::move(text), split, std::move(grammar)};
}

/// Of order 4, over bytes, on the run's split.
[[nodiscard]] inline halfstep::data::NgramScore ngram_of(const Dataset& dataset) {
  return halfstep::data::held_out_ngram(dataset.bytes, dataset.split_bytes, 4);
}

}  // namespace capstone
