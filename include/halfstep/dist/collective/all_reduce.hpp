// SPDX-License-Identifier: MIT
// Every rank's array reduced, element by element, to the same array on all ranks. By the in-place
// push in shared memory, by direct exchange over messages, or, asked for, by the ring.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/detail/direct.hpp>
#include <halfstep/dist/collective/detail/push.hpp>
#include <halfstep/dist/collective/detail/ring.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

using kernels::Reduction;

enum class Algorithm : std::uint8_t { best, push, direct, ring };

/// @throws OptionError for another name.
[[nodiscard]] inline Algorithm algorithm(std::string_view name) {
  if (name == "best") return Algorithm::best;
  if (name == "push") return Algorithm::push;
  if (name == "direct") return Algorithm::direct;
  if (name == "ring") return Algorithm::ring;
  core::fail<OptionError>("all-reduce algorithm '", name,
                          "' is unknown; there are best, push, direct and ring");
}

/// data[i] = x[0][i] o x[1][i] o …, x[r] being what rank r gave in `data`: the same bits on all
/// ranks.
///
/// The order is the house's tree over the ranks, with the rounding that kernels::fold states: of
/// 16-bit data the sum is kept in float and rounded once. It depends on nothing but the number of
/// ranks, so neither algorithm nor transport nor length nor alignment nor how arrays are cut into
/// calls shows in the bits. The one exception is the ring beyond two ranks: with slice_of(n, ranks,
/// k) complete at rank k, its order there is ((x[k+1] o x[k+2]) o …) o x[k]; rounded once as well.
///
/// Bytes, S being those of `data` and n the ranks:
///   push    2 n S read and written by all ranks together; each reads n and writes n slices. Up to
///           detail::one_shot_bytes each rank reads n S and writes 2 S. Data outside the shared
///           memory is copied in and out: SharedMemory::allocate avoids it.
///   direct  2 (n - 1) / n S sent by each rank; exactly: the slices of the others, and n - 1 times
///           its own
///   ring    the same for float and double; partial sums of 16-bit data travel as float, and those
///           of averages as double
/// Memory: nothing, n - 1 messages of 256 KiB, or a slice and two of those.
/// @throws OptionError for push where no memory is shared; what the transport throws.
template <numeric::real_element E>
void all_reduce(Group& group, std::span<E> data, Reduction reduction = Reduction::sum,
                Algorithm algorithm = Algorithm::best) {
  SharedMemory* const memory = group.transport().shared();
  if (algorithm == Algorithm::push && memory == nullptr) {
    core::fail<OptionError>("all_reduce: push needs memory that ranks share, which transport '",
                            group.transport().name(), "' has not. Use direct or ring.");
  }
  const int n = group.size();
  if (algorithm == Algorithm::best)
    algorithm = memory != nullptr ? Algorithm::push : Algorithm::direct;
  const Group::Operation operation(group, "all_reduce", detail::format_name<E>(),
                                   kernels::to_string(reduction), std::ssize(data),
                                   static_cast<std::uint64_t>(algorithm), std::as_bytes(data));
  if (n == 1) return;
  if (algorithm == Algorithm::push &&
      static_cast<std::int64_t>(data.size_bytes()) <= detail::one_shot_bytes(n)) {
    detail::one_shot_all_reduce(group, *memory, data, reduction);
    return;
  }
  if (memory != nullptr) {
    memory->meet();
    memory->compare_labels();
  }
  if (algorithm == Algorithm::push) {
    if (memory->all_posted_here()) {
      detail::push_all_reduce(group, *memory, data, reduction);
    } else {
      detail::staged_all_reduce(group, *memory, data, reduction);
    }
    return;
  }
  detail::Parts parts{};
  for (int r = 0; r < n; ++r)
    parts[static_cast<std::size_t>(r)] = slice_of(std::ssize(data), n, r);
  if (algorithm == Algorithm::direct) {
    const std::span<E> mine = elements_of(data, parts[static_cast<std::size_t>(group.rank())]);
    detail::direct_reduce_scatter<E>(group, operation.label(), data, parts, mine, reduction);
    detail::direct_all_gather<E>(group, operation.label(), mine, data, parts);
  } else if (reduction == Reduction::average) {
    detail::ring_all_reduce<double>(group, operation.label(), data, parts, reduction);
  } else {
    detail::ring_all_reduce<numeric::accumulator_t<E>>(group, operation.label(), data, parts,
                                                       reduction);
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
