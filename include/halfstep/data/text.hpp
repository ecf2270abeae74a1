// SPDX-License-Identifier: MIT
// One text in memory as a dataset: training crops that are a pure function of (seed, global sample
// number), and the held-out tail as windows. Not for: files of tokens (data/shards.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/data/crops.hpp>
#include <halfstep/data/tokenizer.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

struct TextOptions {
  double held_out = 0.1;  ///< fraction of the tokens, at the end, that training never sees; (0, 1)
  TokenizerKind tokenizer = TokenizerKind::character;
  std::uint64_t seed = 0;  ///< of the crops; the tokens do not depend on it
  Order order = Order::random;
};

/// 64-bit FNV-1a: to notice that a run is resumed on another text. Not cryptographic.
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
[[nodiscard]] constexpr std::uint64_t data_hash(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

/// A text, tokenized whole, and split by position: with n tokens, training has the first
/// int(n * (1 - held_out)) (in double), as nanoGPT's prepare.py has, and evaluation the rest.
///
/// The vocabulary is that of the whole text, held-out part included. Immutable; const members may
/// run on several threads at once. Memory: 4 bytes a token.
class Text {
 public:
  /// @throws FileError if the file cannot be read or is empty; OptionError if held_out is not
  /// inside (0, 1); DataError if a given tokenizer does not know a character of the text.
  /// Paths of std::filesystem convert.
  [[nodiscard]] static Text open(const std::string& path, const TextOptions& options = {},
                                 const std::optional<Tokenizer>& tokenizer = std::nullopt) {
    const std::string bytes = core::read_whole_file(path);
    if (bytes.empty()) {
      core::fail<FileError>("Text::open: '", path, "' is empty. Give a file with text in it.");
    }
    return from_string(bytes, options, tokenizer);
  }

  /// As open, of bytes in memory; of no bytes, a DataError.
  [[nodiscard]] static Text from_string(std::string_view bytes, const TextOptions& options = {},
                                        const std::optional<Tokenizer>& tokenizer = std::nullopt) {
    if (!(options.held_out > 0.0 && options.held_out < 1.0)) {
      core::fail<OptionError>("Text: held_out is ", options.held_out,
                              ", but must lie between 0 and 1, both excluded: it is the fraction "
                              "of the text that is kept for evaluation, 0.1 usually.");
    }
    if (bytes.empty()) core::fail<DataError>("Text: the text is empty. Give one with characters.");
    return Text(bytes, options, tokenizer ? *tokenizer : Tokenizer::of(options.tokenizer, bytes));
  }

  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] int vocabulary() const { return tokenizer_.vocabulary(); }
  [[nodiscard]] const TextOptions& options() const { return options_; }
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const std::int32_t> train() const {
    return tokens().first(crops_.split());
  }
  [[nodiscard]] std::span<const std::int32_t> held_out() const {
    return tokens().subspan(crops_.split());
  }
  /// data_hash of the text's bytes.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  /// Bytes of the text; of a part of it, see Tokenizer::count_bytes.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Says early, before a run makes its directory, what batch() and windows() would say late.
  /// @throws DataError if the training part cannot fill one context and its targets, or the
  /// held-out part has nothing to predict; OptionError if length < 1.
  void require_context(int length) const { crops_.require_context(length); }

  /// Samples before Order::epochs has shown each piece once: floor((train - 1) / length).
  /// @throws as require_context for the training part.
  [[nodiscard]] std::int64_t samples_per_epoch(int length) const {
    return crops_.samples_per_epoch(length);
  }

  /// Where in train() the crop of a sample begins: Crops::start_of, a pure function of the seed and
  /// the sample's number. @throws as that.
  [[nodiscard]] std::int64_t start_of(std::int64_t sample, int length) const {
    return static_cast<std::int64_t>(crops_.start_of(sample, length));
  }

  /// Row i is the crop of sample micro.first_sample + i. Allocates only if `out` is too small.
  /// @throws OptionError if the micro-batch has no rows or a negative sample; as require_context
  /// for the training part.
  void batch(const MicroBatch& micro, int length, Batch& out) const {
    crops_.batch(micro, length, out, [this](std::size_t from, std::span<std::int32_t> to) {
      std::copy_n(tokens_.data() + from, to.size(), to.data());
    });
  }
  [[nodiscard]] Batch batch(const MicroBatch& micro, int length) const {
    Batch out;
    batch(micro, length, out);
    return out;
  }

  /// windows_of(held_out(), length). They point into this Text and die with it.
  /// @throws as require_context for the held-out part.
  [[nodiscard]] std::vector<Window> windows(int length) const& {
    require_context(length);
    return windows_of(held_out(), length);
  }
  std::vector<Window> windows(int length) && = delete;

 private:
  Text(std::string_view bytes, const TextOptions& options, Tokenizer tokenizer)
      : options_(options),
        tokenizer_(std::move(tokenizer)),
        tokens_(tokenizer_.encode(bytes)),
        crops_{"Text", tokens_.size(), options.held_out, options.seed, options.order},
        hash_(data_hash(bytes)),
        bytes_(static_cast<std::int64_t>(bytes.size())) {}

  TextOptions options_;
  Tokenizer tokenizer_;
  std::vector<std::int32_t> tokens_;
  Crops crops_;
  std::uint64_t hash_;
  std::int64_t bytes_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
