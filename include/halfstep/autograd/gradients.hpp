// SPDX-License-Identifier: MIT
// The gradients of one backward pass, kept to be looked at: for first steps, debugging and gradient
// checks. Not for training steps, whose sums, scale and clipping belong to mixed/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/sink.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// A sink that keeps what the last `tape.backward` since its construction wrote. Attached to the tape
/// as long as it lives: make it before the forward pass, so that the tape knows what to record.
///
///   hs::Gradients<float> gradients(parameters, tape);
///   tape.begin();
///   tape.backward(hs::squared_error(model(x), y));
///   gradients[model.weight]  // one number per element
///
/// Memory: one gradient element per element of the store, category gradients. The values are in units
/// of the loss's sum times the tape's seed (1 unless a window has set it).
template <class T>
class Gradients final : public tensor::Sink {
 public:
  using value_type = typename Parameters<T>::gradient;

  Gradients(Parameters<T>& parameters, Tape& tape) : parameters_(parameters), tape_(tape) {
    parameters.lay_out();
    memory_ = tensor::Memory<value_type>(parameters.runtime().ledger(), core::Category::gradients,
                                         parameters.count() * Parameters<T>::plane_count);
    tape.attach(parameters, *this);
  }
  ~Gradients() override { tape_.detach(parameters_, *this); }

  [[nodiscard]] tensor::LeafTarget open(ParameterId id) override { return {range(id).data(), false}; }
  void finish(ParameterId /*id*/) override {}

  /// Zero for a parameter that took no part since construction or `clear`.
  [[nodiscard]] std::span<const value_type> operator[](ParameterId id) { return range(id); }
  [[nodiscard]] std::span<const value_type> operator[](Parameter<T> parameter) { return range(parameter.id); }
  void clear() {
    for (value_type& g : memory_.span()) g = value_type(0);
  }

 private:
  [[nodiscard]] std::span<value_type> range(ParameterId id) {
    const auto& info = parameters_.info(id);
    constexpr int planes = Parameters<T>::plane_count;
    return {memory_.data() + info.offset * planes, static_cast<std::size_t>(info.elements * planes)};
  }

  Parameters<T>& parameters_;
  Tape& tape_;
  tensor::Memory<value_type> memory_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG
