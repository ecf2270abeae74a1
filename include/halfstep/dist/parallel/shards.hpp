// SPDX-License-Identifier: MIT
// Which rank owns which elements of a store: contiguous shards, cut at blocks of 1024 elements of a
// parameter, or at whole parameters. No padding; shards may differ in length and be empty.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Elements of each rank: what collectives take as counts.
struct Counts {
  std::array<std::int64_t, max_ranks> each{};
  std::size_t ranks = 0;
  [[nodiscard]] std::span<const std::int64_t> span() const { return std::span(each).first(ranks); }
};

/// What two ranges have in common; an empty part of the first if that is nothing.
[[nodiscard]] inline core::Range within(core::Range range, core::Range other) {
  return {std::clamp(other.begin, range.begin, range.end),
          std::clamp(other.end, range.begin, range.end)};
}

/// Of grain `element` every rank has the same number of blocks, or one less; a parameter's blocks
/// start anew at its first element, and its last may be short. Of grain `tensor` a rank begins with
/// the parameter that begins nearest behind its share of the elements.
class Shards {
 public:
  Shards(const tensor::ParameterTable& parameters, int ranks, optim::Grain grain)
      : bounds_(static_cast<std::size_t>(ranks) + 1, parameters.count()) {
    bounds_[0] = 0;
    std::int64_t blocks = 0;
    for (const auto& info : parameters.infos())
      blocks += kernels::sum_blocks(info.elements);
    for (int rank = 1; rank < ranks; ++rank) {
      std::int64_t& bound = bounds_[static_cast<std::size_t>(rank)];
      if (grain == optim::Grain::element) {
        bound = element_of_block(parameters, core::part_of(blocks, ranks, rank).begin);
      } else {
        const std::int64_t share = core::part_of(parameters.count(), ranks, rank).begin;
        for (const auto& info : parameters.infos()) {
          if (info.offset >= share) bound = std::min(bound, info.offset);
        }
      }
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(bounds_.size()) - 1; }
  /// In elements of the store.
  [[nodiscard]] core::Range of(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return {bounds_[r], bounds_[r + 1]};
  }
  /// Elements of each rank's shard within a range.
  [[nodiscard]] Counts counts_within(core::Range range) const {
    Counts counts;
    for (int rank = 0; rank < size(); ++rank) {
      const core::Range here = within(range, of(rank));
      counts.each[counts.ranks++] = here.end - here.begin;
    }
    return counts;
  }

 private:
  [[nodiscard]] static std::int64_t element_of_block(const tensor::ParameterTable& parameters,
                                                     std::int64_t block) {
    for (const auto& info : parameters.infos()) {
      const std::int64_t here = kernels::sum_blocks(info.elements);
      if (block < here) return info.offset + block * kernels::block_elements;
      block -= here;
    }
    return parameters.count();
  }

  std::vector<std::int64_t> bounds_;
};

/// Of `values`, the elements `range` of a store: those that this rank owns become the sums over all
/// ranks, and are returned.
template <class R>
[[nodiscard]] std::span<R> reduce_to_owners(Group& group, const Shards& shards, std::span<R> values,
                                            core::Range range) {
  const core::Range own = within(range, shards.of(group.rank()));
  const std::span<R> mine = elements_of(values, {own.begin - range.begin, own.end - range.begin});
  reduce_scatter<R>(group, values, mine, shards.counts_within(range).span());
  return mine;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
