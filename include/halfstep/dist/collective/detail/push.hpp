// SPDX-License-Identifier: MIT
// All-reduce in shared memory: each rank folds its slice of all buffers and stores the result to
// all of them. 2 n bytes moved for each byte of a buffer, which is the least a replicated result
// takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/kernels/fold.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist::detail {

/// Up to here every rank reads all contributions and keeps the result: one meeting, n^2 reads. At
/// 16 KiB on two ranks that takes longer than the push with its two meetings.
[[nodiscard]] constexpr std::int64_t one_shot_bytes(int ranks) {
  return Segment::inline_bytes / std::max(ranks, 2);
}

template <class E>
void fold_slice(Group& group, kernels::Reduction reduction, std::array<E*, max_ranks> buffers,
                core::Range mine) {
  const auto n = static_cast<std::size_t>(group.size());
  std::array<const E*, max_ranks> sources{};
  for (std::size_t i = 0; i < n; ++i) {
    buffers[i] += mine.begin;
    sources[i] = buffers[i];
  }
  kernels::fold<E>(group.compute(), reduction, std::span(sources).first(n),
                   std::span(buffers).first(n), mine.end - mine.begin, group.size());
  const auto bytes = static_cast<std::uint64_t>(mine.end - mine.begin) * n * sizeof(E);
  group.transport().count().bytes_read += bytes;
  group.transport().count().bytes_written += bytes;
}

/// One meeting: small data travels beside the control words.
template <class E>
void one_shot_all_reduce(Group& group, SharedMemory& memory, std::span<E> data,
                         kernels::Reduction reduction) {
  const auto n = static_cast<std::size_t>(group.size());
  if (!data.empty()) {  // whose pointer may be null, which memcpy must not be given
    std::memcpy(memory.inline_data(group.rank()), static_cast<const void*>(data.data()),
                data.size_bytes());
  }
  memory.meet();
  memory.compare_labels();
  std::array<const E*, max_ranks> sources{};
  for (std::size_t i = 0; i < n; ++i)
    sources[i] = reinterpret_cast<const E*>(memory.inline_data(static_cast<int>(i)));
  E* const target = data.data();
  kernels::fold<E>(group.compute(), reduction, std::span(sources).first(n),
                   std::span<E* const>(&target, 1), std::ssize(data), group.size());
  group.transport().count().bytes_read += data.size_bytes() * n;
  group.transport().count().bytes_written += data.size_bytes() * 2;
}

/// All buffers are in the segment: nothing is copied.
template <class E>
void push_all_reduce(Group& group, SharedMemory& memory, std::span<E> data,
                     kernels::Reduction reduction) {
  std::array<E*, max_ranks> buffers{};
  for (int peer = 0; peer < group.size(); ++peer) {
    buffers[static_cast<std::size_t>(peer)] =
        reinterpret_cast<E*>(memory.posted(peer, static_cast<std::int64_t>(data.size_bytes())));
  }
  fold_slice(group, reduction, buffers, slice_of(std::ssize(data), group.size(), group.rank()));
  memory.meet();
}

/// Some are not: chunk by chunk through the stages, of which each rank has two, so that a chunk is
/// copied in and the one before it copied out between the same two meetings. (Copying in only what
/// others fold, and out of their stages, moves half as much and took 1.3 times as long.)
template <class E>
void staged_all_reduce(Group& group, SharedMemory& memory, std::span<E> data,
                       kernels::Reduction reduction) {
  constexpr std::int64_t elements = Segment::stage_bytes / std::int64_t{sizeof(E)};
  const std::int64_t chunks = core::divide_up(std::ssize(data), elements);
  const auto chunk = [&](std::int64_t index) {
    const auto begin = static_cast<std::size_t>(index * elements);
    return data.subspan(begin, std::min(static_cast<std::size_t>(elements), data.size() - begin));
  };
  const auto stage = [&](int peer, std::int64_t index) {
    return reinterpret_cast<E*>(memory.stage(peer, static_cast<std::uint64_t>(index)));
  };
  const auto copy_in = [&](std::int64_t index) {
    std::memcpy(static_cast<void*>(stage(group.rank(), index)),
                static_cast<const void*>(chunk(index).data()), chunk(index).size_bytes());
  };
  copy_in(0);
  memory.meet();
  for (std::int64_t index = 0; index < chunks; ++index) {
    std::array<E*, max_ranks> buffers{};
    for (int peer = 0; peer < group.size(); ++peer)
      buffers[static_cast<std::size_t>(peer)] = stage(peer, index);
    fold_slice(group, reduction, buffers,
               slice_of(std::ssize(chunk(index)), group.size(), group.rank()));
    if (index + 1 < chunks) copy_in(index + 1);
    memory.meet();
    std::memcpy(static_cast<void*>(chunk(index).data()),
                static_cast<const void*>(stage(group.rank(), index)), chunk(index).size_bytes());
  }
  group.transport().count().bytes_staged += 2 * data.size_bytes();
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist::detail
