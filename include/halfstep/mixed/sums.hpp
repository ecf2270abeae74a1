// SPDX-License-Identifier: MIT
// The role of whoever sums the leaves of a window: what a GradientAccumulator drives and what an
// unscaled gradient reads. In one process it is GradientSums; sharded ones are in dist/.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/sink.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Between `begin` and `fold` it is the sink of one sweep after the other. What it leaves is the
/// tree over the micro-batches of the whole step, bit for bit, in the elements that it holds.
template <class R>
class Sums : public tensor::Sink {
 public:
  /// Starts a sum of `micro_batches` >= 1 leaves of each parameter.
  virtual void begin(std::int64_t micro_batches) = 0;
  /// The micro-batch is over: parameters that took no part in it catch up.
  virtual void next() = 0;
  /// After the last micro-batch: makes of what is there the sum of the whole step.
  virtual void fold() = 0;
  /// The elements of the store that this process holds; it begins and ends at blocks of 1024
  /// elements of a parameter.
  [[nodiscard]] virtual core::Range held() const = 0;
  /// After fold: the sum of what is held of one parameter.
  [[nodiscard]] virtual std::span<const R> sum(ParameterId id) const = 0;
  [[nodiscard]] virtual tensor::ParameterTable& parameters() const = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
