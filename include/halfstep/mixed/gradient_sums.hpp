// SPDX-License-Identifier: MIT
// The sums of gradients over micro-batches, in the house's order: a binary counter of buffers that
// each parameter's leaves climb as the tape finishes them. The resident sink; GradientAccumulator
// owns it. Not for: what is done with the sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/sink.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Buffers, each as large as all gradients, that the sum of K micro-batches needs:
/// max(1, ceil(log2 K)), because the second leaf of every pair is added where the first lies.
[[nodiscard]] constexpr int gradient_buffers(std::int64_t micro_batches) {
  return micro_batches <= 2
             ? 1
             : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(micro_batches) - 1));
}

/// Sums leaves 0, 1, …, K - 1 of every parameter as the tree ((0+1)+(2+3))+…: on each level 2i and
/// 2i + 1 are added, with one rounding; an odd last one moves up unchanged, and so does the partner
/// of a leaf that is absent because the parameter took no part in its micro-batch. A parameter
/// absent from all of them sums to +0.
///
/// R is float, or double in a double model. Memory: gradient_buffers(K) x elements x sizeof(R), in
/// the ledger's gradients, kept for the next window. Cost: K - 1 additions per element, of which K
/// / 2 are done by the op that makes the leaf.
template <class R>
class GradientSums final : public Sums<R> {
 public:
  explicit GradientSums(tensor::ParameterTable& parameters, Processes<R>* processes = nullptr)
      : parameters_(parameters), processes_(processes) {}

  void begin(std::int64_t micro_batches) override {
    parameters_.lay_out();  // from here on the parameters are final
    const auto wanted = static_cast<std::size_t>(gradient_buffers(micro_batches));
    auto& ledger = parameters_.runtime().ledger();
    while (buffers_.size() < wanted) {
      const std::span<R> given = processes_ != nullptr && buffers_.empty()
                                     ? processes_->memory(parameters_.count())
                                     : std::span<R>();
      if (given.empty()) {
        buffers_.emplace_back(ledger, core::Category::gradients, parameters_.count());
      } else {
        buffers_.emplace_back(ledger, core::Category::gradients, given);
      }
    }
    micro_batches_ = micro_batches;
    number_ = 0;
    held_.assign(wanted * parameters_.size(), 0);
    finished_.assign(parameters_.size(), 0);
    if (processes_ != nullptr) processes_->begin(buffers_.front().span());
  }

  [[nodiscard]] tensor::LeafTarget open(ParameterId id) override {
    HALFSTEP_ASSERT(number_ < micro_batches_ && finished_[id.index] == 0);
    // An even leaf starts a subtree of its own, an odd one is added to its partner, if there is
    // one.
    return {data(slot(number_), id), number_ % 2 != 0 && held(slot(number_), id)};
  }
  void finish(ParameterId id) override {
    held(slot(number_), id) = 1;
    finished_[id.index] = 1;
    carry(id);
    // The last leaf of a complete tree completes the sum.
    const bool complete = std::has_single_bit(static_cast<std::uint64_t>(micro_batches_));
    if (processes_ != nullptr && complete && number_ == micro_batches_ - 1) processes_->finished(id);
  }
  void next() override {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      if (finished_[i] == 0) carry({i});
      finished_[i] = 0;
    }
    ++number_;
  }
  /// After the last micro-batch: joins what is left of an incomplete tree, smallest subtree first,
  /// and then the sums of all processes.
  void fold() override {
    HALFSTEP_ASSERT(number_ == micro_batches_);
    const int subtrees = std::popcount(static_cast<std::uint64_t>(micro_batches_));
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      for (int from = subtrees - 1; from > 0; --from)
        merge(from, {i});
      if (!held(0, {i}) && !parameters_.runtime().dry()) {
        std::memset(data(0, {i}), 0,
                    static_cast<std::size_t>(parameters_.infos()[i].elements) * sizeof(R));
      }
    }
    if (processes_ != nullptr) processes_->complete();
  }
  /// The whole step's, after fold(): of every element, but where processes hold a shard each.
  [[nodiscard]] std::span<const R> sum(ParameterId id) const override {
    const auto& info = parameters_.info(id);
    const core::Range here = held();
    const std::int64_t begin = std::clamp(here.begin, info.offset, info.offset + info.elements);
    const std::int64_t end = std::clamp(here.end, info.offset, info.offset + info.elements);
    return {buffers_.front().data() + begin, static_cast<std::size_t>(end - begin)};
  }
  [[nodiscard]] core::Range held() const override {
    return processes_ == nullptr ? core::Range{0, parameters_.count()} : processes_->held();
  }

  [[nodiscard]] tensor::ParameterTable& parameters() const override { return parameters_; }

 private:
  // Buffer of the subtree that leaf n is in before it is carried: one below it for each bit of n
  // / 2.
  [[nodiscard]] static int slot(std::int64_t n) {
    return std::popcount(static_cast<std::uint64_t>(n) / 2);
  }
  [[nodiscard]] std::uint8_t& held(int buffer, ParameterId id) {
    return held_[static_cast<std::size_t>(buffer) * parameters_.size() + id.index];
  }
  [[nodiscard]] R* data(int buffer, ParameterId id) {
    return buffers_[static_cast<std::size_t>(buffer)].data() + parameters_.info(id).offset;
  }

  // Leaf number_ has completed as many subtrees as its number has trailing ones; the first was
  // completed when it was written.
  void carry(ParameterId id) {
    int from = slot(number_);
    for (int level = std::countr_one(static_cast<std::uint64_t>(number_)); level > 1; --level)
      merge(from--, id);
  }
  // Adds a buffer's subtree to the one below it, or moves it there.
  void merge(int from, ParameterId id) {
    if (!held(from, id)) return;
    held(from, id) = 0;
    const auto count = static_cast<std::size_t>(parameters_.info(id).elements);
    R* const below = data(from - 1, id);
    const R* const above = data(from, id);
    if (held(from - 1, id)) {
      kernels::add<R>(parameters_.runtime().compute(), {below, count}, {above, count},
                      {below, count});
    } else {
      std::memcpy(below, above, count * sizeof(R));
      held(from - 1, id) = 1;
    }
  }

  tensor::ParameterTable& parameters_;
  Processes<R>* processes_;
  std::vector<tensor::Memory<R>> buffers_;
  std::vector<std::uint8_t> held_;      // [buffer][parameter]: whether a subtree lies there
  std::vector<std::uint8_t> finished_;  // [parameter], in this micro-batch
  std::int64_t micro_batches_ = 0, number_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
