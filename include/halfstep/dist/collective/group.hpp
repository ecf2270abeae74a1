// SPDX-License-Identifier: MIT
// The ranks that work together, as one of them sees it: a transport and what kernels are handed.
// What every collective is called on.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Rank r's part of the cut of [0, count) among `ranks`: whole runs of 64 elements, so that no two
/// ranks write one cache line; the later parts may be shorter or empty.
[[nodiscard]] constexpr core::Range slice_of(std::int64_t count, int ranks, int rank) {
  constexpr std::int64_t unit = 64;
  const core::Range units = core::part_of(core::divide_up(count, unit), ranks, rank);
  return {std::min(units.begin * unit, count), std::min(units.end * unit, count)};
}

/// The part of an array that a range names.
template <class T>
[[nodiscard]] std::span<T> elements_of(std::span<T> whole, core::Range range) {
  return whole.subspan(static_cast<std::size_t>(range.begin),
                       static_cast<std::size_t>(range.end - range.begin));
}

/// What the collectives of one name on elements of one format moved.
struct CollectiveTraffic {
  std::array<char, 16> operation{};  ///< as in Label
  std::array<char, 8> format{};
  std::int64_t calls = 0;
  Traffic traffic;

  /// "all_reduce F32".
  [[nodiscard]] std::string name() const {
    return core::text(detail::word(operation), ' ', detail::word(format));
  }
};

/// Transport and Runtime must outlive it. Belongs to the thread that trains: groups that share a
/// transport take turns, in the same order on all ranks.
class Group {
 public:
  Group(Transport& transport, Runtime& runtime)
      : transport_(transport), compute_(runtime.compute()) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const { return transport_.rank(); }
  [[nodiscard]] int size() const { return transport_.size(); }
  [[nodiscard]] Transport& transport() const { return transport_; }
  [[nodiscard]] const core::Compute& compute() const { return compute_; }
  [[nodiscard]] const Traffic& traffic() const { return transport_.traffic(); }
  /// The same of this group alone, for each collective, in the order of their first calls.
  [[nodiscard]] std::span<const CollectiveTraffic> collectives() const { return collectives_; }

  // For collectives.

  /// One operation, from its label to its end. Ranks that call something else hear of it: in shared
  /// memory before any data moves, in messages at the first one.
  class Operation {
   public:
    /// `data` is what others may read and write, if it lies in shared memory.
    Operation(Group& group, std::string_view name, std::string_view format, std::string_view detail,
              std::int64_t count, std::uint64_t cut, std::span<const std::byte> data = {})
        : Operation(group, name, format, detail, count, cut, nullptr) {
      if (SharedMemory* const shared = group.transport_.shared()) shared->post(label_, data);
    }
    /// One of messages alone, at which ranks do not meet in shared memory either.
    Operation(Group& group, std::string_view name, std::string_view format, std::string_view detail,
              std::int64_t count, std::uint64_t cut, std::nullptr_t /*messages*/)
        : Operation(group,
                    dist::label(name, format, detail, group.transport_.begin(name), count, cut)) {
      group.transport_.finish();  // what start_all_gather has begun
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    ~Operation() {
      CollectiveTraffic& counted = group_.collectives_[counted_];
      ++counted.calls;
      counted.traffic += group_.traffic() - before_;
      group_.transport_.end();
    }
    [[nodiscard]] const Label& label() const { return label_; }

   private:
    Operation(Group& group, const Label& label)
        : group_(group),
          label_(label),
          counted_(group.number_of(label_)),
          before_(group.traffic()) {}

    Group& group_;
    Label label_;
    std::size_t counted_;  // in collectives_; found here, since a destructor may not throw
    Traffic before_;
  };

  /// Bytes for one operation, kept for the next.
  [[nodiscard]] std::span<std::byte> workspace(std::int64_t bytes) {
    if (workspace_.size() < bytes) workspace_ = core::AlignedBuffer(bytes);
    return {workspace_.data(), static_cast<std::size_t>(bytes)};
  }

 private:
  [[nodiscard]] std::size_t number_of(const Label& label) {
    for (std::size_t i = 0; i < collectives_.size(); ++i) {
      if (collectives_[i].operation == label.operation && collectives_[i].format == label.format)
        return i;
    }
    collectives_.push_back({label.operation, label.format, 0, {}});
    return collectives_.size() - 1;
  }

  Transport& transport_;
  core::Compute compute_;
  core::AlignedBuffer workspace_;
  std::vector<CollectiveTraffic> collectives_;
};

namespace detail {

/// The format's name in a label.
template <class T>
[[nodiscard]] constexpr std::string_view format_name() {
  if constexpr (numeric::real_element<T>) {
    return numeric::to_string(numeric::dtype_of<T>);
  } else {
    return "bytes";
  }
}

/// Of counts per rank, for a label: FNV-1a over their bytes.
[[nodiscard]] constexpr std::uint64_t hash_of(std::span<const std::int64_t> counts,
                                              std::uint64_t start) {
  std::uint64_t hash = 0xCBF29CE484222325U ^ start;
  for (const std::int64_t count : counts) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (static_cast<std::uint64_t>(count) >> (8 * byte) & 0xFFU)) * 0x100000001B3U;
    }
  }
  return hash;
}

/// Where each rank's part begins. @throws ShapeError unless there is a count >= 0 for each rank.
template <class Counts>
[[nodiscard]] std::int64_t checked_sum(std::string_view function, int ranks, const Counts& counts) {
  std::int64_t sum = 0;
  bool valid = std::ssize(counts) == ranks;
  for (const std::int64_t count : counts) {
    valid = valid && count >= 0;
    sum += count;
  }
  if (!valid) {
    core::fail<ShapeError>(function, ": ", counts.size(), " counts, the sum being ", sum,
                           "; wanted one of at least 0 for each of ", ranks, " ranks");
  }
  return sum;
}

}  // namespace detail
}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
