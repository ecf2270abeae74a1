// SPDX-License-Identifier: MIT
// What training takes of memory for its weights: how many bytes, by the ledger's categories. The
// figures of an optimizer before it runs; what it took is core/ledger.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// Of one parameter's element, or of all: with one buffer of gradients (a window of one or two
/// micro-batches), and without activations.
struct Bytes {
  std::int64_t weights = 0;
  std::int64_t gradients = 0;
  std::int64_t master = 0;  ///< whatever is kept of a weight besides its working format
  std::int64_t moments = 0;

  [[nodiscard]] constexpr std::int64_t total() const {
    return weights + gradients + master + moments;
  }
  /// With copies of the weights that are packed for matrix products: a category of their own,
  /// since the store makes them and not the optimizer.
  [[nodiscard]] constexpr std::int64_t with_packed(std::int64_t packed) const {
    return total() + packed;
  }
  friend constexpr bool operator==(const Bytes&, const Bytes&) = default;
};

/// A state visitor that adds up the bytes it is shown.
class CountBytes {
 public:
  void tensor(const tensor::StateTensor& tensor) {
    bytes_ += static_cast<std::int64_t>(tensor.bytes.size());
  }
  void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
  void scalar(std::string_view /*name*/, double& /*value*/) {}
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
