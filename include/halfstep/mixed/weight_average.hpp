// SPDX-License-Identifier: MIT
// The exponential moving average of a run's weights, in float, beside them: training never reads
// it. Evaluate it through a store of its own. Not for: averaging over processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/elementary_double.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

struct WeightAverageOptions {
  double decay = 0.999;  ///< share of the average that stays at an update; in [0, 1)
  double gamma = 1.0;    ///< updates over which the warm-up stretches; 0: none
};

/// After each applied update, t of them before it:
///   d = min(decay, 1 - (1 + t / gamma)^(-2/3)),   average += (1 - d) (weights - average)
/// so the first makes the average the weights, and early weights, which are poor, are soon
/// forgotten. 1 - d is rounded to float, and each of the three operations rounds. Memory: 4 bytes a
/// parameter, in the ledger's moments. Source: timm's ModelEmaV3.
///
///   if (result.applied) average.update(optimizer);       // once a step, never a micro-batch
///   auto averaged = parameters.as<float>();               // a twin of the store, once
///   average.copy_to(averaged);
///   const nn::Gpt<float> model(averaged, options);        // and evaluate that
class WeightAverage {
 public:
  /// @throws OptionError for options out of range; StateError for a store without parameters.
  explicit WeightAverage(const tensor::ParameterTable& parameters,
                         const WeightAverageOptions& options = {})
      : parameters_(parameters),
        options_(options),
        average_(parameters, optim::whole_parts(parameters)) {
    if (!(options.decay >= 0.0 && options.decay < 1.0 && options.gamma >= 0.0 &&
          options.gamma < 1e300)) {
      core::fail<OptionError>("WeightAverage: decay ", options.decay, ", gamma ", options.gamma,
                              "; wanted a decay in [0, 1) and a finite gamma of at least 0");
    }
  }

  /// Takes the optimizer's weights in full precision, the masters where there are any.
  /// @throws StateError unless they are of the same parameters, as floats.
  template <class Optimizer>
  void update(Optimizer& optimizer) {
    Taker taker{*this, share()};
    optimizer.visit_weights(taker);
    ++updates_;
  }

  /// The average, rounded to T, as the weights of another store of these parameters.
  /// @throws ShapeError if it has others.
  template <class T>
  void copy_to(Parameters<T>& store) {
    if (store.size() != parameters_.size() || store.count() != parameters_.count()) {
      core::fail<ShapeError>("WeightAverage::copy_to: the average has ", parameters_.count(),
                             " elements in ", parameters_.size(), " parameters, the store ",
                             store.count(), " in ", store.size());
    }
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto to = store.write(ParameterId{i});
      const auto from = average_.values(i);
      for (std::size_t e = 0; e < from.size(); ++e)
        to[e] = static_cast<T>(from[e]);
    }
  }

  [[nodiscard]] std::int64_t updates() const { return updates_; }
  /// Of one parameter.
  [[nodiscard]] std::span<const float> values(ParameterId id) { return average_.values(id.index); }

  /// average.<parameter> as F32, and average.updates.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("average.updates", updates_);
    average_.visit_state(visitor, "average.");
  }

 private:
  /// Visits weights in order of registration and moves the average towards them.
  struct Taker {
    WeightAverage& owner;
    float share;
    std::size_t index = 0;

    void tensor(const tensor::StateTensor& t) {
      const std::span<float> average =
          index < owner.average_.size() ? owner.average_.values(index) : std::span<float>();
      ++index;
      if (t.dtype != numeric::DType::f32 || t.bytes.size() != average.size_bytes()) {
        core::fail<StateError>("WeightAverage::update: '", t.name, "' has ", t.bytes.size(),
                               " bytes of ", numeric::to_string(t.dtype), ", the average ",
                               average.size_bytes(),
                               " of F32. Is it the average of another model?");
      }
      const auto weights = reinterpret_cast<const float*>(t.bytes.data());
      owner.parameters_.runtime().compute().parallel(
          static_cast<std::int64_t>(average.size()), 16384,
          [&](std::int64_t begin, std::int64_t end, int) {
            for (std::int64_t i = begin; i < end; ++i) {
              float& a = average[static_cast<std::size_t>(i)];
              a = core::rounded(share * (weights[i] - a)) + a;
            }
          });
    }
    void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
    void scalar(std::string_view /*name*/, double& /*value*/) {}
  };

  /// 1 - d of the next update.
  [[nodiscard]] float share() const {
    float result = 1.0F;
    parameters_.runtime().compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      double away = 1.0 - options_.decay;
      if (options_.gamma > 0.0) {
        const double early =
            numeric::pow(1.0 + static_cast<double>(updates_) / options_.gamma, -2.0 / 3.0);
        away = early > away ? early : away;
      } else if (updates_ == 0) {
        away = 1.0;
      }
      result = static_cast<float>(away);
    });
    return result;
  }

  const tensor::ParameterTable& parameters_;
  WeightAverageOptions options_;
  optim::Moments<float> average_;
  std::int64_t updates_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
