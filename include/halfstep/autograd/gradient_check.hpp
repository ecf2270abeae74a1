// SPDX-License-Identifier: MIT
// Is the gradient right? Builds a model once more in double and compares every parameter's gradient
// with differences of its own forward pass. Judges a backward against its forward, not the forward.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

struct GradientCheckOptions {
  double step = 1e-3;            ///< of the difference, times max(1, |w|)
  double tolerance = 1e-6;       ///< relative; see GradientReport
  double noise = 0.1;            ///< deviation of what is added to the initial values, so that
                                 ///< gains of 1 and biases of 0 hide nothing
  std::int64_t elements = 64;    ///< checked per parameter at most, spread evenly, ends included
  MicroBatch micro{0, 0, 0, 1};  ///< that the tape begins with
};

/// One row per parameter, in order of registration: none is left out.
struct GradientReport {
  struct Row {
    std::string name;
    std::int64_t elements = 0, checked = 0;
    double worst = 0.0;                    ///< largest error, relative as below
    std::int64_t worst_at = 0;             ///< its element
    double analytic = 0.0, numeric = 0.0;  ///< the two values there
  };
  bool passed = true;
  double worst = 0.0;
  std::string where;  ///< "blocks.0.up.weight[17]"
  std::vector<Row> rows;

  /// @throws NumericError naming the worst element and both values, unless all passed.
  void require() const {
    if (passed) return;
    for (const Row& row : rows) {
      if (row.worst != worst) continue;
      core::fail<NumericError>(
          "gradient_check: ", where, ": backward says ", row.analytic,
          ", differences of forward say ", row.numeric, " (relative error ", worst,
          "). Is a term, a sign or a transpose wrong in the backward of an op it feeds?");
    }
  }
};

namespace autograd {
/// Moves every element by a normal draw of that deviation.
inline void add_noise(Parameters<double>& parameters, double deviation) {
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    const std::uint64_t stream = core::stream(parameters.info({p}).name, "gradient_check");
    std::uint64_t element = 0;
    for (double& w : parameters.write({p})) {
      w += core::rounded(deviation * static_cast<double>(numeric::normal(
                                         parameters.runtime().seed(), stream, element++)));
    }
  }
}
}  // namespace autograd

/// Checks the gradient of `loss_of(model, tape)`, where model is Model<double>(scope, args…).
///
///   hs::gradient_check<Regressor>(runtime, [&]<class T>(const Regressor<T>& model, hs::Tape& tape)
///   {
///     return hs::squared_error(model(hs::constant<T>(tape, {2, 3}, x)), y);
///   }, 3, 16).require();
///
/// Differences are central and of fourth order, (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h. An
/// element's error is |analytic - numeric| / (|numeric| + a hundredth of the parameter's largest
/// gradient + 1e-7). Cost: four forward passes per checked element, plus one backward.
template <template <class> class Model, class F, class... Args>
[[nodiscard]] GradientReport gradient_check(Runtime& runtime, const GradientCheckOptions& options,
                                            F loss_of, const Args&... args) {
  if (options.elements < 1 || !(options.step > 0.0) || !(options.tolerance > 0.0)) {
    core::fail<OptionError>("gradient_check: elements ", options.elements, ", step ", options.step,
                            ", tolerance ", options.tolerance,
                            "; wanted at least 1, and both others above 0, or nothing is checked");
  }
  Parameters<double> parameters(runtime);
  const Model<double> model(parameters, args...);
  Tape tape(runtime);
  autograd::add_noise(parameters, options.noise);
  Gradients<double> gradients(parameters, tape);
  const auto forward = [&] {
    tape.begin(options.micro);
    return loss_of(model, tape);
  };
  tape.backward(forward());

  GradientReport report;
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    const auto analytic = gradients[ParameterId{p}];
    const auto& info = parameters.info({p});
    GradientReport::Row row{
        info.name, info.elements, std::min(info.elements, options.elements), 0.0, 0, 0.0, 0.0};
    double largest = 0.0;
    for (const double g : analytic)
      largest = std::max(largest, std::fabs(g));
    for (std::int64_t i = 0; i < row.checked; ++i) {
      const std::int64_t at = row.checked == 1 ? 0 : i * (info.elements - 1) / (row.checked - 1);
      const auto value_at = [&](double offset) {
        double& w = parameters.write({p})[static_cast<std::size_t>(at)];
        const double saved = w;
        w = saved + offset;
        const double sum = forward().sum;
        parameters.write({p})[static_cast<std::size_t>(at)] = saved;
        return sum;
      };
      const double h =
          options.step *
          std::max(1.0, std::fabs(parameters.values(ParameterId{p})[static_cast<std::size_t>(at)]));
      const double near = value_at(h) - value_at(-h);
      const double far = value_at(2.0 * h) - value_at(-2.0 * h);
      const double numeric = core::fma(8.0, near, -far) / (12.0 * h);
      const double a = analytic[static_cast<std::size_t>(at)];
      double error = std::fabs(a - numeric) / (std::fabs(numeric) + largest / 100.0 + 1e-7);
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      if (error > row.worst)
        row.worst = error, row.worst_at = at, row.analytic = a, row.numeric = numeric;
    }
    if (row.worst > report.worst) {
      report.worst = row.worst;
      report.where = core::text(row.name, '[', row.worst_at, ']');
    }
    report.rows.push_back(row);
  }
  report.passed = report.worst <= options.tolerance;
  return report;
}
template <template <class> class Model, class F, class... Args>
[[nodiscard]] GradientReport gradient_check(Runtime& runtime, F loss_of, const Args&... args) {
  return gradient_check<Model>(runtime, GradientCheckOptions{}, loss_of, args...);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
