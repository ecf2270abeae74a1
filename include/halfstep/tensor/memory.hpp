// SPDX-License-Identifier: MIT
// One long-lived block of memory that the ledger knows: weights, masters, moments, gradient sums.
// Not for: what comes and goes within a step (tensor/arena.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// `count` elements of T, aligned to 64 bytes, zero at first, entered in `ledger` under `category`
/// with exactly count x sizeof(T) bytes until destroyed. Movable; the ledger must outlive it. In a dry
/// ledger it is entered all the same and has addresses without memory.
template <class T>
class Memory {
 public:
  Memory() = default;
  Memory(core::Ledger& ledger, core::Category category, std::int64_t count)
      : buffer_(ledger.dry() ? 0 : count * static_cast<std::int64_t>(sizeof(T)), core::Fill::zero),
        addresses_(ledger.dry() ? count * static_cast<std::int64_t>(sizeof(T)) : 0),
        data_(reinterpret_cast<T*>(ledger.dry() ? addresses_.data() : buffer_.data())),
        ledger_(&ledger),
        category_(category),
        count_(count) {
    ledger.add(category, bytes());
  }
  /// Memory that somebody else owns and keeps as long as this, such as a shared segment; counted as
  /// if it were taken here.
  Memory(core::Ledger& ledger, core::Category category, std::span<T> given)
      : data_(given.data()), ledger_(&ledger), category_(category), count_(std::ssize(given)) {
    ledger.add(category, bytes());
  }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (ledger_ != nullptr) ledger_->remove(category_, bytes());
  }

  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return count_; }
  [[nodiscard]] std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }
  [[nodiscard]] std::span<T> span() { return {data(), static_cast<std::size_t>(count_)}; }
  [[nodiscard]] std::span<const T> span() const { return {data(), static_cast<std::size_t>(count_)}; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(addresses_, other.addresses_);
    std::swap(data_, other.data_);
    std::swap(ledger_, other.ledger_);
    std::swap(category_, other.category_);
    std::swap(count_, other.count_);
  }

  core::AlignedBuffer buffer_;
  core::ReservedAddresses addresses_;  // of a dry ledger's
  T* data_ = nullptr;
  core::Ledger* ledger_ = nullptr;
  core::Category category_ = core::Category::weights;
  std::int64_t count_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
