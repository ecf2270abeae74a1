// SPDX-License-Identifier: MIT
// ZeRO where all ranks share memory: one copy of the weights, which each rank updates a shard of,
// and gradients that are added where they lie. A step is two passes over a shard and one exchange.
// Not for ranks that send messages (zero1.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/frontier.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// Every rank's sum of its own micro-batches lies where all can read it; pass one adds the ranks'
/// sums of this rank's shard, by the tree over the ranks, to where its own lie.
template <class T>
class SummedInPlace final : public mixed::Processes<typename Parameters<T>::gradient> {
 public:
  using R = typename Parameters<T>::gradient;
  static constexpr bool shards_weights = true;

  [[nodiscard]] static std::span<T> shared_weights(Group& group, Parameters<T>& parameters) {
    return shared(group).template allocate_common<T>(parameters.count());
  }

  SummedInPlace(Group& group, Parameters<T>& parameters, const Shards& shards,
                std::int64_t /*bucket_bytes*/)
      : group_(group), own_(shards.of(group.rank())) {
    require_equal_parameters(group, parameters);
  }

  [[nodiscard]] mixed::MicroBatchRange share(const mixed::StepShape& shape) const override {
    const std::int64_t each = share_of_each(shape, group_.size());
    return {group_.rank() * each, 1, each};
  }
  [[nodiscard]] std::span<R> memory(std::int64_t elements) override {
    if (group_.size() == 1) return {};
    return shared(group_).template allocate<R>(elements);
  }
  void begin(std::span<R> sums) override {
    if (group_.size() == 1 || sums_[static_cast<std::size_t>(group_.rank())] == sums.data()) return;
    const Group::Operation operation(group_, "share", format_name<R>(), "", std::ssize(sums), 0,
                                     std::as_bytes(sums));
    meet_and_compare(group_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      sums_[static_cast<std::size_t>(rank)] = reinterpret_cast<R*>(
          shared(group_).posted(rank, static_cast<std::int64_t>(sums.size_bytes())));
    }
  }
  [[nodiscard]] core::Range held() const override { return own_; }
  /// In which all ranks hear of all others: from here on every sum is complete.
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    gather_losses(group_, losses, counts, false);
  }
  [[nodiscard]] bool sums_in_pass_one() const override { return group_.size() > 1; }
  void sum_up(core::Range elements) override {
    const auto n = static_cast<std::size_t>(group_.size());
    std::array<const R*, max_ranks> sources{};
    for (std::size_t rank = 0; rank < n; ++rank)
      sources[rank] = sums_[rank] + elements.begin;
    R* const target = sums_[static_cast<std::size_t>(group_.rank())] + elements.begin;
    const std::int64_t count = elements.end - elements.begin;
    kernels::fold<R>(group_.compute(), kernels::Reduction::sum, std::span(sources).first(n),
                     std::span<R* const>(&target, 1), count, group_.size());
    group_.transport().count().bytes_read += static_cast<std::uint64_t>(count) * n * sizeof(R);
    group_.transport().count().bytes_written += static_cast<std::uint64_t>(count) * sizeof(R);
  }
  void decide(mixed::Findings& findings, std::span<double> blocks) override {
    decide_over_shards(group_, findings, blocks);
  }

 private:
  [[nodiscard]] static SharedMemory& shared(Group& group) {
    SharedMemory* const memory = group.transport().shared();
    if (memory == nullptr) {
      core::fail<OptionError>("dist::OneHost: the ranks share no memory over transport '",
                              group.transport().name(), "'. Use Zero1.");
    }
    return *memory;
  }

  Group& group_;
  core::Range own_;
  std::array<R*, max_ranks> sums_{};  // of each rank, all parameters in order of registration
};

}  // namespace detail

/// As Zero1, on ranks that share memory. Made before the first tape begins:
///
/// dist::launch({.ranks = n, .arena_bytes = OneHost<…>::arena_bytes(parameters.count()),
///               .common_bytes = OneHost<…>::common_bytes(parameters.count())}, …);
///
/// Pass one reads the n ranks' gradients of a shard, adds them, and notes norm and non-finite
/// values; the ranks decide together; pass two reads the sum, updates the shard and writes its
/// weights where every rank reads them. So of weights and state a host has one copy, whatever n:
/// with 16-bit weights and AdamW 2 + 12 bytes a parameter, and 4 n of gradients, of which each rank
/// counts in its ledger what it owns: 4 + 14/n.
///
/// Read and written a step, bytes a parameter, in gradients of all ranks together: 4 n and 4.
/// Weights that a program writes itself are filled by one rank; after a barrier the others call
/// Parameters::write of them too, so that every rank's master takes over its part. Takes no
/// buckets. In a group of one: as the inner optimizer, over any transport.
/// @throws OptionError where no memory is shared; MemoryError where there is not room enough.
template <class Inner>
class OneHost : public ShardedOptimizer<detail::SummedInPlace, Inner> {
  using T = typename Inner::Element;

 public:
  using ShardedOptimizer<detail::SummedInPlace, Inner>::ShardedOptimizer;

  /// What LaunchOptions of the same names have to leave for it.
  [[nodiscard]] static constexpr std::int64_t arena_bytes(std::int64_t parameters) {
    return core::round_up(parameters * std::int64_t{sizeof(typename Parameters<T>::gradient)},
                          line_pair);
  }
  [[nodiscard]] static constexpr std::int64_t common_bytes(std::int64_t parameters) {
    return core::round_up(parameters * std::int64_t{sizeof(T)}, line_pair);
  }

 private:
  static constexpr std::int64_t line_pair = detail::line_pair;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
