// SPDX-License-Identifier: MIT
// The gradient of a step in buckets: as soon as the last reverse sweep has finished one, all ranks
// reduce it together. Base of data parallelism and of ZeRO 1, which differ in where the sum goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Shares of a step are contiguous: with n ranks rank r computes V/n micro-batches from r V/n on,
/// so that its sum is a subtree of the step's. The bits are those of one process if V and n are
/// powers of two.
///
/// Buckets have fixed places, counted from the end of the store, where sweeps begin to finish
/// parameters; so all ranks reduce them in one order, whenever each gets there, and no thread is
/// needed that communicates. In shared memory the sums lie in the arena if it has room for them.
template <class T>
class Buckets : public mixed::Processes<typename Parameters<T>::gradient> {
 public:
  using R = typename Parameters<T>::gradient;

  [[nodiscard]] mixed::MicroBatchRange share(const mixed::StepShape& shape) const override {
    const int n = group_.size();
    if (shape.micro_batches % n != 0) {
      core::fail<OptionError>("dist: ", shape.micro_batches,
                              " micro-batches a step cannot be shared by ", n,
                              " ranks. Is the accumulation meant for each rank, not for all?");
    }
    const std::int64_t each = shape.micro_batches / n;
    return {group_.rank() * each, 1, each};
  }
  [[nodiscard]] std::span<R> memory(std::int64_t elements) override {
    SharedMemory* const shared = group_.transport().shared();
    if (shared == nullptr || group_.size() == 1 || !shared->has_room<R>(elements)) return {};
    return shared->allocate<R>(elements);
  }
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    gather_losses(group_, losses, counts, false);
  }
  void begin(std::span<R> sums) override {
    sums_ = sums;
    reduced_from_ = frontier_ = std::ssize(sums);
    next_ = parameters_.size();
    finished_.assign(parameters_.size(), 0);
  }
  void finished(ParameterId id) override {
    finished_[id.index] = 1;
    while (next_ > 0 && finished_[next_ - 1] != 0)
      frontier_ = parameters_.infos()[--next_].offset;
    while (reduced_from_ > 0 && reduced_from_ - bucket_ >= frontier_)
      reduce_from(reduced_from_ - bucket_);
  }
  void complete() override {
    while (reduced_from_ > 0)
      reduce_from(std::max<std::int64_t>(0, reduced_from_ - bucket_));
  }

 protected:
  /// Checks that all ranks have the same parameters with the same values.
  /// @throws MismatchError naming the first that differs, OptionError for a bucket below one
  /// element.
  Buckets(Group& group, Parameters<T>& parameters, std::int64_t bucket_bytes)
      : group_(group),
        parameters_(parameters),
        bucket_(bucket_bytes / static_cast<std::int64_t>(sizeof(R))) {
    if (bucket_ < 1) {
      core::fail<OptionError>("dist: a bucket of ", bucket_bytes, " bytes holds no element of ",
                              sizeof(R), " bytes");
    }
    require_equal_parameters(group, parameters);
  }

  /// Makes the elements [range.begin, range.end) of sums, or this rank's of them, those of all
  /// ranks.
  virtual void reduce(std::span<R> sums, core::Range range) = 0;

  [[nodiscard]] Group& group() const { return group_; }
  [[nodiscard]] Parameters<T>& parameters() const { return parameters_; }

 private:
  void reduce_from(std::int64_t begin) {
    reduce(sums_, {begin, reduced_from_});
    reduced_from_ = begin;
  }

  Group& group_;
  Parameters<T>& parameters_;
  std::int64_t bucket_;  // elements
  std::span<R> sums_;
  std::int64_t reduced_from_ = 0;  // elements from here on are reduced
  std::int64_t frontier_ = 0;      // and from here on finished
  std::size_t next_ = 0;           // parameters below this number are not finished yet
  std::vector<std::uint8_t> finished_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
