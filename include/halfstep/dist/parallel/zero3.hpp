// SPDX-License-Identifier: MIT
// ZeRO stage 3: as stage 2, and weights are kept of the own shard alone: the tape gathers a
// parameter before an op that reads it and frees it after, in forward, replay and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// Parameters out of the shards of all ranks, for as long as they are acquired. All ranks acquire
/// the same ones in the same order: they run the same ops.
template <class T>
class GatheringStore final : public tensor::Store<T> {
 public:
  GatheringStore(Group& group, Parameters<T>& parameters, const Shards& shards)
      : group_(group),
        parameters_(parameters),
        shards_(shards),
        arena_(parameters.runtime().ledger()),
        gathered_(parameters.size()) {}

  [[nodiscard]] const T* acquire(ParameterId id) override {
    Gathered& one = gathered_[id.index];
    if (one.users == 0) {
      const auto& info = parameters_.info(id);
      one.block = arena_.allocate(info.elements * std::int64_t{sizeof(T)}, core::Category::weights);
      const std::span<T> values(data(one), static_cast<std::size_t>(info.elements));
      all_gather<T>(group_, std::span<const T>(parameters_.kept(id)), values,
                    shards_.counts_within({info.offset, info.offset + info.elements}));
      elements_ += info.elements;
    }
    ++one.users;  // not of one whose gathering threw
    return data(one);
  }
  void release(ParameterId id) override {
    Gathered& one = gathered_[id.index];
    HALFSTEP_ASSERT(one.users > 0);
    if (--one.users == 0) arena_.release(one.block);
  }
  /// Elements gathered so far, each time anew.
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  struct Gathered {
    tensor::Block block;
    int users = 0;
  };
  [[nodiscard]] T* data(const Gathered& one) const {
    return reinterpret_cast<T*>(arena_.data(one.block));
  }

  Group& group_;
  Parameters<T>& parameters_;
  const Shards& shards_;
  tensor::Arena arena_;  // of the parameters that are acquired
  std::vector<Gathered> gathered_;
  std::int64_t elements_ = 0;
};

template <class T>
class ShardedWeights final : public ReducedEachMicroBatch<T> {
 public:
  static constexpr bool shards_weights = true;
  ShardedWeights(Group& group, Parameters<T>& parameters, const Shards& shards,
                 std::int64_t bucket_bytes)
      : ReducedEachMicroBatch<T>(group, parameters, shards, bucket_bytes),
        store_(group, parameters, shards) {
    parameters.use(store_);
  }
  [[nodiscard]] const GatheringStore<T>& store() const { return store_; }

 private:
  GatheringStore<T> store_;
};

}  // namespace detail

/// As Zero2, of which it differs in the weights. Made before the first tape begins, and kept as
/// long as a tape reads the parameters. Bytes a parameter with n ranks, 16-bit weights and AdamW:
/// 18/n, and 4/n for each further buffer of accumulation; besides one bucket, unfinished leaves,
/// and the parameters that an op is reading.
///
/// Elements sent a step on messages, times (n - 1) / n: for each of this rank's micro-batches the
/// parameters once as gradients, and once as weights for each time that one is acquired. Every op
/// that reads a parameter acquires it; nothing is kept from one op to the next or fetched ahead.
///
/// All ranks run the same ops, in evaluation and sampling too.
template <class Inner>
class Zero3 : public ShardedOptimizer<detail::ShardedWeights, Inner> {
 public:
  using ShardedOptimizer<detail::ShardedWeights, Inner>::ShardedOptimizer;

  /// Elements of parameters that were gathered so far.
  [[nodiscard]] std::int64_t gathered() const { return this->processes().store().elements(); }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
