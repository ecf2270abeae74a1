// SPDX-License-Identifier: MIT
// One step of a run done twice from where the run stands, in its format and in double: how far
// apart are loss, gradient and update? Telemetry: works on copies, and the run goes on with the
// same bits. Not for: whether the gradient is right at all (autograd/gradient_check.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>
#include <halfstep/train/metrics.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// The step to be done, as the run would do it.
struct ShadowOptions {
  std::int64_t iteration = 0;  ///< keys data and dropout
  mixed::StepShape shape{};
  float scale = 1.0F;  ///< loss scale, a LossScaler's
  float clip = 0.0F;   ///< limit of the gradient's norm; 0: no clipping
  float lr = 1e-3F;
};

/// A step beside the same one in double. Distances are |x - y| / |y|, y in double, by the Euclidean
/// norm; 0 where both are zero.
struct Divergence {
  struct Row {
    std::string name;
    double gradient = 0.0, update = 0.0;
  };
  std::int64_t iteration = 0;
  double loss = 0.0, loss_in_double = 0.0;
  optim::StepResult step{}, step_in_double{};
  double gradient = 0.0;    ///< of the mean loss, before clipping
  double update = 0.0;      ///< of the full-precision weights; 1 if the step was skipped
  std::vector<Row> rows{};  ///< one for each parameter, in order of registration
};

namespace detail {

/// Copies state by name, whatever format either side keeps it in: a visitor that reads first, and
/// writes once `write` is set.
struct StateCopy {
  bool write = false;
  std::map<std::string, std::vector<double>, std::less<>> tensors{};
  std::map<std::string, std::int64_t, std::less<>> integers{};
  std::map<std::string, double, std::less<>> reals{};
  std::vector<std::string> order{};  ///< of the tensors

  void tensor(const tensor::StateTensor& tensor) {
    using numeric::DType;
    if (!tensor.whole()) {
      core::fail<StateError>("shadow_step: of '", tensor.name, "', ", tensor.shape.elements(),
                             " elements, ",
                             tensor.bytes.size() / numeric::size_of(tensor.dtype),
                             " are held here. Is the optimizer one of several processes' shards? ",
                             "Only whole state can be copied.");
    }
    switch (tensor.dtype) {
      case DType::f32:
        return copy<float>(tensor);
      case DType::f64:
        return copy<double>(tensor);
      case DType::bf16:
        return copy<bf16>(tensor);
      case DType::f16:
        return copy<fp16>(tensor);
      case DType::f8_e4m3:
        return copy<fp8_e4m3>(tensor);
      case DType::f8_e5m2:
        return copy<fp8_e5m2>(tensor);
      case DType::i8:
        return copy<std::int8_t>(tensor);
      case DType::i16:
        return copy<std::int16_t>(tensor);
      case DType::i32:
        return copy<std::int32_t>(tensor);
      case DType::u8:
        return copy<std::uint8_t>(tensor);
      case DType::u16:
        return copy<std::uint16_t>(tensor);
      case DType::u32:
        return copy<std::uint32_t>(tensor);
      case DType::i64:
      case DType::u64:
        break;  // not exact in double
    }
    core::fail<StateError>("shadow_step: '", tensor.name, "' has a format that this cannot copy");
  }
  void scalar(std::string_view name, std::int64_t& value) { copy(integers, name, value); }
  void scalar(std::string_view name, double& value) { copy(reals, name, value); }

 private:
  template <class Map, class Value>
  void copy(Map& map, std::string_view name, Value& value) const {
    if (write) {
      value = found(map, name);
    } else {
      map.emplace(name, value);
    }
  }
  template <class E>
  void copy(const tensor::StateTensor& tensor) {
    const auto count = static_cast<std::size_t>(tensor.shape.elements());
    if (!write) {
      order.emplace_back(tensor.name);
      tensors.emplace(tensor.name, std::vector<double>(count));
    }
    std::vector<double>& values = found(tensors, tensor.name);
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const bytes = tensor.bytes.data() + i * sizeof(E);
      E element;
      std::memcpy(&element, bytes, sizeof element);
      if (!write) {
        values[i] = static_cast<double>(element);
        continue;
      }
      element = static_cast<E>(values[i]);
      std::memcpy(bytes, &element, sizeof element);
    }
  }
  template <class Map>
  [[nodiscard]] static typename Map::mapped_type& found(Map& map, std::string_view name) {
    const auto at = map.find(name);
    if (at == map.end()) {
      core::fail<StateError>("shadow_step: the optimizer in double has a state '", name,
                             "' that the run's has not");
    }
    return at->second;
  }
};

/// What a step leaves behind, in double.
struct StepTrace {
  double loss = 0.0;
  optim::StepResult result;
  std::vector<std::vector<double>> gradient, update;  // [parameter][element]
};

template <class U, template <class> class Model, template <class> class Optimizer, class T, class F,
          class... Args>
[[nodiscard]] StepTrace traced_step(Parameters<T>& parameters,
                                    mixed::MasterWeights<Optimizer, T>& run,
                                    const ShadowOptions& options, const F& loss_of,
                                    const Args&... args) {
  auto twin = parameters.template as<U>();
  const Model<U> model(twin.scope(), args...);
  mixed::MasterWeights<Optimizer, U> optimizer(twin, run.options());
  StateCopy state, before, after;
  run.visit_state(state);
  run.visit_weights(before);
  state.write = before.write = true;
  optimizer.visit_state(state);
  optimizer.visit_weights(before);

  auto scaler = mixed::LossScaler::fixed(options.scale);
  mixed::GradientAccumulator<U> accumulator(twin, scaler);
  Tape tape(twin.runtime());
  auto window = accumulator.begin(tape, options.iteration, options.shape);
  for (const MicroBatch micro : window) {
    tape.begin(micro);
    window.backward(tape, loss_of(model, tape, micro));
  }
  StepTrace trace;
  trace.loss = window.loss();
  auto gradients = std::move(window).unscale();
  const double factor = gradients.unscale_factor();
  // Under the house's floating-point environment, as whatever computes on arrays.
  const auto compute = twin.runtime().compute();
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (std::uint32_t i = 0; i < twin.size(); ++i) {
      auto& row = trace.gradient.emplace_back();
      for (const auto g : gradients.sum({i}))
        row.push_back(static_cast<double>(g) * factor);
    }
  });
  trace.result = options.clip > 0.0F
                     ? optimizer.step(std::move(gradients).clip_norm(options.clip), options.lr)
                     : optimizer.step(std::move(gradients), options.lr);
  optimizer.visit_weights(after);
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (const std::string& name : after.order) {
      auto& row = trace.update.emplace_back(std::move(after.tensors.find(name)->second));
      const auto& old = before.tensors.find(name)->second;
      for (std::size_t i = 0; i < row.size(); ++i)
        row[i] -= old[i];
    }
  });
  return trace;
}

/// Sums for |x - y| / |y|, in order of the elements.
struct Distance {
  double apart = 0.0, size = 0.0;

  void add(std::span<const double> x, std::span<const double> y) {
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double d = x[i] - y[i];
      apart += core::rounded(d * d);
      size += core::rounded(y[i] * y[i]);
    }
  }
  void add(const Distance& other) {
    apart += other.apart;
    size += other.size;
  }
  [[nodiscard]] double relative() const { return apart == 0.0 ? 0.0 : std::sqrt(apart / size); }
};

}  // namespace detail

/// Does iteration `options.iteration` from the optimizer's present state, once in T and once in
/// double, each on copies of weights and state made for it; full-precision weights (masters) are
/// where both start. Between windows:
///
///   const auto d = train::shadow_step<nn::Gpt>(
///       parameters, optimizer, {.iteration = iteration, .shape = shape, .scale = scaler.scale()},
///       [&]<class U>(const nn::Gpt<U>& model, Tape& tape, const MicroBatch& micro) {
///         const auto batch = text.batch(micro, length);
///         return cross_entropy(model(tape, batch.inputs), batch.targets);
///       }, gpt_options);
///
/// `args` are the model's, behind its scope. `optimizer` is in the default state formats: another
/// way of holding weights or moments has no counterpart in double to copy it to. Cost: a step in T,
/// one in double, and about 100 bytes a parameter while it runs, of which the ledger of the
/// parameters' Runtime sees the twins.
/// @throws what a step throws; StateError if the optimizer holds a shard of its state alone.
template <template <class> class Model, template <class> class Optimizer, class T, class State,
          class F, class... Args>
[[nodiscard]] Divergence shadow_step(Parameters<T>& parameters,
                                     mixed::MasterWeights<Optimizer, T, State>& optimizer,
                                     const ShadowOptions& options, const F& loss_of,
                                     const Args&... args) {
  static_assert(std::same_as<State, mixed::FloatMaster<>>,
                "shadow_step: takes optimizers with the default state formats, FloatMaster<>");
  const auto own = detail::traced_step<T, Model>(parameters, optimizer, options, loss_of, args...);
  const auto fine =
      detail::traced_step<double, Model>(parameters, optimizer, options, loss_of, args...);
  Divergence result{.iteration = options.iteration,
                    .loss = own.loss,
                    .loss_in_double = fine.loss,
                    .step = own.result,
                    .step_in_double = fine.result};
  detail::Distance gradient, update;
  parameters.runtime().compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (std::size_t i = 0; i < own.gradient.size(); ++i) {
      detail::Distance g, u;
      g.add(own.gradient[i], fine.gradient[i]);
      u.add(own.update[i], fine.update[i]);
      gradient.add(g);
      update.add(u);
      result.rows.push_back({parameters.infos()[i].name, g.relative(), u.relative()});
    }
    result.gradient = gradient.relative();
    result.update = update.relative();
  });
  return result;
}

/// {"schema":1,"kind":"shadow","iteration":250,…}
[[nodiscard]] inline std::string metrics_line(const Divergence& d) {
  detail::JsonLine json;
  json.add("schema", metrics_schema);
  json.add("kind", "shadow");
  json.add("iteration", d.iteration);
  json.add("applied", d.step.applied);
  json.add("loss", d.loss);
  json.add("loss_in_double", d.loss_in_double);
  json.add("gradient_distance", d.gradient);
  json.add("update_distance", d.update);
  return json.line();
}

/// Losses, distances, and the parameters whose gradients are furthest off, for a log.
[[nodiscard]] inline std::string to_string(const Divergence& d, std::size_t most_rows = 5) {
  std::string text =
      core::text("shadow step of iteration ", d.iteration, ": loss ", d.loss, ", in double ",
                 d.loss_in_double, "; relative distance ", "of the gradient ", d.gradient,
                 ", of the update ", d.update, d.step.applied ? "\n" : " (the step was skipped)\n");
  std::vector<const Divergence::Row*> rows;
  for (const auto& row : d.rows)
    rows.push_back(&row);
  const auto badness = [](const Divergence::Row* row) {
    return std::isnan(row->gradient) ? std::numeric_limits<double>::infinity() : row->gradient;
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto* a, const auto* b) { return badness(a) > badness(b); });
  rows.resize(std::min(rows.size(), most_rows));
  for (const auto* row : rows)
    text +=
        core::text("  ", row->name, ": gradient ", row->gradient, ", update ", row->update, "\n");
  return text;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
