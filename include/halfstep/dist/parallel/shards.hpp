// SPDX-License-Identifier: MIT
// Which rank owns which elements of a store: contiguous shards, cut at blocks of 1024 elements of a
// parameter, or at whole parameters. No padding; shards may differ in length and be empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

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
  /// Elements of each rank's shard within a range: what collectives take as counts.
  [[nodiscard]] std::vector<std::int64_t> counts_within(core::Range range) const {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size(); ++rank) {
      const core::Range own = of(rank);
      counts.push_back(std::max<std::int64_t>(
          0, std::min(own.end, range.end) - std::max(own.begin, range.begin)));
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

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
