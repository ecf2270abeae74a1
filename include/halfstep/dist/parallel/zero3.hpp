// SPDX-License-Identifier: MIT
// ZeRO stage 3: as stage 2, and weights are kept of the own shard alone. Where ranks share memory
// the others' are read there; elsewhere they are gathered, block by block of the model, before the
// ops that read them, and freed after, in forward, replay and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/dist/parallel/units.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// Parameters out of the shards of all ranks, unit by unit as Units says. All ranks acquire the
/// same ones in the same order: they run the same ops.
///
/// Within a window, but for the first micro-batch of all, the unit that follows is known: once a
/// unit is here the messages of the next are started, and move, as far as they can without waiting,
/// at every acquire. So a rank waits for the others only where they are more than a unit behind, or
/// where a unit is more than the transport takes between two acquires (128 to 200 KiB for each
/// peer). Copying the bytes costs what it did: there is no thread that would do it meanwhile.
template <class T>
class GatheringStore final : public tensor::Store<T> {
 public:
  /// The parameters are laid out.
  GatheringStore(Group& group, Parameters<T>& parameters, const Shards& shards)
      : group_(group),
        parameters_(parameters),
        units_(parameters),
        arena_(parameters.runtime().ledger()) {
    const auto rank = static_cast<std::size_t>(group.rank());
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
      gathered_.push_back({shards.counts_within(units_.elements(unit)), {}, {}});
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      Gathered& one = gathered_[units_.of({i})];
      const std::span<T> kept = parameters.kept({i});
      if (!one.kept.empty() || kept.empty()) continue;
      one.kept = {kept.data(), static_cast<std::size_t>(one.counts.each[rank])};
    }
  }
  GatheringStore(const GatheringStore&) = delete;
  GatheringStore& operator=(const GatheringStore&) = delete;
  ~GatheringStore() override {
    try {
      drop_coming();
    } catch (...) {  // the rank that it waits for has failed, and says why
    }
  }

  [[nodiscard]] const T* acquire(ParameterId id) override {
    if (coming_ != none) or_drop([&] { group_.transport().advance(); });
    units_.acquire(
        id, [&](std::size_t unit) { arena_.release(gathered_[unit].block); },
        [&](std::size_t unit) { bring(unit); });
    const std::size_t unit = units_.of(id);
    return data(unit) + (parameters_.info(id).offset - units_.elements(unit).begin);
  }
  void release(ParameterId id) override { units_.release(id); }
  void restart(bool repeats) override {
    drop_coming();
    units_.drop_unused([&](std::size_t unit) { arena_.release(gathered_[unit].block); });
    if (repeats_) before_.swap(order_);
    order_.clear();
    as_before_ = repeats_ = repeats;
  }
  /// Elements gathered so far, each time anew.
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  struct Gathered {
    Counts counts;
    std::span<const T> kept;  // of it in this rank's shard
    tensor::Block block;
  };
  [[nodiscard]] T* data(std::size_t unit) const {
    return reinterpret_cast<T*>(arena_.data(gathered_[unit].block));
  }

  void bring(std::size_t unit) {
    if (coming_ != unit) {
      drop_coming();
      start(unit);
    }
    finish();
    coming_ = none;
    const std::size_t next = follows(unit);
    if (next != none && !units_.any_here()) start(next);  // with those that an op uses, two at most
  }
  void start(std::size_t unit) {
    Gathered& one = gathered_[unit];
    const core::Range range = units_.elements(unit);
    const std::int64_t elements = range.end - range.begin;
    one.block = arena_.allocate(elements * std::int64_t{sizeof(T)}, core::Category::weights);
    coming_ = unit;
    elements_ += elements;
    or_drop([&] {
      start_all_gather<T>(group_, one.kept,
                          std::span<T>(data(unit), static_cast<std::size_t>(elements)),
                          one.counts.span());
    });
  }
  void finish() {
    or_drop([&] { group_.transport().finish(); });
  }
  void drop_coming() {
    if (coming_ == none) return;
    finish();
    arena_.release(gathered_[std::exchange(coming_, none)].block);
  }
  template <class Body>
  void or_drop(const Body& body) {
    try {
      body();
    } catch (...) {
      arena_.release(gathered_[std::exchange(coming_, none)].block);
      throw;
    }
  }
  /// Notes that the unit came. Which one follows, if the order is that of the time before so far.
  [[nodiscard]] std::size_t follows(std::size_t unit) {
    if (!repeats_) return none;
    const std::size_t at = order_.size();
    order_.push_back(unit);
    as_before_ = as_before_ && at < before_.size() && before_[at] == unit;
    return as_before_ && at + 1 < before_.size() ? before_[at + 1] : none;
  }

  Group& group_;
  Parameters<T>& parameters_;
  Units units_;
  tensor::Arena arena_;
  std::vector<Gathered> gathered_;           // by unit
  std::size_t coming_ = none;                // the unit whose messages are under way
  std::vector<std::size_t> order_, before_;  // in which units came, now and the time before
  bool repeats_ = false, as_before_ = false;
  std::int64_t elements_ = 0;
};

template <class T>
class ShardedWeights final : public ReducedEachMicroBatch<T> {
 public:
  static constexpr bool shards_weights = true;
  [[nodiscard]] static std::span<T> shared_weights(Group& group, Parameters<T>& parameters) {
    SharedMemory* const shared = group.transport().shared();
    const std::int64_t n = parameters.count();
    if (shared == nullptr || !shared->has_common_room<T>(n)) return {};
    return shared->allocate_common<T>(n);
  }
  ShardedWeights(Group& group, Parameters<T>& parameters, const Shards& shards,
                 std::int64_t bucket_bytes)
      : ReducedEachMicroBatch<T>(group, parameters, shards, bucket_bytes),
        parameters_(parameters),
        store_(group, parameters, shards) {
    if (parameters.sharded() && !parameters.shared()) parameters.use(store_);
  }
  ~ShardedWeights() override { parameters_.use_resident(); }
  [[nodiscard]] const GatheringStore<T>& store() const { return store_; }

 private:
  Parameters<T>& parameters_;
  GatheringStore<T> store_;
};

}  // namespace detail

/// As Zero2, of which it differs in the weights. Made before the first tape begins, and kept as
/// long as a tape reads the parameters. Bytes a parameter with n ranks, 16-bit weights and AdamW:
/// 18/n, and 4/n for each further buffer of accumulation; besides one bucket, unfinished leaves,
/// and two units of weights (Units): those that an op reads, or the one that ops read and the next.
/// An op that reads parameters of more units has all of them here.
///
/// Elements sent a step on messages, times (n - 1) / n: for each of this rank's micro-batches the
/// parameters once as gradients, and as weights what gathered_elements counts: with blocks that are
/// not recomputed, or one block a segment, about twice. A micro-batch that reads units in another
/// order than the one before has also gathered the one that was expected, once.
///
/// In shared memory with room for them in common (as OneHost::common_bytes says) the weights are
/// one copy, of which each rank keeps, counts and updates its shard and reads the rest where it
/// lies: nothing is gathered. Nor is it in a group of one.
///
/// All ranks run the same ops, in evaluation and sampling too. To load weights, all ranks visit the
/// store's state, each its own part: through WholeState, or by themselves, with a barrier after.
template <class Inner>
class Zero3 : public ShardedOptimizer<detail::ShardedWeights, Inner> {
 public:
  using ShardedOptimizer<detail::ShardedWeights, Inner>::ShardedOptimizer;

  /// Elements of parameters that were gathered so far, in evaluation and sampling too.
  [[nodiscard]] std::int64_t gathered() const { return this->processes().store().elements(); }
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
