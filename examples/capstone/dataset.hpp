// SPDX-License-Identifier: MIT
// What a run trains on: a text, a language generated from a grammar, or files of tokens; with what
// is known of it without a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <halfstep/data/grammar.hpp>
#include <halfstep/data/ngram.hpp>
#include <halfstep/data/shards.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/data/tokenizer.hpp>

#include "options.hpp"

namespace capstone {

/// A text or shards, as fit takes them: one type, so that the loop is compiled once.
class Corpus {
 public:
  explicit Corpus(halfstep::data::Text text)
      : tokenizer_(text.tokenizer()), tokens_(std::move(text)) {}
  explicit Corpus(halfstep::data::Shards shards)
      : tokenizer_(halfstep::data::Tokenizer::numbers(shards.vocabulary())),
        tokens_(std::move(shards)) {}

  void require_context(int length) const {
    std::visit([&](const auto& tokens) { tokens.require_context(length); }, tokens_);
  }
  void batch(const halfstep::MicroBatch& micro, int length, halfstep::data::Batch& out) const {
    std::visit([&](const auto& tokens) { tokens.batch(micro, length, out); }, tokens_);
  }
  [[nodiscard]] halfstep::data::Batch batch(const halfstep::MicroBatch& micro, int length) const {
    halfstep::data::Batch out;
    batch(micro, length, out);
    return out;
  }
  [[nodiscard]] std::span<const std::int32_t> held_out() const {
    return std::visit(
        [](const auto& tokens) -> std::span<const std::int32_t> { return tokens.held_out(); },
        tokens_);
  }
  [[nodiscard]] const halfstep::data::Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] int vocabulary() const { return tokenizer_.vocabulary(); }
  [[nodiscard]] std::uint64_t hash() const {
    return std::visit([](const auto& tokens) { return tokens.hash(); }, tokens_);
  }
  [[nodiscard]] std::size_t train_size() const {
    const auto* text = std::get_if<halfstep::data::Text>(&tokens_);
    return text != nullptr ? text->train().size()
                           : std::get<halfstep::data::Shards>(tokens_).train_size();
  }
  [[nodiscard]] std::size_t size() const { return train_size() + held_out().size(); }

 private:
  halfstep::data::Tokenizer tokenizer_;
  std::variant<halfstep::data::Text, halfstep::data::Shards> tokens_;
};

struct Dataset {
  std::string bytes;  ///< of the text; empty for files of tokens
  Corpus text;
  std::size_t split_bytes = 0;                       ///< where the held-out part begins
  std::optional<halfstep::data::Grammar> grammar{};  ///< of a generated language
};

[[nodiscard]] inline halfstep::data::Order order_of(const Options& options) {
  return options.order == "epochs" ? halfstep::data::Order::epochs : halfstep::data::Order::random;
}

[[nodiscard]] inline halfstep::data::Shards open_shards(const Options& options) {
  using Format = halfstep::data::ShardFormat;
  const Format format = options.tokenizer == "llmc"     ? Format::llm_c
                        : options.tokenizer == "uint16" ? Format::raw16
                                                        : Format::raw32;
  return halfstep::data::Shards(shard_files(options), {.format = format,
                                                       .vocabulary = options.vocabulary,
                                                       .held_out = options.held_out,
                                                       .seed = options.seed,
                                                       .order = order_of(options)});
}

/// @throws FileError, DataError, OptionError, saying what to do; nothing is written.
[[nodiscard]] inline Dataset load_dataset(
    const Options& options,
    const std::optional<halfstep::data::Tokenizer>& tokenizer = std::nullopt) {
  namespace data = halfstep::data;
  if (reads_shards(options)) {
    Dataset dataset{.bytes = {}, .text = Corpus(open_shards(options))};
    dataset.text.require_context(options.context);
    return dataset;
  }
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
  const data::TextOptions text_options{.held_out = options.held_out,
                                       .tokenizer = options.tokenizer == "byte"
                                                        ? data::TokenizerKind::byte
                                                        : data::TokenizerKind::character,
                                       .seed = options.seed,
                                       .order = order_of(options)};
  data::Text text = data::Text::from_string(bytes, text_options, tokenizer);
  text.require_context(options.context);
  const auto split = static_cast<std::size_t>(text.tokenizer().count_bytes(text.train()));
  return {std::move(bytes), Corpus(std::move(text)), split, std::move(grammar)};
}

/// Bits a byte of order 4, over bytes, on the run's split; 0 for files of tokens, whose bytes
/// nobody knows.
[[nodiscard]] inline double ngram_of(const Dataset& dataset) {
  if (dataset.bytes.empty()) return 0.0;
  return halfstep::data::held_out_ngram(dataset.bytes, dataset.split_bytes, 4).bits_per_byte();
}

}  // namespace capstone
