// SPDX-License-Identifier: MIT
// The collectives beside all-reduce: barrier, broadcast, reduce-scatter, all-gather, with counts of
// each rank that may differ and be zero.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/detail/direct.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

[[nodiscard]] inline Parts parts_of(std::span<const std::int64_t> counts) {
  Parts parts{};
  std::int64_t begin = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    parts[r] = {begin, begin + counts[r]};
    begin += counts[r];
  }
  return parts;
}

/// In shared memory every operation begins with a meeting at which labels are compared.
inline void meet_and_compare(Group& group) {
  if (SharedMemory* const memory = group.transport().shared()) {
    memory->meet();
    memory->compare_labels();
  }
}

}  // namespace detail

/// Returns when all ranks have called it.
inline void barrier(Group& group) {
  const Group::Operation operation(group, "barrier", "bytes", "", 0, 0);
  if (group.transport().shared() != nullptr) {
    detail::meet_and_compare(group);
    return;
  }
  std::array<Outgoing, max_ranks> sends;
  std::array<Incoming, max_ranks> receives;
  std::size_t peers = 0;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) continue;
    sends[peers] = {peer, {}};
    receives[peers++] = {peer, {}};
  }
  group.transport().exchange(operation.label(), std::span(sends).first(peers),
                             std::span(receives).first(peers));
}

/// data on every rank = data on rank `root`.
/// Sent by the root: n - 1 times S; in shared memory, if the root's data lies there, each other
/// rank reads S.
/// @throws OptionError if there is no such rank.
template <class T>
requires std::is_trivially_copyable_v<T>
void broadcast(Group& group, std::span<T> data, int root) {
  if (root < 0 || root >= group.size()) {
    core::fail<OptionError>("broadcast: the root is rank ", root, ", but there are ", group.size(),
                            " ranks");
  }
  const Group::Operation operation(group, "broadcast", detail::format_name<T>(),
                                   core::text("root ", root), std::ssize(data), sizeof(T),
                                   std::as_bytes(data));
  detail::meet_and_compare(group);
  SharedMemory* const memory = group.transport().shared();
  if (memory != nullptr) {
    if (const std::byte* const from =
            memory->posted(root, static_cast<std::int64_t>(data.size_bytes()))) {
      if (group.rank() != root && !data.empty()) {
        std::memcpy(static_cast<void*>(data.data()), from, data.size_bytes());
        group.transport().count().bytes_read += data.size_bytes();
      }
      memory->meet();
      return;
    }
  }
  std::array<Outgoing, max_ranks> sends;
  Incoming receive{root, std::as_writable_bytes(data)};
  std::size_t outgoing = 0;
  for (int peer = 0; peer < group.size(); ++peer) {
    if (group.rank() == root && peer != root) sends[outgoing++] = {peer, std::as_bytes(data)};
  }
  group.transport().exchange(operation.label(), std::span(sends).first(outgoing),
                             {&receive, group.rank() == root ? std::size_t{0} : std::size_t{1}});
}

/// out = part `rank` of the reduction of all ranks' `in`, in the order and with the rounding of
/// all_reduce.
///
///   in      [sum of counts]  the parts of rank 0, 1, … one after the other
///   out     [counts[rank]]   may be this rank's part of `in`
///   counts  one of at least 0 for each rank, the same on all ranks
///
/// Sent by each rank: what belongs to the others. In shared memory, if every rank's `in` lies
/// there, each rank reads n parts and writes one, and nothing is sent.
/// @throws ShapeError for counts that do not fit.
template <numeric::real_element E>
void reduce_scatter(Group& group, std::span<const E> in, std::type_identity_t<std::span<E>> out,
                    std::span<const std::int64_t> counts,
                    kernels::Reduction reduction = kernels::Reduction::sum) {
  const std::int64_t sum = detail::checked_sum("reduce_scatter", group.size(), counts);
  const auto rank = static_cast<std::size_t>(group.rank());
  if (sum != std::ssize(in) || counts[rank] != std::ssize(out)) {
    core::fail<ShapeError>("reduce_scatter: in has ", in.size(), " elements and out ", out.size(),
                           ", but the counts sum to ", sum, " and that of rank ", rank, " is ",
                           counts[rank]);
  }
  const detail::Parts parts = detail::parts_of(counts);
  const Group::Operation operation(group, "reduce_scatter", detail::format_name<E>(),
                                   kernels::to_string(reduction), sum,
                                   detail::hash_of(counts, sizeof(E)), std::as_bytes(in));
  detail::meet_and_compare(group);
  SharedMemory* const memory = group.transport().shared();
  if (memory == nullptr || !memory->all_posted_here()) {
    detail::direct_reduce_scatter<E>(group, operation.label(), in, parts, out, reduction);
    return;
  }
  std::array<const E*, max_ranks> sources{};
  for (int peer = 0; peer < group.size(); ++peer) {
    sources[static_cast<std::size_t>(peer)] =
        reinterpret_cast<const E*>(
            memory->posted(peer, static_cast<std::int64_t>(in.size_bytes()))) +
        parts[rank].begin;
  }
  E* const target = out.data();
  const auto n = static_cast<std::size_t>(group.size());
  kernels::fold<E>(group.compute(), reduction, std::span(sources).first(n),
                   std::span<E* const>(&target, 1), counts[rank], group.size());
  group.transport().count().bytes_read += out.size_bytes() * n;
  group.transport().count().bytes_written += out.size_bytes();
  memory->meet();
}

namespace detail {
template <class T>
void check_all_gather(Group& group, std::span<const T> in, std::span<T> out,
                      std::span<const std::int64_t> counts) {
  const std::int64_t sum = checked_sum("all_gather", group.size(), counts);
  const auto rank = static_cast<std::size_t>(group.rank());
  if (sum != std::ssize(out) || counts[rank] != std::ssize(in)) {
    core::fail<ShapeError>("all_gather: in has ", in.size(), " elements and out ", out.size(),
                           ", but the counts sum to ", sum, " and that of rank ", rank, " is ",
                           counts[rank]);
  }
}
}  // namespace detail

/// The first half of an all_gather by messages, whatever the transport: sends and receives what can
/// move without waiting. `out` is complete, and `in` free again, when the transport's `finish`
/// returns, which the next operation calls too; `advance` moves more. The ranks do not meet, so one
/// that began something else is noticed when its message comes, or by the timeout.
/// @throws ShapeError for counts that do not fit.
template <class T>
requires std::is_trivially_copyable_v<T>
void start_all_gather(Group& group, std::span<const T> in, std::type_identity_t<std::span<T>> out,
                      std::span<const std::int64_t> counts) {
  detail::check_all_gather(group, in, out, counts);
  const Group::Operation operation(group, "all_gather", detail::format_name<T>(), "",
                                   std::ssize(out), detail::hash_of(counts, sizeof(T)), nullptr);
  detail::start_direct_all_gather<T>(group, operation.label(), in, out, detail::parts_of(counts));
}

/// out = every rank's `in`, one after the other, on all ranks.
///
///   in      [counts[rank]]   may be this rank's part of `out`
///   out     [sum of counts]
///   counts  one of at least 0 for each rank, the same on all ranks
///
/// Sent by each rank: n - 1 times its part. In shared memory, if every rank's `in` lies there, each
/// rank reads and writes the parts of the others, and nothing is sent.
/// @throws ShapeError for counts that do not fit.
template <class T>
requires std::is_trivially_copyable_v<T>
void all_gather(Group& group, std::span<const T> in, std::type_identity_t<std::span<T>> out,
                std::span<const std::int64_t> counts) {
  detail::check_all_gather(group, in, out, counts);
  const detail::Parts parts = detail::parts_of(counts);
  const Group::Operation operation(group, "all_gather", detail::format_name<T>(), "",
                                   std::ssize(out), detail::hash_of(counts, sizeof(T)),
                                   std::as_bytes(in));
  detail::meet_and_compare(group);
  SharedMemory* const memory = group.transport().shared();
  if (memory == nullptr || !memory->all_posted_here()) {
    detail::direct_all_gather<T>(group, operation.label(), in, out, parts);
    return;
  }
  for (int peer = 0; peer < group.size(); ++peer) {
    const std::span<T> to = elements_of(out, parts[static_cast<std::size_t>(peer)]);
    const std::byte* const from = memory->posted(peer, static_cast<std::int64_t>(to.size_bytes()));
    if (to.empty() || static_cast<const void*>(to.data()) == static_cast<const void*>(from))
      continue;
    std::memcpy(static_cast<void*>(to.data()), from, to.size_bytes());
    group.transport().count().bytes_read += to.size_bytes();
    group.transport().count().bytes_written += to.size_bytes();
  }
  memory->meet();
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
