// SPDX-License-Identifier: MIT
// One text in memory as a dataset: training crops that are a pure function of (seed, global sample
// number), and the held-out tail as windows. Not for: token files on disk, or computing a loss.
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
#include <halfstep/core/random.hpp>
#include <halfstep/data/tokenizer.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// Which training crop a sample is.
enum class Order {
  random,  ///< any start, drawn with replacement, as nanoGPT draws its batches
  epochs,  ///< the training part cut at multiples of the context, each piece once an epoch
};

struct TextOptions {
  double held_out = 0.1;  ///< fraction of the tokens, at the end, that training never sees; (0, 1)
  TokenizerKind tokenizer = TokenizerKind::character;
  std::uint64_t seed = 0;  ///< of the crops; the tokens do not depend on it
  Order order = Order::random;
};

/// Rows of tokens; targets are the inputs one token on.
struct Batch {
  int rows = 0;
  int length = 0;
  std::vector<std::int32_t> inputs;   ///< [rows, length], row after row
  std::vector<std::int32_t> targets;  ///< [rows, length]
};

/// A piece of a token sequence and what follows each of its tokens. Both point into the sequence.
struct Window {
  std::span<const std::int32_t> inputs;
  std::span<const std::int32_t> targets;
};

/// 64-bit FNV-1a: to notice that a run is resumed on another text. Not cryptographic.
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
[[nodiscard]] constexpr std::uint64_t data_hash(std::string_view bytes) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

/// Tokens cut into consecutive windows of `length`, the last one shorter: every token but the first
/// is a target exactly once, and nothing is padded or repeated. Fewer than two tokens: no window.
/// @throws OptionError if length < 1.
[[nodiscard]] inline std::vector<Window> windows_of(std::span<const std::int32_t> tokens,
                                                    int length) {
  if (length < 1) core::fail<OptionError>("windows_of: length is ", length, ", but must be >= 1");
  std::vector<Window> result;
  const auto step = static_cast<std::size_t>(length);
  for (std::size_t at = 0; at + 1 < tokens.size(); at += step) {
    const std::size_t n = std::min(step, tokens.size() - 1 - at);
    result.push_back({tokens.subspan(at, n), tokens.subspan(at + 1, n)});
  }
  return result;
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
  [[nodiscard]] std::span<const std::int32_t> train() const { return tokens().first(split_); }
  [[nodiscard]] std::span<const std::int32_t> held_out() const {
    return tokens().subspan(split_);
  }
  /// data_hash of the text's bytes.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  /// Bytes of the text; of a part of it, see Tokenizer::count_bytes.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Says early, before a run makes its directory, what batch() and windows() would say late.
  /// @throws DataError if the training part cannot fill one context and its targets, or the
  /// held-out part has nothing to predict; OptionError if length < 1.
  void require_context(int length) const {
    require_training(length);
    if (held_out().size() < 2) {
      core::fail<DataError>("Text: the held-out part has ", held_out().size(), " of ",
                            tokens_.size(), " tokens, but at least 2 are needed, one to see and "
                            "one to predict. Use a longer text or a larger held-out fraction (",
                            options_.held_out, " now).");
    }
  }

  /// Samples before Order::epochs has shown each piece once: floor((train - 1) / length).
  /// @throws as require_context for the training part.
  [[nodiscard]] std::int64_t samples_per_epoch(int length) const {
    require_training(length);
    return (static_cast<std::int64_t>(split_) - 1) / length;
  }

  /// Where in train() the crop of a sample begins: a pure function of (seed, order, length,
  /// sample), so that batch size, accumulation and ranks do not enter, nor does a resume.
  ///
  /// Order::random draws from the train - length starts whose crop and targets fit.
  /// Order::epochs: with n pieces, sample g is piece permutation(g mod n) of epoch g div n; epochs
  /// follow without a seam, and the at most `length` last tokens that fill no piece are not used.
  ///
  /// @throws OptionError for a negative sample; as require_context for the training part.
  [[nodiscard]] std::int64_t start_of(std::int64_t sample, int length) const {
    require_training(length);
    if (sample < 0) core::fail<OptionError>("Text::start_of: sample ", sample, " is negative");
    return start(sample, length);
  }

  /// Row i is the crop of sample micro.first_sample + i. Allocates only if `out` is too small.
  /// @throws OptionError if the micro-batch has no rows or a negative sample; as require_context
  /// for the training part.
  void batch(const MicroBatch& micro, int length, Batch& out) const {
    require_training(length);
    if (micro.rows < 1 || micro.first_sample < 0) {
      core::fail<OptionError>("Text::batch: the micro-batch has ", micro.rows,
                              " rows from sample ", micro.first_sample,
                              ", but needs at least 1 row and no negative sample. Was it made by "
                              "the accumulator's window?");
    }
    const auto width = static_cast<std::size_t>(length);
    const auto size = static_cast<std::size_t>(micro.rows) * width;
    out.rows = micro.rows;
    out.length = length;
    out.inputs.resize(size);
    out.targets.resize(size);
    for (int row = 0; row < micro.rows; ++row) {
      const auto from = train().subspan(
          static_cast<std::size_t>(start(micro.first_sample + row, length)), width + 1);
      const auto to = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * width);
      std::copy(from.begin(), from.end() - 1, out.inputs.begin() + to);
      std::copy(from.begin() + 1, from.end(), out.targets.begin() + to);
    }
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
        split_(static_cast<std::size_t>(static_cast<double>(tokens_.size()) *
                                        (1.0 - options.held_out))),
        hash_(data_hash(bytes)),
        bytes_(static_cast<std::int64_t>(bytes.size())) {}

  void require_training(int length) const {
    if (length < 1) core::fail<OptionError>("Text: a context of ", length, " tokens; wanted >= 1");
    if (split_ < static_cast<std::size_t>(length) + 1) {
      core::fail<DataError>("Text: the training part has ", split_, " of ", tokens_.size(),
                            " tokens, but a context of ", length, " needs at least ",
                            std::int64_t{length} + 1,
                            ". Use a longer text, a shorter context, or a smaller held-out "
                            "fraction (", options_.held_out, " now).");
    }
  }

  [[nodiscard]] std::int64_t start(std::int64_t sample, int length) const {
    const auto g = static_cast<std::uint64_t>(sample);
    const auto width = static_cast<std::uint64_t>(length);
    if (options_.order == Order::random) {
      constexpr std::uint64_t stream = core::stream("data.text", "crop");
      return static_cast<std::int64_t>(
          core::uniform_below(options_.seed, stream, g, split_ - width));
    }
    const std::uint64_t n = (split_ - 1) / width;
    return static_cast<std::int64_t>(core::permutation(options_.seed, g / n, n, g % n) * width);
  }

  TextOptions options_;
  Tokenizer tokenizer_;
  std::vector<std::int32_t> tokens_;
  std::size_t split_;
  std::uint64_t hash_;
  std::int64_t bytes_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
