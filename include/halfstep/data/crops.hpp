// SPDX-License-Identifier: MIT
// Which piece of a token sequence is training sample g, as a pure function of (seed, g), and how a
// sequence is cut for evaluation: what texts and shards share. Not for: where the tokens lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/random.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// Which training crop a sample is.
enum class Order {
  random,  ///< any start, drawn with replacement, as nanoGPT draws its batches
  epochs,  ///< the training part cut at multiples of the context, each piece once an epoch
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
  std::size_t seen = 0;  ///< targets at the front that the window before has as well
};

/// Tokens cut into windows of `length`, the last one shorter, that begin `stride` apart (0:
/// `length`, so that none overlap). Every token but the first is a target exactly once, those that
/// are `seen` aside, and nothing is padded. Fewer than two tokens: no window.
/// @throws OptionError if length < 1, or stride is negative or above length.
[[nodiscard]] inline std::vector<Window> windows_of(std::span<const std::int32_t> tokens,
                                                    int length, int stride = 0) {
  if (length < 1) core::fail<OptionError>("windows_of: length is ", length, ", but must be >= 1");
  if (stride < 0 || stride > length) {
    core::fail<OptionError>("windows_of: windows of ", length, " tokens begin ", stride,
                            " apart; wanted 1 to ", length, ", or 0 for no overlap.");
  }
  std::vector<Window> result;
  const auto longest = static_cast<std::size_t>(length);
  const std::size_t step = stride == 0 ? longest : static_cast<std::size_t>(stride);
  for (std::size_t at = 0, end = 0; end + 1 < tokens.size(); at += step) {
    const std::size_t n = std::min(longest, tokens.size() - 1 - at);
    result.push_back({tokens.subspan(at, n), tokens.subspan(at + 1, n), end - at});
    end = at + n;
  }
  return result;
}

/// `total` tokens split by position, and the crops of the first part. With n tokens training has
/// the first int(n * (1 - held_out)) (in double), as nanoGPT's prepare.py has, and evaluation the
/// rest. 64-bit positions throughout.
struct Crops {
  std::string_view name;  ///< of the dataset, for messages
  std::size_t total = 0;
  double held_out = 0.1;
  std::uint64_t seed = 0;
  Order order = Order::random;

  [[nodiscard]] std::size_t split() const {
    return static_cast<std::size_t>(static_cast<double>(total) * (1.0 - held_out));
  }

  /// @throws DataError if the training part cannot fill one context and its targets; OptionError if
  /// length < 1.
  void require_training(int length) const {
    if (length < 1) {
      core::fail<OptionError>(name, ": a context of ", length, " tokens; wanted >= 1");
    }
    if (split() < static_cast<std::size_t>(length) + 1) {
      core::fail<DataError>(name, ": the training part has ", split(), " of ", total,
                            " tokens, but a context of ", length, " needs at least ",
                            std::int64_t{length} + 1,
                            ". Use a longer text, a shorter context, or a smaller held-out "
                            "fraction (",
                            held_out, " now).");
    }
  }
  /// The same, and DataError if the held-out part has nothing to predict.
  void require_context(int length) const {
    require_training(length);
    if (total - split() < 2) {
      core::fail<DataError>(name, ": the held-out part has ", total - split(), " of ", total,
                            " tokens, but at least 2 are needed, one to see and one to predict. "
                            "Use a longer text or a larger held-out fraction (",
                            held_out, " now).");
    }
  }

  /// Samples before Order::epochs has shown each piece once: floor((train - 1) / length).
  [[nodiscard]] std::int64_t samples_per_epoch(int length) const {
    require_training(length);
    return (static_cast<std::int64_t>(split()) - 1) / length;
  }

  /// Where in the training part the crop of a sample begins: a pure function of (seed, order,
  /// length, sample), so that batch size, accumulation and ranks do not enter, nor does a resume.
  ///
  /// Order::random draws from the train - length starts whose crop and targets fit.
  /// Order::epochs: with n pieces, sample g is piece permutation(g mod n) of epoch g div n; epochs
  /// follow without a seam, and the at most `length` last tokens that fill no piece are not used.
  ///
  /// @throws OptionError for a negative sample; as require_training.
  [[nodiscard]] std::size_t start_of(std::int64_t sample, int length) const {
    require_training(length);
    if (sample < 0) core::fail<OptionError>(name, "::start_of: sample ", sample, " is negative");
    const auto g = static_cast<std::uint64_t>(sample);
    const auto width = static_cast<std::uint64_t>(length);
    if (order == Order::random) {
      constexpr std::uint64_t stream = core::stream("data.text", "crop");
      return core::uniform_below(seed, stream, g, split() - width);
    }
    const std::uint64_t n = (split() - 1) / width;
    return core::permutation(seed, g / n, n, g % n) * width;
  }

  /// Row i is the crop of sample micro.first_sample + i; copy(from, to) writes to.size() tokens
  /// from position `from` on. Allocates only if `out` is too small.
  /// @throws OptionError if the micro-batch has no rows or a negative sample; as require_training.
  template <class Copy>
  void batch(const MicroBatch& micro, int length, Batch& out, const Copy& copy) const {
    require_training(length);
    if (micro.rows < 1 || micro.first_sample < 0) {
      core::fail<OptionError>(name, "::batch: the micro-batch has ", micro.rows,
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
      const std::size_t from = start_of(micro.first_sample + row, length);
      const std::size_t to = static_cast<std::size_t>(row) * width;
      copy(from, std::span(out.inputs).subspan(to, width));
      copy(from + 1, std::span(out.targets).subspan(to, width));
    }
  }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
