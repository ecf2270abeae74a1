// SPDX-License-Identifier: MIT
// State that ranks hold in parts, or all alike, as one process would show it: what checkpoints are
// written from and read into, so that they are the same files for any number of ranks and any stage
// of ZeRO. Not for: files (io/).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// dist::WholeState whole(group, optimizer);
///
///   whole.gather();                            // all ranks
///   if (group.rank() == 0) save or load by whole.visit_state(visitor);
///   whole.scatter();                           // all ranks, after a load
///   whole.drop();
///
/// Tensors are shown in the order of their names. What all ranks hold alike, and scalars, are taken
/// from rank 0, and given to all; of scalars every rank has to have as many, in one order. Group
/// and part must outlive it.
///
/// Memory between gather and drop: a copy of the whole state on rank 0; while tensors travel, one
/// of the largest on the others, and in scatter a copy of what each holds. In a group of one:
/// nothing, the part is visited itself.
template <class Part>
class WholeState {
 public:
  WholeState(Group& group, Part& part) : group_(group), part_(part) {}
  WholeState(const WholeState&) = delete;
  WholeState& operator=(const WholeState&) = delete;

  /// Rank 0 then has all of the state as it is now.
  /// @throws StateError naming a tensor of which the ranks together do not hold every element once,
  /// in the order of their numbers, or that is not of one shape and format on all of them.
  void gather() {
    if (group_.size() == 1) return;
    drop();
    Look look{*this, {}, {}};
    part_.visit_state(look);
    exchange_tables(look.table);
    gathered_ = true;
    for (auto& [name, whole] : tensors_) {
      const auto n =
          static_cast<std::size_t>(whole.shape.elements()) * numeric::size_of(whole.dtype);
      const std::span<const std::byte> mine =
          look.bytes.contains(name) ? look.bytes.at(name) : std::span<const std::byte>();
      if (whole.counts.front() == static_cast<std::int64_t>(n)) {  // rank 0 needs nobody else's
        if (group_.rank() == 0) whole.bytes.assign(mine.begin(), mine.end());
        continue;
      }
      std::vector<std::byte> all(n);
      all_gather<std::byte>(group_, mine, all, whole.counts);
      if (group_.rank() == 0) whole.bytes = std::move(all);
    }
  }
  /// After gather: makes the state that rank 0 has here, loaded since perhaps, that of all ranks.
  /// Returns when all have it.
  /// @throws StateError if nothing is gathered.
  void scatter() {
    if (group_.size() == 1) return;
    require_gathered("scatter");
    broadcast(group_, std::span(integers_), 0);
    broadcast(group_, std::span(reals_), 0);
    Fill fill{*this, {}, 0, 0};
    std::vector<std::byte> all;
    for (auto& [name, whole] : tensors_) {
      all = whole.bytes;
      all.resize(static_cast<std::size_t>(whole.shape.elements()) * numeric::size_of(whole.dtype));
      broadcast(group_, std::span(all), 0);
      HALFSTEP_ASSERT(whole.first + own_count(whole) <= std::ssize(all));
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(whole.first);
      fill.bytes[name].assign(first, first + static_cast<std::ptrdiff_t>(own_count(whole)));
    }
    part_.visit_state(fill);
    barrier(group_);  // ranks that share memory read what the others have filled
  }
  /// Gives the memory back.
  void drop() {
    gathered_ = false;
    tensors_.clear();
    integer_names_.clear();
    real_names_.clear();
    integers_.clear();
    reals_.clear();
  }

  /// On rank 0, between gather and drop: every tensor whole, and every scalar.
  /// @throws StateError on another rank or at another time.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    if (group_.size() == 1) {
      part_.visit_state(visitor);
      return;
    }
    require_gathered("visit_state");
    if (group_.rank() != 0) {
      core::fail<StateError>("WholeState::visit_state: rank ", group_.rank(),
                             " has not the whole state. Let rank 0 alone save or load.");
    }
    for (auto& [name, whole] : tensors_)
      visitor.tensor(tensor::StateTensor{name, whole.dtype, whole.shape, 0, whole.bytes});
    for (std::size_t i = 0; i < integers_.size(); ++i)
      visitor.scalar(integer_names_[i], integers_[i]);
    for (std::size_t i = 0; i < reals_.size(); ++i)
      visitor.scalar(real_names_[i], reals_[i]);
  }

  /// Of a part that has them: what a checkpoint says of the run besides.
  [[nodiscard]] auto& runtime() const requires requires(Part& part) { part.runtime(); }
  { return part_.runtime(); }
  [[nodiscard]] std::int64_t steps() const requires requires(const Part& part) {
    { part.steps() } -> std::convertible_to<std::int64_t>;
  }
  { return part_.steps(); }

 private:
  struct Whole {
    numeric::DType dtype{};
    Shape shape;
    std::int64_t first = 0;            // of this rank's bytes within all
    std::int64_t held = 0;             // bytes of all ranks
    bool in_order = true;              // each rank's begin where those of the ranks before end
    std::vector<std::int64_t> counts;  // bytes of each rank
    std::vector<std::byte> bytes;      // on rank 0
  };
  /// A line of the table that ranks send each other; the name follows it.
  struct Line {
    std::int64_t name_length = 0, first = 0, bytes = 0;
    numeric::DType dtype{};
    Shape shape;
  };
  static_assert(std::is_trivially_copyable_v<Line>);

  /// Sees what is held here.
  struct Look {
    WholeState& owner;
    std::vector<std::byte> table;
    std::map<std::string, std::span<const std::byte>, std::less<>> bytes;

    void tensor(const tensor::StateTensor& one) {
      const auto size = static_cast<std::int64_t>(numeric::size_of(one.dtype));
      const Line line{std::ssize(one.name), one.first * size, std::ssize(one.bytes), one.dtype,
                      one.shape};
      const auto lines = std::as_bytes(std::span(&line, 1));
      const auto name = std::as_bytes(std::span(one.name));
      table.insert(table.end(), lines.begin(), lines.end());
      table.insert(table.end(), name.begin(), name.end());
      bytes[std::string(one.name)] = one.bytes;
    }
    void scalar(std::string_view name, std::int64_t& value) {
      owner.integer_names_.emplace_back(name);
      owner.integers_.push_back(value);
    }
    void scalar(std::string_view name, double& value) {
      owner.real_names_.emplace_back(name);
      owner.reals_.push_back(value);
    }
  };
  /// Gives every tensor and scalar its new value, in the order in which Look saw them.
  struct Fill {
    WholeState& owner;
    std::map<std::string, std::vector<std::byte>, std::less<>> bytes;
    std::size_t integer = 0, real = 0;

    void tensor(const tensor::StateTensor& one) {
      const auto found = bytes.find(one.name);
      if (found == bytes.end() || found->second.size() != one.bytes.size()) {
        core::fail<StateError>("WholeState::scatter: '", one.name, "' has ", one.bytes.size(),
                               " bytes here, but other ones when it was gathered. Was the state's "
                               "layout changed in between?");
      }
      std::copy(found->second.begin(), found->second.end(), one.bytes.begin());
    }
    void scalar(std::string_view /*name*/, std::int64_t& value) {
      value = owner.integers_.at(integer++);
    }
    void scalar(std::string_view /*name*/, double& value) { value = owner.reals_.at(real++); }
  };

  void require_gathered(std::string_view what) const {
    if (!gathered_) {
      core::fail<StateError>("WholeState::", what,
                             ": nothing is gathered. Call gather on all ranks ",
                             "before, and drop after.");
    }
  }
  [[nodiscard]] std::int64_t own_count(const Whole& whole) const {
    return whole.counts[static_cast<std::size_t>(group_.rank())];
  }

  /// Which rank holds what of which tensor: the same map on all ranks.
  void exchange_tables(const std::vector<std::byte>& mine) {
    const std::vector<std::int64_t> lengths = gather_values(group_, std::ssize(mine));
    std::int64_t sum = 0;
    for (const std::int64_t length : lengths)
      sum += length;
    std::vector<std::byte> all(static_cast<std::size_t>(sum));
    all_gather<std::byte>(group_, mine, all, lengths);
    const std::byte* at = all.data();
    for (int rank = 0; rank < group_.size(); ++rank) {
      const std::byte* const end = at + lengths[static_cast<std::size_t>(rank)];
      while (at < end) {
        Line line;
        std::memcpy(static_cast<void*>(&line), at, sizeof line);
        at += sizeof line;
        const std::string name(reinterpret_cast<const char*>(at),
                               static_cast<std::size_t>(line.name_length));
        at += line.name_length;
        Whole& whole = tensors_[name];
        if (whole.counts.empty()) {
          whole.dtype = line.dtype;
          whole.shape = line.shape;
          whole.counts.resize(static_cast<std::size_t>(group_.size()));
        } else if (whole.dtype != line.dtype || whole.shape != line.shape) {
          core::fail<StateError>("WholeState: '", name, "' is ", numeric::to_string(line.dtype),
                                 ' ', to_string(line.shape), " on rank ", rank, ", but ",
                                 numeric::to_string(whole.dtype), ' ', to_string(whole.shape),
                                 " before. Do all ranks have the same model?");
        }
        whole.in_order = whole.in_order && (line.bytes == 0 || line.first == whole.held);
        whole.held += line.bytes;
        whole.counts[static_cast<std::size_t>(rank)] = line.bytes;
        if (rank == group_.rank()) whole.first = line.first;
      }
    }
    for (const auto& [name, whole] : tensors_) {
      const std::int64_t wanted =
          whole.shape.elements() * static_cast<std::int64_t>(numeric::size_of(whole.dtype));
      if ((whole.held == wanted && whole.in_order) || whole.counts.front() == wanted) continue;
      core::fail<StateError>("WholeState: of '", name, "' the ranks hold ", whole.held, " of ",
                             wanted, " bytes",
                             whole.in_order ? "" : ", not one part after the other",
                             ". Do all of them visit the same state?");
    }
  }

  Group& group_;
  Part& part_;
  bool gathered_ = false;
  std::map<std::string, Whole, std::less<>> tensors_;
  std::vector<std::string> integer_names_, real_names_;
  std::vector<std::int64_t> integers_;
  std::vector<double> reals_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
