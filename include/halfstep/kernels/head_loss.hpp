// SPDX-License-Identifier: MIT
// A language model's head and its loss in one: logits, cross-entropy and the gradients of both,
// some rows at a time, so that no array of rows x classes exists. The bits of the kernels it is
// made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/kernels/cross_entropy.hpp>
#include <halfstep/kernels/gemm.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

struct HeadLossOptions {
  std::int32_t ignore = -1;  ///< a target of this value has no loss, no gradient and is not counted
  std::int64_t chunk = 0;    ///< rows at a time, even; 0: as many as make 64 MB of float logits
};

namespace detail {

/// Rows at a time: few enough that their logits are 64 MB of float at most (or 16 rows), as many as
/// that allows, since each chunk packs the weight and reads and writes its gradient once. Even: no
/// pair of bf16 is cut.
[[nodiscard]] inline std::int64_t head_chunk(std::int64_t rows, std::int64_t classes,
                                             std::int64_t wanted) {
  if (wanted > 0) return wanted;
  const std::int64_t most =
      std::max<std::int64_t>(16, (std::int64_t{16} << 20) / std::max<std::int64_t>(classes, 1));
  const std::int64_t chunks = std::max<std::int64_t>(1, core::divide_up(rows, most));
  return core::round_up(core::divide_up(rows, chunks), 16);
}

/// Where a chunk's arrays lie in the workspace: bytes from its first multiple of 64.
template <class E>
struct HeadLayout {
  std::int64_t chunk, logits, gradient, losses, lse, product, bytes;

  HeadLayout(const core::Compute& compute, std::int64_t rows, std::int64_t width,
             std::int64_t classes, std::int64_t wanted_chunk)
      : chunk(std::min(head_chunk(rows, classes, wanted_chunk), rows)) {
    using A = numeric::accumulator_t<E>;
    const auto after = [](std::int64_t start, std::int64_t count, std::size_t size) {
      return start + core::round_up(count * static_cast<std::int64_t>(size), 64);
    };
    logits = 0;
    // In the accumulator's own type the gradient takes the place of the logits.
    gradient = std::is_same_v<A, E> ? logits : after(logits, chunk * classes, sizeof(A));
    losses = after(gradient, chunk * classes, sizeof(E));
    lse = after(losses, rows, sizeof(A));
    product = after(lse, chunk, sizeof(A));
    bytes = 63 + product +
            std::max({gemm_workspace<E>(compute, chunk, classes, width),
                      gemm_workspace<E>(compute, chunk, width, classes),
                      gemm_workspace<E>(compute, classes, width, chunk)});
  }
};

}  // namespace detail

/// Bytes of workspace that head_loss wants on compute's path and number of threads.
template <numeric::real_element E>
[[nodiscard]] std::int64_t head_loss_workspace(const core::Compute& compute, std::int64_t rows,
                                               std::int64_t width, std::int64_t classes,
                                               const HeadLossOptions& options = {}) {
  return detail::HeadLayout<E>(compute, rows, width, classes, options.chunk).bytes;
}

/// The summed negative log-likelihood of targets under softmax(x w^T), and the gradients of
/// seed times that sum.
///
///   x          [rows, width]     w [classes, width], both without gaps
///   targets    [rows]            in [0, classes) or options.ignore
///   dx, dw     as x and w, dw in the accumulator's type; overwritten. Null: not computed
///   workspace  head_loss_workspace<E>(...) bytes, any alignment
///
/// Bit for bit linear_forward to the accumulator's type, cross_entropy, cross_entropy_backward, its
/// gradient rounded to E, linear_backward_input and linear_backward_weight, whatever the chunk:
/// rows are independent but in dw, whose chains resume.
///
/// 2 rows width classes operations, three times that with both gradients. Allocates nothing.
/// @throws ShapeError if sizes do not fit, the chunk is odd or the workspace is too small,
/// DataError for a target out of range, all before anything is written. Source: the gradient in the
/// forward pass is Liger's (Hsu et al., 2024), section 3.2.
template <numeric::real_element E>
CrossEntropySum head_loss(const core::Compute& compute, core::MatrixView<const E> x,
                          core::MatrixView<const E> w, std::span<const std::int32_t> targets,
                          numeric::accumulator_t<E> seed, E* dx, numeric::accumulator_t<E>* dw,
                          std::span<std::byte> workspace, const HeadLossOptions& options = {}) {
  using A = numeric::accumulator_t<E>;
  const std::int64_t rows = x.rows, width = x.cols, classes = w.rows;
  if (w.cols != width || std::ssize(targets) != rows || !x.contiguous() || !w.contiguous() ||
      classes < 1 || options.chunk < 0 || options.chunk % 2 != 0) {
    core::fail<ShapeError>("head_loss: x is ", rows, " x ", width, ", w ", classes, " x ", w.cols,
                           ", with ", targets.size(), " targets and chunks of ", options.chunk,
                           ". Wanted one width, no gaps, a target for each row, an even chunk.");
  }
  const detail::HeadLayout<E> layout(compute, rows, width, classes, options.chunk);
  if (std::ssize(workspace) < layout.bytes) {
    core::fail<ShapeError>("head_loss: the workspace has ", workspace.size(), " bytes; wanted ",
                           layout.bytes, ". Was it sized for another shape or path?");
  }
  CrossEntropySum result;
  static_cast<void>(detail::check_targets("head_loss", static_cast<std::size_t>(rows * classes),
                                          targets, options.ignore, result.count));
  if (rows == 0) {
    if (dw != nullptr) std::fill_n(dw, classes * width, A{0});
    return result;
  }
  const core::PhaseScope phase(compute.counters, core::Phase::head);
  std::byte* const base =
      workspace.data() + (-reinterpret_cast<std::uintptr_t>(workspace.data()) & 63U);
  A* const logits = reinterpret_cast<A*>(base + layout.logits);
  E* const slopes = reinterpret_cast<E*>(base + layout.gradient);
  A* const losses = reinterpret_cast<A*>(base + layout.losses);
  A* const lse = reinterpret_cast<A*>(base + layout.lse);
  const std::span<std::byte> product =
      workspace.subspan(static_cast<std::size_t>(base - workspace.data() + layout.product));
  for (std::int64_t first = 0; first < rows; first += layout.chunk) {
    const std::int64_t count = std::min(layout.chunk, rows - first);
    const auto n = static_cast<std::size_t>(count);
    const auto part = x.block(first, 0, count, width);
    const auto wanted = targets.subspan(static_cast<std::size_t>(first), n);
    const std::span<A> scores{logits, static_cast<std::size_t>(count * classes)};
    gemm<E, A>(compute, part, w.transposed(), logits, classes, {}, product);
    result.correct += cross_entropy<A>(compute, scores, wanted, {losses + first, n}, {lse, n},
                                       {.ignore = options.ignore})
                          .correct;
    if (dx == nullptr && dw == nullptr) continue;
    cross_entropy_backward<A, E>(compute, scores, wanted, {lse, n}, seed, {slopes, scores.size()},
                                 {.ignore = options.ignore});
    const core::MatrixView<const E> dy{slopes, count, classes, classes, 1};
    if (dx != nullptr) gemm<E, E>(compute, dy, w, dx + first * width, width, {}, product);
    if (dw != nullptr) {
      gemm<E, A>(compute, dy.transposed(), part, dw, width, {.resume = first > 0}, product);
    }
  }
  result.sum = detail::sum_of_losses<A>(compute, {losses, targets.size()}, targets, options.ignore);
  return result;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
