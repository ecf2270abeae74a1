// SPDX-License-Identifier: MIT
// Memory that comes and goes within a step: activations, their gradients, workspace. One range of
// addresses is reserved at first and backed as it is touched, so blocks never move, and after the
// largest step nothing is asked of the system any more. A dry arena places blocks by the same rule
// and has no memory. Not for: what outlives a step (tensor/memory.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/placement.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// A place in an arena. Owns nothing: `Arena::release` gives it back, `Arena::clear` all of them.
struct Block {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  ///< as allocated, a multiple of 64; 0 means none
  core::Category category = core::Category::activations;
  std::int32_t number = 0;  ///< of those since the arena was cleared
};

/// First fit in order of addresses, or the places that `follow` was given; neighbours are joined on
/// release. The ledger sees each block while it lives, in multiples of 64 bytes. Not for two
/// threads at a time.
class Arena {
 public:
  static constexpr std::int64_t alignment = 64;
  enum class Kind { real, dry };

  /// @throws MemoryError if not even 64 MiB of addresses can be reserved.
  explicit Arena(core::Ledger& ledger, Kind kind = Kind::real) : ledger_(ledger) {
    free_.reserve(64);
    if (kind == Kind::dry) return;
    constexpr std::int64_t most = std::int64_t{1} << 40;
    constexpr std::int64_t least = std::int64_t{1} << 26;
    for (std::int64_t bytes = most; bytes >= least; bytes /= 2) {
      void* at = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at == MAP_FAILED) continue;  // a limit on addresses (ulimit -v, overcommit): try half
      base_ = static_cast<std::byte*>(at);
      reserved_ = bytes;
      madvise(at, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
      return;
    }
    core::fail<MemoryError>("Arena: the system refused to reserve ", least,
                            " bytes of addresses. Is ulimit -v set very low?");
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    clear();
    if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(reserved_));
  }

  [[nodiscard]] bool dry() const { return base_ == nullptr; }

  /// A block of at least `bytes`, its content undefined. @throws MemoryError if the addresses are
  /// used up.
  [[nodiscard]] Block allocate(std::int64_t bytes, core::Category category) {
    if (bytes <= 0) return {0, 0, category};
    bytes = (bytes + alignment - 1) / alignment * alignment;
    const auto number = static_cast<std::size_t>(count_);
    following_ = following_ && number < placement_.places.size() &&
                 placement_.places[number].bytes == bytes &&
                 is_free(placement_.places[number].offset, bytes);
    const std::int64_t offset = following_ ? placement_.places[number].offset : first_fit(bytes);
    if (!dry() && offset + bytes > reserved_) {
      core::fail<MemoryError>(
          "Arena: ", bytes, " bytes more than the ", end_, " in use do not fit into the ",
          reserved_, " reserved. A smaller batch or context needs less; so does recompute.");
    }
    take(offset, bytes);
    if (dry()) lives_.push_back({bytes, offset, clock_++});
    const Block block{offset, bytes, category, count_++};
    live_[static_cast<std::size_t>(category)] += bytes;
    ledger_.add(category, bytes);
    return block;
  }

  /// Gives `block` back and makes it an empty one. Nothing happens for an empty one.
  void release(Block& block) {
    if (block.bytes == 0) return;
    ledger_.remove(block.category, block.bytes);
    live_[static_cast<std::size_t>(block.category)] -= block.bytes;
    if (dry()) lives_[static_cast<std::size_t>(block.number)].to = clock_++;
    auto next =
        std::lower_bound(free_.begin(), free_.end(), block.offset,
                         [](const Hole& h, std::int64_t offset) { return h.offset < offset; });
    const bool joins_next = next != free_.end() && block.offset + block.bytes == next->offset;
    const bool joins_previous =
        next != free_.begin() && std::prev(next)->offset + std::prev(next)->bytes == block.offset;
    if (joins_previous && joins_next) {
      std::prev(next)->bytes += block.bytes + next->bytes;
      free_.erase(next);
    } else if (joins_previous) {
      std::prev(next)->bytes += block.bytes;
    } else if (joins_next) {
      next->offset = block.offset;
      next->bytes += block.bytes;
    } else {
      free_.insert(next, {block.offset, block.bytes});
    }
    if (!free_.empty() && free_.back().offset + free_.back().bytes == end_) {
      end_ = free_.back().offset;
      free_.pop_back();
    }
    block.bytes = 0;
  }

  /// Gives all blocks back. Their memory stays with the arena for the next step.
  void clear() {
    for (std::size_t c = 0; c < live_.size(); ++c)
      ledger_.remove(static_cast<core::Category>(c), live_[c]);
    live_ = {};
    free_.clear();
    lives_.clear();
    end_ = clock_ = 0;
    count_ = 0;
    following_ = true;
  }

  /// Where the blocks since the last clear would have lain best. Of a dry arena alone.
  [[nodiscard]] Placement arranged() const { return arrange(lives_); }
  /// From the next clear on, or at once if no block has been out since the last, the n-th block goes to the n-th place, as long as sizes agree: to be
  /// given what a dry arena has arranged that saw the same pass. A pass that turns out to be
  /// another one goes on by first fit.
  void follow(Placement placement) {
    placement_ = std::move(placement);
    following_ = count_ == 0;
    if (dry() || placement_.end == 0) return;
    // The last huge page, which the pass would use in part, would be resident whole.
    const std::byte* const end = base_ + placement_.end;
    const auto over = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(end) %
                                                static_cast<std::uintptr_t>(core::huge_page));
    const std::int64_t last = std::max(std::int64_t{0}, placement_.end - over);
    if (last + core::huge_page > reserved_) return;
    static_cast<void>(
        madvise(base_ + last, static_cast<std::size_t>(core::huge_page), MADV_NOHUGEPAGE));
  }

  /// Where a block is. Not for a dry arena, which has no memory.
  [[nodiscard]] std::byte* data(const Block& block) const {
    HALFSTEP_ASSERT(!dry());
    return base_ + block.offset;
  }
  /// Bytes of the blocks that are out.
  [[nodiscard]] std::int64_t live() const {
    std::int64_t sum = 0;
    for (const std::int64_t bytes : live_)
      sum += bytes;
    return sum;
  }
  /// The most addresses that were in use at a time, holes between blocks included.
  [[nodiscard]] std::int64_t high_water() const { return high_water_; }

 private:
  struct Hole {
    std::int64_t offset, bytes;
  };

  [[nodiscard]] std::int64_t first_fit(std::int64_t bytes) const {
    const auto hole =
        std::find_if(free_.begin(), free_.end(), [&](const Hole& h) { return h.bytes >= bytes; });
    return hole == free_.end() ? end_ : hole->offset;
  }
  /// The first hole that ends beyond `offset`.
  [[nodiscard]] auto hole_at(std::int64_t offset) const {
    return std::upper_bound(free_.begin(), free_.end(), offset,
                            [](std::int64_t at, const Hole& h) { return at < h.offset + h.bytes; });
  }
  [[nodiscard]] bool is_free(std::int64_t offset, std::int64_t bytes) const {
    if (offset >= end_) return true;
    const auto hole = hole_at(offset);
    return hole != free_.end() && hole->offset <= offset &&
           offset + bytes <= hole->offset + hole->bytes;
  }
  /// Of addresses that are free.
  void take(std::int64_t offset, std::int64_t bytes) {
    if (offset >= end_) {
      if (offset > end_) free_.push_back({end_, offset - end_});
      end_ = offset + bytes;
      high_water_ = std::max(high_water_, end_);
      return;
    }
    const auto hole = free_.begin() + (hole_at(offset) - free_.cbegin());
    const Hole whole = *hole;
    const Hole before{whole.offset, offset - whole.offset};
    const Hole after{offset + bytes, whole.offset + whole.bytes - offset - bytes};
    if (before.bytes > 0 && after.bytes > 0) {
      *hole = after;
      free_.insert(hole, before);
    } else if (before.bytes + after.bytes > 0) {
      *hole = before.bytes > 0 ? before : after;
    } else {
      free_.erase(hole);
    }
  }

  core::Ledger& ledger_;
  std::byte* base_ = nullptr;
  std::int64_t reserved_ = 0, end_ = 0, high_water_ = 0;
  std::vector<Hole> free_;  // by offset; no two touch
  std::int32_t count_ = 0;  // of the blocks since the last clear
  Placement placement_;
  bool following_ = true;    // it, so far
  std::vector<Life> lives_;  // of the blocks of a dry arena since the last clear
  std::int64_t clock_ = 0;   // of their beginnings and ends
  std::array<std::int64_t, core::categories> live_{};
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
