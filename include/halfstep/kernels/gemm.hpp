// SPDX-License-Identifier: MIT
// The matrix product, C = A * B, of which everything in a network is made. One answer on every path
// and number of threads. Not a BLAS: no scale factors, no triangles, no batches.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/detail/avx512_bf16.hpp>
#include <halfstep/kernels/detail/gemm_block.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// What gemm does besides multiplying.
template <class E>
struct GemmOptions {
  const E* bias = nullptr;  ///< [N], added to each row after its chain; null: none
  bool accumulate = false;  ///< add to what C holds, instead of overwriting it
  /// Chains go on from what C, of the accumulator's type, holds, and not from +0.
  bool resume = false;
};

namespace detail {

/// The functions of one path.
template <class E, class C>
struct GemmPath {
  core::Isa isa;
  GemmTile tile;
  void (*pack_b)(const GemmBlock<E, C>&, std::int64_t, std::int64_t);
  void (*tiles)(const GemmBlock<E, C>&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, int,
                bool);
};

template <class E, class C>
[[nodiscard]] GemmPath<E, C> gemm_path(core::Isa isa) {
  if constexpr (std::is_same_v<E, bf16>) {
    if (isa == core::Isa::avx512_bf16) {
      return {isa, avx512_bf16::gemm_tile<E>(), &avx512_bf16::gemm_pack_b<E, C>,
              &avx512_bf16::gemm_tiles<E, C>};
    }
  }
  const core::Isa taken = isa == core::Isa::avx512_bf16 ? core::Isa::avx512 : isa;
  return {taken, HALFSTEP_PICK(taken, gemm_tile<E>)(), HALFSTEP_PICK(taken, gemm_pack_b<E, C>),
          HALFSTEP_PICK(taken, gemm_tiles<E, C>)};
}

template <class E, class C>
void run_gemm(const core::Compute& compute, const GemmPath<E, C>& path, core::MatrixView<const E> a,
              core::MatrixView<const E> b, const GemmOptions<E>& options, C* c, std::int64_t ldc,
              std::byte* workspace) {
  using Number = numeric::accumulator_t<E>;
  const std::int64_t m = a.rows, n = b.cols, k = a.cols;
  GemmBlock<E, C> g{};
  g.plan = plan_gemm(path.tile, compute.threads(), m, n, k);
  auto* const numbers = reinterpret_cast<Number*>(workspace);
  g.packed_b = numbers;
  g.packed_a = g.packed_b + g.plan.packed_b;
  g.partials = g.packed_a + g.plan.packed_a * g.plan.threads;
  g.ranges = reinterpret_cast<ExponentRange*>(g.partials + g.plan.partials);
  if (g.plan.partials == 0) g.partials = nullptr;
  g.ldc = ldc;
  g.accumulate = options.accumulate;
  g.resume = options.resume;

  const std::int64_t strips = core::divide_up(m, path.tile.rows);
  const std::int64_t block = g.plan.panels * path.tile.columns;
  for (std::int64_t j = 0; j < n; j += block) {
    const std::int64_t columns = std::min(block, n - j);
    const std::int64_t panels = core::divide_up(columns, path.tile.columns);
    g.bias = options.bias == nullptr ? nullptr : options.bias + j;
    g.c = c + j;
    std::int64_t k0 = 0;
    do {
      const std::int64_t depth = std::min(k - k0, g.plan.depth);
      g.a = a.block(0, k0, m, depth);
      g.b = b.block(k0, j, depth, columns);
      g.first = k0 == 0;
      g.last = k0 + depth >= k;
      if (strips <= g.plan.strips && strips <= panels) {
        // All of A fits a core's cache: workers share out the columns and pack what they multiply,
        // a few panels at a time, so that B stays in the cache of the core that uses it.
        std::array<bool, core::ThreadPool::max_threads> a_is_packed{};
        const std::int64_t few = g.plan.panels_in_cache(panels);
        compute.share(panels, few, [&](std::int64_t begin, std::int64_t end, int worker) {
          bool& packed = a_is_packed[static_cast<std::size_t>(worker)];
          for (; begin < end; begin += few) {
            const std::int64_t last = std::min(begin + few, end);
            path.pack_b(g, begin, last);
            path.tiles(g, 0, strips, begin, last, worker, packed);
            packed = true;
          }
        });
      } else {
        compute.share(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
          path.pack_b(g, begin, end);
        });
        // Not fewer strips at a time than pay for reading all of B.
        compute.share(strips, std::min<std::int64_t>(8, strips / (2 * compute.threads())),
                      [&](std::int64_t begin, std::int64_t end, int worker) {
                        path.tiles(g, begin, end, 0, panels, worker, false);
                      });
      }
      k0 += depth;
    } while (k0 < k);
  }
}

/// A number of 16 bits: any code, or in every second group of 16 one of the size of weights.
[[nodiscard]] inline bf16 probe(std::uint32_t random, std::int64_t group) {
  const std::uint32_t near_one = (random & 0x807FU) | ((0x7AU + (random >> 7 & 7U)) << 7);
  return bf16::from_bits(static_cast<std::uint16_t>(group % 2 == 0 ? near_one : random & 0xFFFFU));
}

[[nodiscard]] inline bool bf16_path_agrees() {
  std::int64_t different = 0;
  core::Compute{core::Isa::avx512_bf16}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (std::int64_t group = 0; group < 4096 / 16; ++group) {
      bf16 a[32], b[32];
      float c[16], hardware[16], defined[16];
      for (int i = 0; i < 32; ++i) {
        const std::uint32_t random = core::random_bits(0, core::stream("gemm", "probe"),
                                                       static_cast<std::uint64_t>(group * 32 + i));
        a[i] = probe(random, group);
        b[i] = probe(random >> 16, group);
        if (i < 16) c[i] = static_cast<float>(probe(random >> 8, group));
      }
      void (*volatile products)(const bf16*, const bf16*, const float*, float*, float*) =
          &avx512_bf16::pair_products;
      products(a, b, c, hardware, defined);
      for (int i = 0; i < 16; ++i) {
        const bool both_nan = std::isnan(hardware[i]) && std::isnan(defined[i]);
        if (!both_nan &&
            std::bit_cast<std::uint32_t>(hardware[i]) != std::bit_cast<std::uint32_t>(defined[i])) {
          ++different;
        }
      }
    }
  });
  if (different != 0) {
    std::fprintf(stderr,
                 "halfstep: %lld of 4096 products by this CPU's VDPBF16PS are not two FMAs; the "
                 "AVX-512 path computes bf16 products instead.\n",
                 static_cast<long long>(different));
  }
  return different == 0;
}

}  // namespace detail

/// Whether this CPU's bf16 products are those that the library defines: 4096 sums of two products,
/// with extreme and subnormal operands among them, by VDPBF16PS and by fma. Computed at the first
/// call, which reports a mismatch on stderr. Needs a CPU with AVX512_BF16.
[[nodiscard]] inline bool verify_bf16_path() {
  static const bool agrees = detail::bf16_path_agrees();
  return agrees;
}

/// The path that a product of E takes where `isa` is asked for: bf16 alone has one of its own on
/// AVX-512-BF16, if it passes verify_bf16_path.
template <class E>
[[nodiscard]] core::Isa gemm_isa(core::Isa isa) {
  if (isa != core::Isa::avx512_bf16) return isa;
  return std::is_same_v<E, bf16> && verify_bf16_path() ? isa : core::Isa::avx512;
}

/// Bytes of workspace that gemm wants for M x K by K x N on that path and number of threads, and
/// that serve every product of no larger sizes.
/// At most 8 MB (16 for double) and 0.8 MB a thread, where K is below 2049; above, M x 2048 numbers
/// more.
template <class E>
[[nodiscard]] std::int64_t gemm_workspace(const core::Compute& compute, std::int64_t m,
                                          std::int64_t n, std::int64_t k) {
  using Number = numeric::accumulator_t<E>;
  const auto path = detail::gemm_path<E, Number>(gemm_isa<E>(compute.isa));
  return detail::gemm_numbers(path.tile, compute.threads(), m, n, k) *
             static_cast<std::int64_t>(sizeof(Number)) +
         63;
}

/// C = A * B, or C += A * B.
///
///   a [M, K], b [K, N]  any strides: a transpose is a view (`transposed()`)
///   c [M, N]            row-major, element (i, j) at c[i * ldc + j]; E or E's accumulator
///   workspace           gemm_workspace bytes, any alignment
///
/// Each element of C is one chain over the whole of k: sum = fma(a(i, p), b(p, j), sum), from +0, p
/// ascending. For bf16 the members of each pair of p change places, 2q + 1 before 2q, and an odd K
/// is padded with a zero, as VDPBF16PS has it. fp16 operands become floats, exactly. Then the bias
/// is added, rounding in the accumulator's type; then, if `accumulate`, what C holds, rounding in
/// that type again; then it rounds to C's format. All with subnormals read as zero and flushed. A
/// product cut along k (of bf16 at an even place) into one that starts and others that `resume` has
/// the bits of the whole.
///
/// 2 M N K operations. Neither allocates nor reads or writes beyond the matrices.
/// @throws ShapeError if the inner sizes differ, a size is negative, ldc is below N, or the
/// workspace is too small; OptionError for `resume` with `accumulate`, or with C of 16 bits.
template <class E, class C>
requires(numeric::real_element<E> &&
         (std::is_same_v<C, E> ||
          std::is_same_v<C, numeric::accumulator_t<E>>)) void gemm(const core::Compute& compute,
                                                                   core::MatrixView<const E> a,
                                                                   core::MatrixView<const E> b,
                                                                   C* c, std::int64_t ldc,
                                                                   const std::type_identity_t<
                                                                       GemmOptions<E>>& options,
                                                                   std::span<std::byte> workspace) {
  if (a.cols != b.rows || a.rows < 0 || a.cols < 0 || b.cols < 0) {
    core::fail<ShapeError>("gemm: a is ", a.rows, " x ", a.cols, " and b is ", b.rows, " x ",
                           b.cols,
                           "; a's columns and b's rows must be as many. Is a transpose missing?");
  }
  if (ldc < b.cols) {
    core::fail<ShapeError>("gemm: rows of c are ", ldc, " elements apart, but have ", b.cols, ".");
  }
  if (options.resume && (options.accumulate || sizeof(C) == 2)) {
    core::fail<OptionError>(
        "gemm: resume wants C in the accumulator's type, whose chains go on, "
        "and no accumulate. Is C a gradient in 16 bits?");
  }
  const std::int64_t bytes = gemm_workspace<E>(compute, a.rows, b.cols, a.cols);
  if (std::ssize(workspace) < bytes) {
    core::fail<ShapeError>("gemm: the workspace has ", workspace.size(), " bytes; wanted ", bytes,
                           " for ", a.rows, " x ", a.cols, " x ", b.cols, " on ", compute.threads(),
                           " threads. Was it sized for another shape or path?");
  }
  if (a.rows == 0 || b.cols == 0) return;
  const core::PhaseScope phase(compute.counters, core::Phase::products);
  const auto path = detail::gemm_path<E, C>(gemm_isa<E>(compute.isa));
  auto address = reinterpret_cast<std::uintptr_t>(workspace.data());
  std::byte* const aligned = workspace.data() + (-address & 63U);
  detail::run_gemm(compute, path, a, b, options, c, ldc, aligned);
  if (compute.counters != nullptr) {
    ++compute.counters->products[static_cast<std::size_t>(path.isa)];
    compute.counters->flops += 2 * static_cast<std::uint64_t>(a.rows) *
                               static_cast<std::uint64_t>(a.cols) *
                               static_cast<std::uint64_t>(b.cols);
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
