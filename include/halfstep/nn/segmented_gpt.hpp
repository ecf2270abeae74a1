// SPDX-License-Identifier: MIT
// A GPT whose blocks run in segments that are forgotten and computed again in the backward pass: the
// same values and gradients, less memory. Not for: choosing the number of segments.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/nn/block.hpp>
#include <halfstep/nn/gpt.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::nn {

/// Consecutive blocks of a model as one layer. Points into the model, which outlives the backward
/// pass: that is what makes it free to copy.
template <class T>
struct BlockRange {
  using layer_tag = void;
  std::span<const Block<T>> blocks;
  [[nodiscard]] Variable<T> operator()(Variable<T> x) const {
    for (const Block<T>& block : blocks) x = block(x);
    return x;
  }
};

/// Calls a Gpt with its blocks cut into `segments` runs of as equal a length as can be, the shorter
/// ones first. All but the last are checkpoints; the last is kept, since the backward pass needs it
/// at once. So one segment is the plain model.
template <class T>
class SegmentedGpt {
 public:
  /// The Gpt must outlive it. @throws OptionError unless 1 <= segments <= layers.
  SegmentedGpt(const Gpt<T>& gpt, int segments) : gpt_(&gpt), segments_(segments) {
    if (segments < 1 || segments > gpt.options.layers) {
      core::fail<OptionError>("nn::SegmentedGpt: ", segments, " segments of ", gpt.options.layers,
                              " blocks; wanted 1 (nothing is recomputed) to one for each block");
    }
  }

  [[nodiscard]] int context() const { return gpt_->context(); }
  [[nodiscard]] int segments() const { return segments_; }

  [[nodiscard]] Variable<typename Gpt<T>::Logits> operator()(Tape& tape,
                                                             std::span<const std::int32_t> ids) const {
    const std::span<const Block<T>> all(gpt_->blocks);
    const auto n = all.size();
    const auto k = static_cast<std::size_t>(segments_);
    Variable<T> x = gpt_->embed(tape, ids);
    for (std::size_t s = 0; s < k; ++s) {
      const std::size_t begin = n * s / k, end = n * (s + 1) / k;
      const BlockRange<T> range{all.subspan(begin, end - begin)};
      x = s + 1 < k ? checkpoint(range, x) : range(x);
    }
    return gpt_->head(x);
  }

 private:
  const Gpt<T>* gpt_;
  int segments_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::nn
