// SPDX-License-Identifier: MIT
// ZeRO stage 2: as stage 1, and gradients are kept of the own shard alone: each micro-batch's
// leaves go to their owners as the sweep finishes them, and are dropped.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/frontier.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/mixed/gradient_sums.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// The sums of a shard. With n ranks rank r computes micro-batches r, r + n, …; the n of one round
/// are reduced by the tree over the ranks, bucket by bucket, and the rounds by the binary counter
/// that GradientSums has, here as long as the shard. A leaf that is absent counts as zeros.
template <class T>
class ShardSums final : public mixed::Sums<typename Parameters<T>::gradient> {
 public:
  using R = typename Parameters<T>::gradient;

  ShardSums(Group& group, Parameters<T>& parameters, const Shards& shards,
            std::int64_t bucket_bytes)
      : group_(group),
        parameters_(parameters),
        shards_(shards),
        own_(shards.of(group.rank())),
        frontier_(parameters, bucket_bytes, sizeof(R)),
        arena_(parameters.runtime().ledger()),
        leaves_(parameters.size()) {}

  void begin(std::int64_t micro_batches) override {
    auto& ledger = parameters_.runtime().ledger();
    const auto wanted = static_cast<std::size_t>(mixed::gradient_buffers(micro_batches));
    while (trees_.size() < wanted)
      trees_.emplace_back(ledger, core::Category::gradients, own_.end - own_.begin);
    if (bucket_.size() == 0) {
      bucket_ = tensor::Memory<R>(ledger, core::Category::gradients, frontier_.bucket());
    }
    micro_batches_ = micro_batches;
    number_ = 0;
    arena_.clear();  // of a window that was dropped
    std::fill(leaves_.begin(), leaves_.end(), tensor::Block());
    frontier_.begin();
    parameters_.store().restart(true);
  }
  [[nodiscard]] tensor::LeafTarget open(ParameterId id) override {
    HALFSTEP_ASSERT(number_ < micro_batches_ && !frontier_.has(id.index));
    tensor::Block& leaf = leaves_[id.index];
    leaf = arena_.allocate(parameters_.info(id).elements * std::int64_t{sizeof(R)},
                           core::Category::gradients);
    return {data(leaf), false};
  }
  void finish(ParameterId id) override {
    frontier_.finish(id, [&](core::Range range) { reduce(range); });
  }
  void next() override {
    frontier_.complete([&](core::Range range) { reduce(range); });
    ++number_;
    frontier_.begin();
    parameters_.store().restart(number_ < micro_batches_);
  }
  void fold() override {
    HALFSTEP_ASSERT(number_ == micro_batches_);
    for (int from = std::popcount(static_cast<std::uint64_t>(micro_batches_)) - 1; from > 0; --from)
      merge(from, {0, own_.end - own_.begin});
  }

  [[nodiscard]] core::Range held() const override { return own_; }
  [[nodiscard]] std::span<const R> sum(ParameterId id) const override {
    const auto& info = parameters_.info(id);
    const core::Range here = within(own_, {info.offset, info.offset + info.elements});
    return elements_of(trees_.front().span(), {here.begin - own_.begin, here.end - own_.begin});
  }
  [[nodiscard]] tensor::ParameterTable& parameters() const override { return parameters_; }

 private:
  [[nodiscard]] R* data(const tensor::Block& leaf) const {
    return reinterpret_cast<R*>(arena_.data(leaf));
  }

  void reduce(core::Range range) {
    const std::span<R> bucket =
        bucket_.span().first(static_cast<std::size_t>(range.end - range.begin));
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      const auto& info = parameters_.infos()[i];
      const core::Range here = within(range, {info.offset, info.offset + info.elements});
      if (here.begin >= here.end) continue;
      const std::span<R> to =
          elements_of(bucket, {here.begin - range.begin, here.end - range.begin});
      if (!frontier_.has(i)) {
        std::fill(to.begin(), to.end(), R{0});
        continue;
      }
      std::memcpy(to.data(), data(leaves_[i]) + (here.begin - info.offset), to.size_bytes());
      if (here.begin == info.offset) arena_.release(leaves_[i]);
    }
    const std::span<R> mine = reduce_to_owners(group_, shards_, bucket, range);
    if (!mine.empty()) enter(mine, within(range, own_).begin - own_.begin);
  }

  // A piece of leaf number_, at that place of the shard, enters the binary counter.
  void enter(std::span<R> piece, std::int64_t at) {
    const core::Range range{at, at + std::ssize(piece)};
    const auto number = static_cast<std::uint64_t>(number_);
    int from = std::popcount(number / 2);
    const std::span<R> to = elements_of(trees_[static_cast<std::size_t>(from)].span(), range);
    if (number % 2 == 0) {
      std::memcpy(to.data(), piece.data(), piece.size_bytes());
    } else {
      kernels::add<R>(group_.compute(), to, piece, to);
    }
    for (int level = std::countr_one(number); level > 1; --level)
      merge(from--, range);
  }
  void merge(int from, core::Range range) {
    const std::span<R> below =
        elements_of(trees_[static_cast<std::size_t>(from - 1)].span(), range);
    const std::span<R> above = elements_of(trees_[static_cast<std::size_t>(from)].span(), range);
    kernels::add<R>(group_.compute(), below, above, below);
  }

  Group& group_;
  Parameters<T>& parameters_;
  const Shards& shards_;
  core::Range own_;
  Frontier frontier_;
  tensor::Arena arena_;  // of the leaves
  std::vector<tensor::Block> leaves_;
  std::vector<tensor::Memory<R>> trees_;
  tensor::Memory<R> bucket_;
  std::int64_t micro_batches_ = 0, number_ = 0;
};

/// The processes that go with ShardSums.
template <class T>
class ReducedEachMicroBatch : public mixed::Processes<typename Parameters<T>::gradient> {
  using R = typename Parameters<T>::gradient;

 public:
  static constexpr bool shards_weights = false;
  ReducedEachMicroBatch(Group& group, Parameters<T>& parameters, const Shards& shards,
                        std::int64_t bucket_bytes)
      : group_(group), sums_(group, parameters, shards, bucket_bytes) {
    require_equal_parameters(group, parameters);
  }
  [[nodiscard]] mixed::MicroBatchRange share(const mixed::StepShape& shape) const override {
    const int n = group_.size();
    return {group_.rank(), n, share_of_each(shape, n)};
  }
  [[nodiscard]] mixed::Sums<R>* sums() override { return &sums_; }
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    gather_losses(group_, losses, counts, true);
  }
  void decide(mixed::Findings& findings, std::span<double> blocks) override {
    decide_over_shards(group_, findings, blocks);
  }

 private:
  Group& group_;
  ShardSums<T> sums_;
};

}  // namespace detail

/// As Zero1, of which it differs in memory and messages. Bytes a parameter with n ranks, 16-bit
/// weights and AdamW: 2 + 16/n, and 4/n for each further buffer of accumulation; besides one
/// bucket, and while a sweep runs the leaves that it has not finished or not yet handed on.
///
/// Elements sent a step on messages, times (n - 1) / n: the parameters once for each of this rank's
/// micro-batches as gradients, once as weights. Micro-batches go round: rank r computes r, r + n,
/// ….
template <class Inner>
class Zero2 : public ShardedOptimizer<detail::ReducedEachMicroBatch, Inner> {
 public:
  using ShardedOptimizer<detail::ReducedEachMicroBatch, Inner>::ShardedOptimizer;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
