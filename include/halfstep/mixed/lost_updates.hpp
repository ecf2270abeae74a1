// SPDX-License-Identifier: MIT
// Which weights a step moves by less than half an ulp: without a copy in a finer format such an
// update rounds away. Telemetry: compares the full-precision weights before a step with those after
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Half the distance from a finite number of F, float or narrower, to the next one away from zero.
template <class F>
[[nodiscard]] double half_ulp(F weight) {
  using limits = std::numeric_limits<F>;
  static_assert(limits::digits <= 24, "ask about a format of weights: after<bf16>(optimizer)");
  const int exponent = detail::floor_log2(std::fabs(static_cast<double>(weight)));
  return detail::power_of_two(std::max(exponent, limits::min_exponent - 1) - limits::digits);
}

/// What a step did to one tensor.
struct WeightUpdates {
  std::string name;
  std::int64_t weights = 0;
  std::int64_t updated = 0;     ///< whose full-precision value changed
  std::int64_t below_half = 0;  ///< of those, by less than half an ulp of the weight in the format
  double largest = 0.0;         ///< the largest change

  [[nodiscard]] double share_below_half() const {
    return updated == 0 ? 0.0 : static_cast<double>(below_half) / static_cast<double>(updated);
  }
};

/// All rows as one tensor.
[[nodiscard]] inline WeightUpdates total(std::span<const WeightUpdates> rows) {
  WeightUpdates all{.name = "all"};
  for (const WeightUpdates& row : rows) {
    all.weights += row.weights;
    all.updated += row.updated;
    all.below_half += row.below_half;
    all.largest = std::max(all.largest, row.largest);
  }
  return all;
}

/// Between windows:
///
///   mixed::LostUpdates probe(parameters);
///   probe.before(optimizer);
///   … a window and its step …
///   for (const auto& row : probe.after(optimizer)) …
///
/// `optimizer` is a MasterWeights, or has its visit_weights, and shows whole tensors: a shard of one
/// is a StateError that names it. Memory: a double a parameter, as workspace, as long as it lives.
/// Cost: each call reads the weights once. Changes no bit of the run.
template <class T>
class LostUpdates {
 public:
  explicit LostUpdates(Parameters<T>& parameters)
      : parameters_(parameters),
        values_((parameters.lay_out(), parameters.runtime().ledger()), core::Category::workspace,
                parameters.count()) {}

  template <class Optimizer>
  void before(Optimizer& optimizer) {
    visit(optimizer, [&](const tensor::StateTensor&, std::int64_t, std::int64_t at, double value) {
      values_.data()[at] = value;
    });
    taken_ = true;
  }
  /// Against the ulp of F, the format of the weights unless another is asked about.
  /// @throws StateError without a `before`.
  template <class F = T, class Optimizer>
  [[nodiscard]] std::vector<WeightUpdates> after(Optimizer& optimizer) {
    if (!taken_) {
      core::fail<StateError>("LostUpdates::after: there is nothing to compare with. ",
                             "Call before(optimizer) ahead of the step.");
    }
    std::vector<WeightUpdates> rows;
    visit(optimizer, [&](const tensor::StateTensor& tensor, std::int64_t element, std::int64_t at,
                         double value) {
      if (element == 0) rows.push_back({.name = std::string(tensor.name)});
      WeightUpdates& row = rows.back();
      ++row.weights;
      const double old = values_.data()[at], change = std::fabs(value - old);
      if (change == 0.0) return;
      ++row.updated;
      row.below_half += change < half_ulp(static_cast<F>(old)) ? 1 : 0;
      row.largest = std::max(row.largest, change);
    });
    return rows;
  }

 private:
  template <class Each>
  struct Visitor {
    const core::Compute& compute;
    std::int64_t room;
    const Each& each;
    std::int64_t at = 0;

    void tensor(const tensor::StateTensor& tensor) {
      const std::int64_t elements = tensor.shape.elements();
      if (!tensor.whole()) {
        core::fail<StateError>("LostUpdates: of '", tensor.name, "', ", elements, " elements, ",
                               tensor.bytes.size() / numeric::size_of(tensor.dtype),
                               " are held here. Is the optimizer one of several processes' shards? ",
                               "Only whole weights can be compared.");
      }
      if (at + elements > room) {
        core::fail<StateError>("LostUpdates: '", tensor.name,
                               "' is one tensor too many for the store ",
                               "that this was made for. Is the optimizer another model's?");
      }
      compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
        for (std::int64_t i = 0; i < elements; ++i)
          each(tensor, i, at + i, read(tensor, i));
      });
      at += elements;
    }
    void scalar(std::string_view, std::int64_t&) {}
    void scalar(std::string_view, double&) {}

    template <class R>
    [[nodiscard]] static double as(const std::byte* bytes) {
      R value;
      std::memcpy(&value, bytes, sizeof value);
      return static_cast<double>(value);
    }
    [[nodiscard]] static double read(const tensor::StateTensor& tensor, std::int64_t i) {
      const std::byte* const bytes =
          tensor.bytes.data() + static_cast<std::size_t>(i) * numeric::size_of(tensor.dtype);
      switch (tensor.dtype) {
        case numeric::DType::f32:
          return as<float>(bytes);
        case numeric::DType::f64:
          return as<double>(bytes);
        case numeric::DType::bf16:
          return as<bf16>(bytes);
        case numeric::DType::f16:
          return as<fp16>(bytes);
        default:
          return 0.0;  // weights are none of the others
      }
    }
  };
  template <class Optimizer, class Each>
  void visit(Optimizer& optimizer, const Each& each) {
    const auto compute = parameters_.runtime().compute();
    Visitor<Each> visitor{compute, parameters_.count(), each};
    optimizer.visit_weights(visitor);
  }

  Parameters<T>& parameters_;
  tensor::Memory<double> values_;
  bool taken_ = false;
};

template <class T>
LostUpdates(Parameters<T>&) -> LostUpdates<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
