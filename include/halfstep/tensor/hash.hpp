// SPDX-License-Identifier: MIT
// A 64-bit hash of named tensors that depends on names, shapes and bits alone, in order of names: by
// it two runs are shown to be equal. Not for: files (cryptographic) or hash tables.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// The step of every hash here, and bytes by it: in words of eight, little-endian, then a last word of
/// what is left, zero above, then their number.
[[nodiscard]] constexpr std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) {
  return std::rotl((hash ^ word) * 0x9E3779B97F4A7C15, 29);
}
[[nodiscard]] inline std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = hash_word(hash, word);
  }
  std::uint64_t tail = 0;
  if (i < bytes.size()) std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  return hash_word(hash_word(hash, tail), bytes.size());
}

/// Collects tensors as a state visitor and hashes them in the order of their names.
///
/// Words of 64 bits enter by h = (h ^ word) x 0x9E3779B97F4A7C15, rotated left by 29: the name, the
/// rank, each size, the data; name and data as hash_bytes takes them. Scalars are not part of it.
/// Cost: one pass over the bytes.
class StateHash {
 public:
  void tensor(const StateTensor& tensor) { tensors_.push_back({std::string(tensor.name), tensor.shape, tensor.bytes}); }
  void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
  void scalar(std::string_view /*name*/, double& /*value*/) {}

  /// The hash of what was visited; the tensors must still be there.
  [[nodiscard]] std::uint64_t value() {
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::uint64_t hash = 0x68616C6673746570;
    for (const auto& tensor : tensors_) {
      hash = hash_bytes(hash, std::as_bytes(std::span(tensor.name)));
      hash = hash_word(hash, static_cast<std::uint64_t>(tensor.shape.rank()));
      for (int d = 0; d < tensor.shape.rank(); ++d) hash = hash_word(hash, static_cast<std::uint64_t>(tensor.shape[d]));
      hash = hash_bytes(hash, tensor.bytes);
    }
    return hash;
  }

 private:
  struct Named {
    std::string name;
    Shape shape;
    std::span<const std::byte> bytes;
  };

  std::vector<Named> tensors_;
};

/// The hash of everything that `stateful` visits: of Parameters<float>, the weights_hash of a run.
template <class Stateful>
[[nodiscard]] std::uint64_t state_hash(Stateful& stateful) {
  StateHash hash;
  stateful.visit_state(hash);
  return hash.value();
}

/// Of bytes without a name: whether they have changed.
[[nodiscard]] inline std::uint64_t bytes_hash(std::span<const std::byte> bytes) {
  return hash_bytes(0x68616C6673746570, bytes);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
