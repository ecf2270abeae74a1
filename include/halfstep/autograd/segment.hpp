// SPDX-License-Identifier: MIT
// What the tape keeps of a recompute segment: the callable with its inputs, by value, and what its
// first run recorded, to hold the second one against. Used by tape.hpp and checkpoint.hpp alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <halfstep/autograd/graph.hpp>
#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {
class Tape;

namespace autograd {

/// A callable that runs again. Its memory is kept for the segment of the same number in the next
/// micro-batch, so that a step allocates nothing.
class Segment {
 public:
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment() { reset(); }

  /// Takes a callable `Call`, which has `void operator()(Tape&) const`: runs the segment and tells the
  /// tape what it returns.
  template <class Call>
  void hold(Call call) {
    static_assert(alignof(Call) <= alignof(std::max_align_t));
    HALFSTEP_ASSERT(destroy_ == nullptr);
    if (storage_.size() < sizeof(Call)) storage_.resize(sizeof(Call));
    std::construct_at(reinterpret_cast<Call*>(storage_.data()), std::move(call));
    run_ = [](const std::byte* at, Tape& tape) { (*reinterpret_cast<const Call*>(at))(tape); };
    destroy_ = [](std::byte* at) { std::destroy_at(reinterpret_cast<Call*>(at)); };
  }
  void run(Tape& tape) const { run_(storage_.data(), tape); }
  void reset() {
    if (destroy_ != nullptr) destroy_(storage_.data());
    destroy_ = nullptr;
    run_ = nullptr;
    ops.clear();
    returned.clear();
  }

  /// A variable that the callable returned.
  struct Returned {
    Maker maker;              ///< counted from the segment's first op; outside of it: its id in `output`
    std::uint32_t output = 0; ///< of the segment's node
  };

  std::vector<LoggedOp> ops;       ///< of the first run, in order, those of segments inside among them
  std::vector<Returned> returned;
  std::uint32_t needed = 0;        ///< ops that the second run computes; of the others it notes shapes
  bool hash_values = false;

 private:
  std::vector<std::byte> storage_;
  void (*run_)(const std::byte*, Tape&) = nullptr;
  void (*destroy_)(std::byte*) = nullptr;
};

}  // namespace autograd
}  // namespace halfstep::inline HALFSTEP_CONFIG
