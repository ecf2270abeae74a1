// SPDX-License-Identifier: MIT
// The ring: partial results travel from neighbour to neighbour until each slice is complete at one
// rank, then the complete slices travel on. The classic, over any transport; its order of sums
// rotates with the slice.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/collective/detail/direct.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// Partial results travel as P: E's accumulator, or double for averages.
///
/// With n ranks, rank r in step s = 0 … n - 2 sends its partial result of slice r - 1 - s to rank
/// r + 1 and receives slice r - 2 - s from rank r - 1, to which it adds its own (all modulo n). So
/// slice k is ((x[k+1] o x[k+2]) o …) o x[k], complete at rank k. Workspace: a slice and two
/// chunks.
template <class P, class E>
void ring_all_reduce(Group& group, const Label& label, std::span<E> data, const Parts& parts,
                     kernels::Reduction reduction) {
  const int n = group.size(), rank = group.rank();
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  constexpr std::int64_t elements = message_bytes / std::int64_t{sizeof(P)};
  const std::int64_t most = longest(parts, n);
  const std::int64_t room = std::min(elements, most);
  auto* const carry = reinterpret_cast<P*>(
      group.workspace(std::max<std::int64_t>(1, most + 2 * room) * std::int64_t{sizeof(P)}).data());
  P* const inbox = carry + most;
  P* const own = inbox + room;
  const auto slice = [&](int number) {
    return parts[static_cast<std::size_t>((number % n + n) % n)];
  };
  const auto as_partial = [&](core::Range range, P* to) {
    const std::span<const E> from = elements_of(std::span<const E>(data), range);
    kernels::cast<E, P>(group.compute(), from, std::span(to, from.size()));
  };
  as_partial(slice(rank - 1), carry);
  for (int step = 0; step < n - 1; ++step) {
    const core::Range sent = slice(rank - 1 - step), received = slice(rank - 2 - step);
    const bool last = step == n - 2;
    for (std::int64_t at = 0; at < most; at += elements) {
      const core::Range out = chunk_of({0, sent.end - sent.begin}, elements, at / elements);
      const core::Range in = chunk_of(received, elements, at / elements);
      const auto length = static_cast<std::size_t>(in.end - in.begin);
      const Outgoing outgoing{
          next, std::as_bytes(
                    std::span(carry + out.begin, static_cast<std::size_t>(out.end - out.begin)))};
      const Incoming incoming{previous, std::as_writable_bytes(std::span(inbox, length))};
      group.transport().exchange(label, {&outgoing, 1}, {&incoming, 1});
      as_partial(in, own);
      P* const target = carry + (in.begin - received.begin);
      const std::array<const P*, 2> pair{inbox, own};
      // An average is a sum until the last contribution has come.
      const auto rule =
          last || reduction != kernels::Reduction::average ? reduction : kernels::Reduction::sum;
      kernels::fold<P>(group.compute(), rule, pair, std::span<P* const>(&target, 1),
                       in.end - in.begin, n);
    }
  }
  const std::span<E> complete = elements_of(data, slice(rank));
  kernels::cast<P, E>(group.compute(), std::span<const P>(carry, complete.size()), complete);
  for (int step = 0; step < n - 1; ++step) {
    const Outgoing outgoing{next, std::as_bytes(elements_of(data, slice(rank - step)))};
    const Incoming incoming{previous,
                            std::as_writable_bytes(elements_of(data, slice(rank - 1 - step)))};
    group.transport().exchange(label, {&outgoing, 1}, {&incoming, 1});
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
