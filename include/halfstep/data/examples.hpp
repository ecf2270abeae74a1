// SPDX-License-Identifier: MIT
// Rows of features, each with a target, as a dataset beside text: training sample g is a pure
// function of (seed, g), as data::Crops has it. Not for: sequences, or files.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/random.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// What becomes of the last rows of an epoch where they do not fill a batch.
enum class Tail {
  drop,  ///< nobody sees them in this epoch
  keep,  ///< the last batch is shorter
  /// The last batch is filled up with rows of zeros. Classes have the target -1, which losses
  /// ignore; values have none that squared_error would, so a loss of values has to leave out rows
  /// from EpochBatch::valid on.
  mask,
};

/// One batch of one epoch.
struct EpochBatch {
  std::int64_t epoch = 0;
  std::int64_t first = 0;  ///< place in the epoch of row 0
  int rows = 0;            ///< those that are filled up among them
  int valid = 0;           ///< of them, from the front, that are examples
};

/// An epoch of `size` examples as batches of `rows`, for a loop of one's own that thinks in epochs.
/// Each begins with a fresh permutation, so with drop and mask which examples meet, and which
/// iteration sees them, depends on the batch size; the samples of a window, numbered through
/// without a seam, do not. Masked rows keep their numbers: every batch has `rows` of them, so what
/// is keyed by a sample's number, dropout say, is where it would be in a full batch. Evaluation
/// wants keep.
/// @throws OptionError if size or rows is below 1 or epoch negative.
[[nodiscard]] inline std::vector<EpochBatch> epoch_batches(std::int64_t size, std::int64_t epoch,
                                                           int rows, Tail tail) {
  if (size < 1 || rows < 1 || epoch < 0) {
    core::fail<OptionError>("epoch_batches: ", size, " examples, batches of ", rows, ", epoch ",
                            epoch, "; wanted at least 1, 1 and 0");
  }
  std::vector<EpochBatch> batches;
  for (std::int64_t first = 0; first < size; first += rows) {
    const int valid = static_cast<int>(std::min<std::int64_t>(rows, size - first));
    if (valid < rows && tail == Tail::drop) break;
    batches.push_back({epoch, first, tail == Tail::mask ? rows : valid, valid});
  }
  return batches;
}

/// Rows as a model takes them.
template <class Target>
struct ExampleBatch {
  int rows = 0;
  std::vector<float> features;  ///< [rows, width]
  std::vector<Target> targets;  ///< [rows, targets a row]
};

struct ExamplesOptions {
  int width = 1;           ///< features of an example
  int targets = 1;         ///< targets of an example
  std::uint64_t seed = 0;  ///< of the order
};

/// Examples in memory: targets are classes (std::int32_t) or values (float). Immutable; const
/// members may run on several threads at once.
template <class Target>
requires(std::same_as<Target, std::int32_t> || std::same_as<Target, float>) class Examples {
 public:
  /// features [n, width] and targets [n, targets], row after row.
  /// @throws ShapeError if they are no whole rows, as many of one as of the other, at least one;
  /// OptionError for a width or targets below 1.
  Examples(std::vector<float> features, std::vector<Target> targets,
           const ExamplesOptions& options = {})
      : options_(options), features_(std::move(features)), targets_(std::move(targets)) {
    if (options.width < 1 || options.targets < 1) {
      core::fail<OptionError>("Examples: width ", options.width, " and ", options.targets,
                              " targets; wanted at least 1 of each");
    }
    const auto width = static_cast<std::size_t>(options.width);
    const auto per_row = static_cast<std::size_t>(options.targets);
    const std::size_t n = features_.size() / width;
    if (n == 0 || features_.size() != n * width || targets_.size() != n * per_row) {
      core::fail<ShapeError>("Examples: ", features_.size(), " features of width ", width, " and ",
                             targets_.size(), " targets, ", per_row,
                             " a row; wanted as many whole rows of both, at least one");
    }
    size_ = static_cast<std::int64_t>(n);
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const ExamplesOptions& options() const { return options_; }

  /// Which example is training sample g: number permutation(g mod n) of epoch g div n. Each epoch
  /// has every example once, in an order of its own; epochs follow without a seam.
  /// @throws OptionError for a negative sample.
  [[nodiscard]] std::int64_t index_of(std::int64_t sample) const {
    if (sample < 0) core::fail<OptionError>("Examples::index_of: sample ", sample, " is negative");
    return place(sample / size_, sample % size_);
  }

  /// Row i is sample micro.first_sample + i, whatever batch, accumulation and ranks are. Allocates
  /// only if `out` is too small. @throws OptionError if there are no rows or a sample is negative.
  void batch(const MicroBatch& micro, ExampleBatch<Target>& out) const {
    start(micro.rows, out);
    for (int row = 0; row < micro.rows; ++row)
      copy(index_of(micro.first_sample + row), row, out);
  }
  /// Row i is example first + i of the epoch's order; see epoch_batches.
  /// @throws OptionError if the batch is not inside an epoch of these examples.
  void batch(const EpochBatch& wanted, ExampleBatch<Target>& out) const {
    if (wanted.epoch < 0 || wanted.first < 0 || wanted.valid < 0 || wanted.valid > wanted.rows ||
        wanted.valid > size_ - wanted.first) {
      core::fail<OptionError>("Examples::batch: examples ", wanted.first, " to ",
                              wanted.first + wanted.valid, " of epoch ", wanted.epoch, ", ",
                              wanted.rows, " rows; there are ", size_,
                              ". Were the batches made for another size?");
    }
    start(wanted.rows, out);
    for (int row = 0; row < wanted.valid; ++row)
      copy(place(wanted.epoch, wanted.first + row), row, out);
    constexpr Target nobody = std::same_as<Target, float> ? Target{0} : Target{-1};
    std::fill(out.features.begin() + std::ptrdiff_t{wanted.valid} * options_.width,
              out.features.end(), 0.0F);
    std::fill(out.targets.begin() + std::ptrdiff_t{wanted.valid} * options_.targets,
              out.targets.end(), nobody);
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t epoch, std::int64_t index) const {
    return static_cast<std::int64_t>(
        core::permutation(options_.seed, static_cast<std::uint64_t>(epoch),
                          static_cast<std::uint64_t>(size_), static_cast<std::uint64_t>(index)));
  }
  void start(int rows, ExampleBatch<Target>& out) const {
    if (rows < 1) core::fail<OptionError>("Examples::batch: ", rows, " rows; wanted at least 1");
    out.rows = rows;
    out.features.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(options_.width));
    out.targets.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(options_.targets));
  }
  void copy(std::int64_t index, int row, ExampleBatch<Target>& out) const {
    std::copy_n(features_.begin() + index * options_.width, options_.width,
                out.features.begin() + std::ptrdiff_t{row} * options_.width);
    std::copy_n(targets_.begin() + index * options_.targets, options_.targets,
                out.targets.begin() + std::ptrdiff_t{row} * options_.targets);
  }

  ExamplesOptions options_;
  std::vector<float> features_;
  std::vector<Target> targets_;
  std::int64_t size_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
