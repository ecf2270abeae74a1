// SPDX-License-Identifier: MIT
// Data parallelism: every rank computes its share of a step's micro-batches, and then all have the
// gradient of the whole step, bit for bit what one process would have. For a GradientAccumulator;
// the optimizer is any. Not for sharding (zero1.hpp).
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/buckets.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

struct DataParallelOptions {
  /// How much of the gradient is reduced at a time, as soon as the reverse sweep of the last
  /// micro-batch has finished it: what fits in a core's cache is still there. Never shows in the
  /// bits.
  std::int64_t bucket_bytes = std::int64_t{1} << 20;
  Algorithm algorithm =
      Algorithm::best;  ///< beyond two ranks the ring's sums are not one process's
};

/// dist::DataParallel ranks(group, parameters);
/// mixed::GradientAccumulator<T> accumulator(parameters, &scaler, ranks);
///
/// and the loop as for one process: windows visit this rank's micro-batches (see Buckets),
/// `unscale` gives the whole step's gradient, loss and count on every rank, and so every rank takes
/// the same step. Group and parameters must outlive it.
///
/// Elements sent a step on messages: 2 (n - 1) / n times the parameters, whatever the accumulation.
/// In shared memory each element is read and written once for each rank.
template <class T>
class DataParallel final : public Buckets<T> {
  using R = typename Buckets<T>::R;

 public:
  DataParallel(Group& group, Parameters<T>& parameters, const DataParallelOptions& options = {})
      : Buckets<T>(group, parameters, options.bucket_bytes), algorithm_(options.algorithm) {}

  [[nodiscard]] core::Range held() const override { return {0, this->parameters().count()}; }
  /// All ranks look at the same gradient and find the same.
  void decide(mixed::Findings& /*findings*/, std::span<double> /*blocks*/) override {}

 private:
  void reduce(std::span<R> sums, core::Range range) override {
    all_reduce(this->group(), elements_of(sums, range), Reduction::sum, algorithm_);
  }

  Algorithm algorithm_;
};

template <class T>
DataParallel(Group&, Parameters<T>&) -> DataParallel<T>;
template <class T>
DataParallel(Group&, Parameters<T>&, const DataParallelOptions&) -> DataParallel<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
