// SPDX-License-Identifier: MIT
// One type for every optimizer of weights of one format: a training loop that is chosen at run
// time, by a flag say, is then compiled once and not once for each optimizer and stage of sharding.
// Costs one indirect call a step. Not for: a loop whose optimizer is known; it takes that as it is.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// std::unique_ptr<mixed::AnyOptimizer<bf16>> optimizer =
///     std::make_unique<mixed::OptimizerOf<Optimizer>>(what Optimizer is made of);
///
/// Each member does what Optimizer's does.
template <class T>
class AnyOptimizer {
 public:
  using Element = T;

  AnyOptimizer() = default;
  AnyOptimizer(const AnyOptimizer&) = delete;
  AnyOptimizer& operator=(const AnyOptimizer&) = delete;
  virtual ~AnyOptimizer() = default;

  virtual optim::StepResult step(Unscaled<T>&& gradients, float lr) = 0;
  [[nodiscard]] virtual std::int64_t steps() const = 0;
  [[nodiscard]] virtual std::uint64_t weights_hash() = 0;

  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    tensor::AnyVisitor any(visitor);
    show_state(any);
  }
  /// @throws StateError of an optimizer that does not show its weights in full precision.
  template <tensor::state_visitor Visitor>
  void visit_weights(Visitor& visitor) {
    tensor::AnyVisitor any(visitor);
    show_weights(any);
  }

 private:
  virtual void show_state(tensor::AnyVisitor& visitor) = 0;
  virtual void show_weights(tensor::AnyVisitor& visitor) = 0;
};

/// Holds the optimizer itself, which is made in place.
template <class Optimizer>
class OptimizerOf final : public AnyOptimizer<typename Optimizer::Element> {
  using T = typename Optimizer::Element;

 public:
  template <class... Args>
  explicit OptimizerOf(Args&&... args) : optimizer_(std::forward<Args>(args)...) {}

  [[nodiscard]] Optimizer& get() { return optimizer_; }

  optim::StepResult step(Unscaled<T>&& gradients, float lr) override {
    return optimizer_.step(std::move(gradients), lr);
  }
  [[nodiscard]] std::int64_t steps() const override { return optimizer_.steps(); }
  [[nodiscard]] std::uint64_t weights_hash() override { return optimizer_.weights_hash(); }

 private:
  void show_state(tensor::AnyVisitor& visitor) override { optimizer_.visit_state(visitor); }
  void show_weights(tensor::AnyVisitor& visitor) override {
    if constexpr (requires { optimizer_.visit_weights(visitor); }) {
      optimizer_.visit_weights(visitor);
    } else {
      core::fail<StateError>(
          "AnyOptimizer::visit_weights: this optimizer does not show its weights. ",
          "Does each process hold a shard of them?");
    }
  }

  Optimizer optimizer_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
