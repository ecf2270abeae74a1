// SPDX-License-Identifier: MIT
// Which buckets of a store a reverse sweep has finished, and how many micro-batches of a step each
// rank computes: what every way of reducing gradients has in common. Not for: where the sums go.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Micro-batches of a step that each of n ranks computes. @throws OptionError unless it is a whole
/// number.
[[nodiscard]] inline std::int64_t share_of_each(const mixed::StepShape& shape, int ranks) {
  if (shape.micro_batches % ranks != 0) {
    core::fail<OptionError>("dist: ", shape.micro_batches,
                            " micro-batches a step cannot be shared by ", ranks,
                            " ranks. Is the accumulation meant for each rank, not for all?");
  }
  return shape.micro_batches / ranks;
}

/// Buckets have fixed places, counted from the end of the store, where sweeps begin to finish
/// parameters; so all ranks reduce them in one order, whenever each gets there, and no thread is
/// needed that communicates.
class Frontier {
 public:
  /// @throws OptionError for a bucket below one element.
  Frontier(const tensor::ParameterTable& parameters, std::int64_t bucket_bytes,
           std::int64_t element_bytes)
      : parameters_(parameters), bucket_(bucket_bytes / element_bytes) {
    if (bucket_ < 1) {
      core::fail<OptionError>("dist: a bucket of ", bucket_bytes, " bytes holds no element of ",
                              element_bytes, " bytes");
    }
  }

  /// Elements of a bucket; the last one may hold fewer.
  [[nodiscard]] std::int64_t bucket() const { return std::min(bucket_, parameters_.count()); }
  /// Whether the sweep has finished that parameter.
  [[nodiscard]] bool has(std::size_t parameter) const { return finished_[parameter] != 0; }

  void begin() {
    reduced_from_ = finished_from_ = parameters_.count();
    next_ = parameters_.size();
    finished_.assign(parameters_.size(), 0);
  }
  /// The sweep has finished a parameter: reduce(range) for every bucket that is whole now.
  template <class Reduce>
  void finish(ParameterId id, Reduce reduce) {
    finished_[id.index] = 1;
    while (next_ > 0 && has(next_ - 1))
      finished_from_ = parameters_.infos()[--next_].offset;
    while (reduced_from_ > 0 && reduced_from_ - bucket_ >= finished_from_)
      reduce_from(reduced_from_ - bucket_, reduce);
  }
  /// The sweep is over: reduce(range) for all others.
  template <class Reduce>
  void complete(Reduce reduce) {
    while (reduced_from_ > 0)
      reduce_from(std::max<std::int64_t>(0, reduced_from_ - bucket_), reduce);
  }

 private:
  template <class Reduce>
  void reduce_from(std::int64_t begin, Reduce& reduce) {
    reduce(core::Range{begin, reduced_from_});
    reduced_from_ = begin;
  }

  const tensor::ParameterTable& parameters_;
  std::int64_t bucket_;
  std::int64_t reduced_from_ = 0;   // elements from here on are reduced
  std::int64_t finished_from_ = 0;  // and from here on finished
  std::size_t next_ = 0;            // parameters below this number are not finished yet
  std::vector<std::uint8_t> finished_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
