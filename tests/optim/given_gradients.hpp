// SPDX-License-Identifier: MIT
// Gradients that a test writes down, as an optimizer's step takes them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/core/error.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep_tests {

template <class R>
class GivenGradients {
 public:
  using gradient = R;
  /// `values`: all elements in order of registration.
  GivenGradients(halfstep::tensor::ParameterTable& parameters, std::vector<R> values,
                 double factor = 1.0)
      : parameters_(&parameters), values_(std::move(values)), factor_(factor) {}

  halfstep::tensor::ParameterTable& parameters() const { return *parameters_; }
  std::span<const R> sum(halfstep::ParameterId id) const {
    const auto& info = parameters_->info(id);
    return std::span<const R>(values_).subspan(static_cast<std::size_t>(info.offset),
                                               static_cast<std::size_t>(info.elements));
  }
  double factor() const { return factor_; }
  halfstep::optim::StepResult result() const {
    if (settled_) throw halfstep::StateError("used already");
    return outcome;
  }
  void settle(halfstep::optim::StepResult& result) && {
    settled_ = true;
    result.scale = 42.0F;
  }

  halfstep::optim::StepResult outcome;

 private:
  halfstep::tensor::ParameterTable* parameters_;
  std::vector<R> values_;
  double factor_;
  bool settled_ = false;
};

}  // namespace halfstep_tests
