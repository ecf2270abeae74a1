// SPDX-License-Identifier: MIT
// Size and 64-bit hash of a file's bytes as they go by, to notice that a file was cut or damaged.
// Not for: an adversary, or tensors by name (tensor/hash.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

/// The value depends on the bytes alone, not on the pieces in which they were added. A change of up
/// to eight neighbouring bytes in one word always changes it.
///
/// Words of eight bytes, little-endian, enter by h = rotl((h ^ word) x 0x9E3779B97F4A7C15, 29);
/// last a word of what is left, zero above it, and the number of bytes. Cost: one multiplication a
/// word.
class ByteHash {
 public:
  void add(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
      if (held_ == 0) {
        for (; bytes.size() >= 8; bytes = bytes.subspan(8))
          mix(word(bytes.data()));
      }
      const std::size_t n = std::min(bytes.size(), sizeof rest_ - held_);
      if (n == 0) break;
      std::memcpy(rest_ + held_, bytes.data(), n);
      bytes = bytes.subspan(n);
      held_ += n;
      if (held_ == sizeof rest_) {
        mix(word(rest_));
        held_ = 0;
      }
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t value() const {
    ByteHash last = *this;
    std::memset(last.rest_ + held_, 0, sizeof rest_ - held_);
    last.mix(word(last.rest_));
    last.mix(size_);
    return last.hash_;
  }
  friend bool operator==(const ByteHash& a, const ByteHash& b) {
    return a.size_ == b.size_ && a.value() == b.value();
  }

 private:
  [[nodiscard]] static std::uint64_t word(const std::byte* bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    return word;
  }
  void mix(std::uint64_t word) { hash_ = std::rotl((hash_ ^ word) * 0x9E3779B97F4A7C15U, 29); }

  std::uint64_t hash_ = 0x68616C6673746570;
  std::uint64_t size_ = 0;
  std::byte rest_[8]{};
  std::size_t held_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
