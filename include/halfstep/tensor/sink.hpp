// SPDX-License-Identifier: MIT
// Where finished gradients go. The tape hands a sink one finished leaf of one micro-batch at a time
// and never looks at it again: the resident sink adds it to the sums of the window, a sharded one
// reduces it and drops it.
#pragma once

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// Where the one contribution to a leaf is to be written: shape of the parameter, in the gradient
/// type of its store (float; double in a double model), planes one after the other.
struct LeafTarget {
  void* data = nullptr;
  bool accumulate = false;  ///< true: add the finished contribution with one rounding; false: overwrite
};

/// The role of a sink. An implementer promises:
///   - between `open(id)` and `finish(id)` the target stays where it is;
///   - `finish(id)` may move, reduce or drop what was written: the tape does not come back to it.
/// The tape promises: per micro-batch and parameter at most one open, with all uses of the
/// parameter summed in the order of the reverse sweep, the last first, then one finish; parameters in the order in which the
/// reverse sweep finishes them; none for a parameter that took no part.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  [[nodiscard]] virtual LeafTarget open(ParameterId id) = 0;
  virtual void finish(ParameterId id) = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
