// SPDX-License-Identifier: MIT
// Direct exchange: every rank sends each other rank the part that is that rank's, folds the parts
// that come, and sends the result to all. The bytes of a ring in one hop, with every contribution
// at hand at once, so that the house's order is kept and rounding happens once.
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
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/kernels/fold.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// Bytes of one message: what every other rank sends at a time stays in a core's cache.
inline constexpr std::int64_t message_bytes = std::int64_t{256} << 10;

/// Where the part of each rank lies in a whole array.
using Parts = std::array<core::Range, max_ranks>;

/// Chunk number `index` of a range, empty behind its end.
[[nodiscard]] inline core::Range chunk_of(core::Range range, std::int64_t elements,
                                          std::int64_t index) {
  const std::int64_t begin = std::min(range.begin + index * elements, range.end);
  return {begin, std::min(begin + elements, range.end)};
}
[[nodiscard]] inline std::int64_t longest(const Parts& parts, int ranks) {
  std::int64_t most = 0;
  for (int r = 0; r < ranks; ++r) {
    const core::Range range = parts[static_cast<std::size_t>(r)];
    most = std::max(most, range.end - range.begin);
  }
  return most;
}

/// out = this rank's part of the fold over all ranks' `whole`. out may lie at that place in whole.
/// Workspace: (ranks - 1) messages.
template <class E>
void direct_reduce_scatter(Group& group, const Label& label, std::span<const E> whole,
                           const Parts& parts, std::span<E> out, kernels::Reduction reduction) {
  const int n = group.size(), rank = group.rank();
  constexpr std::int64_t elements = message_bytes / std::int64_t{sizeof(E)};
  const core::Range mine = parts[static_cast<std::size_t>(rank)];
  const auto room = std::min(elements, mine.end - mine.begin);
  auto* const inbox = reinterpret_cast<E*>(
      group.workspace(std::max<std::int64_t>(1, (n - 1) * room) * std::int64_t{sizeof(E)}).data());
  const std::int64_t rounds = core::divide_up(longest(parts, n), elements);
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::array<Outgoing, max_ranks> sends;
    std::array<Incoming, max_ranks> receives;
    std::array<const E*, max_ranks> sources{};
    const core::Range here = chunk_of(mine, elements, round);
    const auto length = static_cast<std::size_t>(here.end - here.begin);
    std::size_t outgoing = 0, incoming = 0;
    for (int peer = 0; peer < n; ++peer) {
      if (peer == rank) {
        sources[static_cast<std::size_t>(peer)] = whole.data() + here.begin;
        continue;
      }
      const core::Range there = chunk_of(parts[static_cast<std::size_t>(peer)], elements, round);
      if (there.begin < there.end)
        sends[outgoing++] = {peer, std::as_bytes(elements_of(whole, there))};
      E* const from = inbox + static_cast<std::int64_t>(incoming) * room;
      sources[static_cast<std::size_t>(peer)] = from;
      if (length > 0)
        receives[incoming++] = {peer, std::as_writable_bytes(std::span(from, length))};
    }
    group.transport().exchange(label, std::span(sends).first(outgoing),
                               std::span(receives).first(incoming));
    E* const target = out.data() + (here.begin - mine.begin);
    kernels::fold<E>(group.compute(), reduction,
                     std::span(sources).first(static_cast<std::size_t>(n)),
                     std::span<E* const>(&target, 1), here.end - here.begin, n);
  }
}

/// Every rank's `mine` into its part of out, on all ranks, once the transport has finished. mine
/// may lie at its place in out.
template <class T>
void start_direct_all_gather(Group& group, const Label& label, std::span<const T> mine,
                             std::span<T> out, const Parts& parts) {
  const int n = group.size(), rank = group.rank();
  std::array<Outgoing, max_ranks> sends;
  std::array<Incoming, max_ranks> receives;
  std::size_t outgoing = 0, incoming = 0;
  for (int peer = 0; peer < n; ++peer) {
    const std::span<T> there = elements_of(out, parts[static_cast<std::size_t>(peer)]);
    if (peer == rank) {
      if (there.data() != mine.data() && !mine.empty())
        std::copy(mine.begin(), mine.end(), there.begin());
      continue;
    }
    if (!mine.empty()) sends[outgoing++] = {peer, std::as_bytes(mine)};
    if (!there.empty()) receives[incoming++] = {peer, std::as_writable_bytes(there)};
  }
  group.transport().start(label, std::span(sends).first(outgoing),
                          std::span(receives).first(incoming));
}
template <class T>
void direct_all_gather(Group& group, const Label& label, std::span<const T> mine, std::span<T> out,
                       const Parts& parts) {
  start_direct_all_gather(group, label, mine, out, parts);
  group.transport().finish();
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
