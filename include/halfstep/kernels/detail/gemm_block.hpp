// SPDX-License-Identifier: MIT
// How a matrix product is cut into blocks, and what one block's work is told. No arithmetic: that
// is gemm.inc, once for each path. Block sizes never show in the bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// Outputs that a path computes at a time in registers.
struct GemmTile {
  int rows = 0;
  int columns = 0;
};

/// A k above gemm_uncut_depth is cut into blocks of gemm_depth; chains go on from stored partial
/// sums. Longer blocks leave fewer rows, so that a transposed A uses a few bytes of each line of
/// memory. Even, so that no pair of bf16 is cut.
inline constexpr std::int64_t gemm_uncut_depth = 2048, gemm_depth = 1024;
inline constexpr std::int64_t gemm_a_block = std::int64_t{192} << 10;   ///< numbers of packed A
inline constexpr std::int64_t gemm_b_block = std::int64_t{2048} << 10;  ///< numbers of packed B
/// Numbers of packed B beside a block of A in a core's cache.
inline constexpr std::int64_t gemm_few_panels = std::int64_t{128} << 10;

/// The cut of one product, and the numbers (of the accumulator's type) that its workspace holds.
struct GemmPlan {
  GemmTile tile;
  std::int64_t depth;     ///< k of a block, padded to even
  std::int64_t panels;    ///< panels of B in a block
  std::int64_t strips;    ///< strips of A in a block
  std::int64_t packed_b;  ///< numbers
  std::int64_t packed_a;  ///< numbers for each worker
  std::int64_t partials;  ///< numbers; 0 if k is not cut
  std::int64_t ranges;    ///< numbers' worth of exponent ranges, one per panel
  int threads;

  /// Panels that a worker packs before it multiplies by them: half a megabyte of float, but fewer
  /// where others would get none of that many.
  [[nodiscard]] std::int64_t panels_in_cache(std::int64_t panels_in_all) const {
    const std::int64_t fit = gemm_few_panels / (depth * tile.columns);
    return std::max<std::int64_t>(1, std::min(fit, panels_in_all / (2 * threads)));
  }
  [[nodiscard]] std::int64_t numbers() const {
    return packed_b + packed_a * threads + partials + ranges;
  }
};

[[nodiscard]] inline GemmPlan plan_gemm(GemmTile tile, int threads, std::int64_t m, std::int64_t n,
                                        std::int64_t k) {
  GemmPlan plan{};
  plan.tile = tile;
  plan.threads = threads;
  const std::int64_t uncut = core::round_up(std::max<std::int64_t>(k, 1), 2);
  plan.depth = uncut > gemm_uncut_depth ? gemm_depth : uncut;
  const std::int64_t all_panels = core::divide_up(n, tile.columns);
  const std::int64_t all_strips = core::divide_up(m, tile.rows);
  // Blocks of columns as even as can be, since each packs all of A.
  const std::int64_t most = gemm_b_block / (plan.depth * tile.columns);
  plan.panels =
      core::divide_up(all_panels, std::max<std::int64_t>(core::divide_up(all_panels, most), 1));
  const std::int64_t strip = tile.rows * core::round_up(plan.depth, 16);
  plan.strips = std::clamp<std::int64_t>(gemm_a_block / strip, 1, all_strips);
  plan.packed_b = plan.panels * tile.columns * plan.depth;
  plan.packed_a = plan.strips * strip;
  plan.partials = plan.depth < k ? all_strips * tile.rows * plan.panels * tile.columns : 0;
  plan.ranges = core::round_up(plan.panels, 16);
  return plan;
}

/// Numbers that serve M x K by K x N and every product of no larger sizes, so that who multiplies
/// pieces asks once, for the largest. Not below plan_gemm(...).numbers(), whose blocks are cut
/// evenly and so may take less for more.
[[nodiscard]] inline std::int64_t gemm_numbers(GemmTile tile, int threads, std::int64_t m,
                                               std::int64_t n, std::int64_t k) {
  const std::int64_t depth = core::round_up(std::clamp<std::int64_t>(k, 1, gemm_uncut_depth), 2);
  const std::int64_t columns = core::round_up(n, tile.columns), rows = core::round_up(m, tile.rows);
  const std::int64_t strip = tile.rows * core::round_up(depth, 16);
  const std::int64_t b = std::min(columns * depth, std::max(gemm_b_block, tile.columns * depth));
  const std::int64_t a = std::min(rows * core::round_up(depth, 16), std::max(gemm_a_block, strip));
  const std::int64_t partials =
      k > gemm_uncut_depth ? rows * std::min(columns, gemm_b_block / gemm_depth) : 0;
  return b + a * threads + partials + core::round_up(columns / tile.columns, 16);
}

/// The exponents of what a panel holds: of its finite non-zero normal numbers, the least and the
/// largest biased ones. {255, 0} if there is none.
struct ExponentRange {
  std::uint16_t least = 255;
  std::uint16_t largest = 0;
};

/// One block: all of C's rows by some panels of columns, over part of k.
template <class E, class C>
struct GemmBlock {
  using Number = numeric::accumulator_t<E>;

  core::MatrixView<const E> a;  ///< all rows, this part of k
  core::MatrixView<const E> b;  ///< this part of k, these columns
  const E* bias;                ///< of these columns; or null
  C* c;                         ///< row 0 of these columns
  std::int64_t ldc;
  bool first, last;  ///< whether chains start, and end, here
  bool accumulate;
  bool resume;  ///< the first chains start from what C holds
  GemmPlan plan;
  Number* packed_b;
  Number* packed_a;
  Number* partials;
  ExponentRange* ranges;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail
