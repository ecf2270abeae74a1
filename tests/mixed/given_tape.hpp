// SPDX-License-Identifier: MIT
// A tape whose gradients a test writes down: it hands them to the sink as the real one would, each
// multiplied by the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <halfstep/core/micro_batch.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/sink.hpp>

namespace halfstep_tests {

template <class R>
struct GivenLeaf {
  halfstep::ParameterId id;
  std::vector<R> gradient;  ///< of the summed loss, without the seed
};

template <class R>
struct GivenLoss {
  double sum = 0.0, count = 1.0;
  std::vector<GivenLeaf<R>> leaves;
  bool throws = false;  ///< after the first leaf
};

class GivenTape {
 public:
  void begin(const halfstep::MicroBatch& micro) { micro_ = micro; }
  void attach(halfstep::tensor::ParameterTable& parameters, halfstep::tensor::Sink& sink) {
    parameters_ = &parameters;
    sink_ = &sink;
  }
  void detach(const halfstep::tensor::ParameterTable&, const halfstep::tensor::Sink&) { sink_ = nullptr; }
  void set_seed(double seed) { seed_ = seed; }
  double seed() const { return seed_; }
  bool dry() const { return is_dry; }
  const halfstep::MicroBatch& micro() const { return micro_; }
  bool attached() const { return sink_ != nullptr; }

  template <class R>
  void backward(const GivenLoss<R>& loss) {
    for (const auto& leaf : loss.leaves) {
      const auto target = sink_->open(leaf.id);
      R* out = static_cast<R*>(target.data);
      for (std::size_t i = 0; i < leaf.gradient.size(); ++i) {
        const R g = leaf.gradient[i] * static_cast<R>(seed_);
        out[i] = target.accumulate ? out[i] + g : g;
      }
      sink_->finish(leaf.id);
      if (loss.throws) throw std::runtime_error("an op failed");
    }
  }

  bool is_dry = false;

 private:
  halfstep::MicroBatch micro_;
  halfstep::tensor::ParameterTable* parameters_ = nullptr;
  halfstep::tensor::Sink* sink_ = nullptr;
  double seed_ = 1.0;
};

}  // namespace halfstep_tests
