// SPDX-License-Identifier: MIT
// Memory for vector kernels: 64-byte aligned, whole cache lines, huge pages asked for where they
// help. Not accounted: what training takes comes from tensor/, which feeds the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <sys/mman.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/views.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// A cache line, and the width of an AVX-512 register, in bytes.
inline constexpr std::int64_t alignment = 64;
/// From this size on a buffer starts at a huge page and asks for as many as it fills, in bytes.
inline constexpr std::int64_t huge_page = std::int64_t{2} << 20;

enum class Fill : std::uint8_t { none, zero };

/// A range of addresses with no memory behind it: to touch it is a fault.
class ReservedAddresses {
 public:
  ReservedAddresses() = default;
  /// @throws MemoryError if the system refuses.
  explicit ReservedAddresses(std::int64_t bytes) : bytes_(bytes) {
    if (bytes <= 0) return;
    void* const at = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      fail<MemoryError>("ReservedAddresses: the system refused ", bytes,
                        " bytes of addresses. Is ulimit -v set very low?");
    }
    data_ = static_cast<std::byte*>(at);
  }
  ReservedAddresses(ReservedAddresses&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ReservedAddresses& operator=(ReservedAddresses&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ReservedAddresses(const ReservedAddresses&) = delete;
  ReservedAddresses& operator=(const ReservedAddresses&) = delete;
  ~ReservedAddresses() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Owns bytes. The memory extends to the end of its last cache line, so a 64-byte load that starts
/// within the buffer at a multiple of 64 stays within it.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  /// @throws ShapeError for a size below 0 or above 2^62, MemoryError if there is not so much.
  explicit AlignedBuffer(std::int64_t bytes, Fill fill = Fill::none) : bytes_(bytes) {
    if (bytes < 0 || bytes > (std::int64_t{1} << 62)) {
      fail<ShapeError>("AlignedBuffer: asked for ", bytes,
                       " bytes, which is no size of a buffer. Did a product of sizes overflow?");
    }
    if (bytes == 0) return;
    const std::int64_t unit = bytes >= huge_page ? huge_page : alignment;
    const auto whole = static_cast<std::size_t>(round_up(bytes, unit));
    data_ = static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(unit), whole));
    if (data_ == nullptr) {
      fail<MemoryError>("AlignedBuffer: the system has no ", bytes,
                        " bytes left for this process. Is the batch or the model too large?");
    }
    if (unit == huge_page) {
      // Advice: where the system refuses, small pages do. The last huge page, which the buffer
      // would fill in part, would be resident whole.
      const auto filled = static_cast<std::size_t>(bytes / huge_page * huge_page);
      static_cast<void>(madvise(data_, filled, MADV_HUGEPAGE));
      static_cast<void>(madvise(data_ + filled, whole - filled, MADV_NOHUGEPAGE));
    }
    if (fill == Fill::zero)
      std::memset(data_, 0, static_cast<std::size_t>(round_up(bytes, alignment)));
  }

  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer() { std::free(data_); }

  /// Null if the size is 0.
  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size() const { return bytes_; }

  /// The memory as elements of T, as many as fit whole.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<T> as() {
    return {reinterpret_cast<T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), static_cast<std::size_t>(bytes_) / sizeof(T)};
  }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
