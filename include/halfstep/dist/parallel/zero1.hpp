// SPDX-License-Identifier: MIT
// ZeRO stage 1: every rank has all weights and all gradients, but keeps optimizer state, master
// weights among it, of its shard alone, which it updates for all. An optimizer around an optimizer,
// with the bits of one process.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/buckets.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// Reduces each bucket to the ranks that own it.
template <class T>
class ReducedOnce final : public Buckets<T> {
  using R = typename Buckets<T>::R;

 public:
  static constexpr bool shards_weights = false;
  ReducedOnce(Group& group, Parameters<T>& parameters, const Shards& shards,
              std::int64_t bucket_bytes)
      : Buckets<T>(group, parameters, bucket_bytes), shards_(shards) {}
  [[nodiscard]] core::Range held() const override { return shards_.of(this->group().rank()); }
  void decide(mixed::Findings& findings, std::span<double> blocks) override {
    decide_over_shards(this->group(), findings, blocks);
  }

 private:
  void reduce(std::span<R> sums, core::Range range) override {
    static_cast<void>(reduce_to_owners(this->group(), shards_, elements_of(sums, range), range));
  }

  const Shards& shards_;
};

}  // namespace detail

/// dist::Zero1<mixed::MasterWeights<optim::AdamW, T>> optimizer(group, parameters,
/// AdamWOptions{…}); mixed::GradientAccumulator<T> accumulator(parameters, &scaler,
/// optimizer.ranks());
///
/// and the loop as for one process. Bytes a parameter with n ranks, 16-bit weights and AdamW: 2 + 4
/// + 12/n, by blocks of 1024 elements; the gradient buffers of accumulation besides.
///
/// Elements sent a step on messages, times (n - 1) / n: the parameters once as gradients to their
/// owners, once as weights to all.
template <class Inner>
class Zero1 : public ShardedOptimizer<detail::ReducedOnce, Inner> {
 public:
  using ShardedOptimizer<detail::ReducedOnce, Inner>::ShardedOptimizer;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
