// SPDX-License-Identifier: MIT
// The gradient of a step in buckets: as soon as the last reverse sweep has finished one, all ranks
// reduce it together. Base of data parallelism and of ZeRO 1, which differ in where the sum goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/frontier.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Shares of a step are contiguous: with n ranks rank r computes V/n micro-batches from r V/n on,
/// so that its sum is a subtree of the step's. The bits are those of one process if V and n are
/// powers of two.
///
/// Frontier says when which bucket is reduced. In shared memory the sums lie in the arena if it has
/// room for them.
template <class T>
class Buckets : public mixed::Processes<typename Parameters<T>::gradient> {
 public:
  using R = typename Parameters<T>::gradient;

  [[nodiscard]] mixed::MicroBatchRange share(const mixed::StepShape& shape) const override {
    const std::int64_t each = share_of_each(shape, group_.size());
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
    frontier_.begin();
  }
  void finished(ParameterId id) override {
    frontier_.finish(id, [&](core::Range range) { reduce(sums_, range); });
  }
  void complete() override {
    frontier_.complete([&](core::Range range) { reduce(sums_, range); });
  }

 protected:
  /// Checks that all ranks have the same parameters with the same values.
  /// @throws MismatchError naming the first that differs, OptionError for a bucket below one
  /// element.
  Buckets(Group& group, Parameters<T>& parameters, std::int64_t bucket_bytes)
      : group_(group), parameters_(parameters), frontier_(parameters, bucket_bytes, sizeof(R)) {
    require_equal_parameters(group, parameters);
  }

  /// Makes the elements [range.begin, range.end) of sums, or this rank's of them, those of all
  /// ranks.
  virtual void reduce(std::span<R> sums, core::Range range) = 0;

  [[nodiscard]] Group& group() const { return group_; }
  [[nodiscard]] Parameters<T>& parameters() const { return parameters_; }

 private:
  Group& group_;
  Parameters<T>& parameters_;
  Frontier frontier_;
  std::span<R> sums_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
