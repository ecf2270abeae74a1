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
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {
class Tape;

namespace autograd {

/// One node of a segment's first run.
struct SegmentOp {
  const Op* op = nullptr;
  Shape shape;           ///< of output 0
  numeric::DType dtype = numeric::DType::f32;
  std::uint32_t parameters = 0;
};

/// A callable that runs again. Its memory is kept for the segment of the same number in the next
/// micro-batch, so that a step allocates nothing.
class Segment {
 public:
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Segment(Segment&& other) noexcept
      : ops(std::move(other.ops)),
        parameters(std::move(other.parameters)),
        output(other.output),
        storage_(std::move(other.storage_)),
        run_(std::exchange(other.run_, nullptr)),
        destroy_(std::exchange(other.destroy_, nullptr)) {}
  Segment& operator=(Segment&&) = delete;
  ~Segment() { reset(); }

  /// Takes a callable `Call`, which has `std::uint32_t operator()() const`: runs the segment on its
  /// tape and returns the id of its output.
  template <class Call>
  void hold(Call call) {
    static_assert(alignof(Call) <= alignof(std::max_align_t));
    reset();
    if (storage_.size() < sizeof(Call)) storage_.resize(sizeof(Call));
    std::construct_at(reinterpret_cast<Call*>(storage_.data()), std::move(call));
    run_ = [](const std::byte* at) { return (*reinterpret_cast<const Call*>(at))(); };
    destroy_ = [](std::byte* at) { std::destroy_at(reinterpret_cast<Call*>(at)); };
  }
  [[nodiscard]] std::uint32_t run() const { return run_(storage_.data()); }
  void reset() {
    if (destroy_ != nullptr) destroy_(storage_.data());
    destroy_ = nullptr;
    run_ = nullptr;
    ops.clear();
    parameters.clear();
  }

  std::vector<SegmentOp> ops;            ///< in order
  std::vector<ParameterRef> parameters;  ///< read by them, in order, with their versions
  std::size_t output = 0;                ///< which of the segment's values it returned

 private:
  std::vector<std::byte> storage_;
  std::uint32_t (*run_)(const std::byte*) = nullptr;
  void (*destroy_)(std::byte*) = nullptr;
};

}  // namespace autograd
}  // namespace halfstep::inline HALFSTEP_CONFIG
