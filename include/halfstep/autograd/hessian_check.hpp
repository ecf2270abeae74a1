// SPDX-License-Identifier: MIT
// Are the second derivatives right? Compares a model's Hessian-vector products with differences of
// its own gradients, in double. Judges tangents against backwards, and these: gradient_check.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <halfstep/autograd/gradient_check.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/hessian.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Checks the Hessian-vector products of `loss_of(model, tape)`, where model is Model<T>(scope,
/// args…) for double and duals: as gradient_check, but loss_of must be generic in T.
///
/// One direction for each parameter, normal in its elements and 0 elsewhere, so that no block of
/// the Hessian hides behind a larger one; of each product every element is compared, by the
/// differences and the relative error of gradient_check. A row of the report is a direction.
/// Options: `elements` has no meaning here. Cost: five gradients and a product a parameter.
template <template <class> class Model, class F, class... Args>
[[nodiscard]] GradientReport hessian_check(Runtime& runtime, const GradientCheckOptions& options,
                                           F loss_of, const Args&... args) {
  if (!(options.step > 0.0) || !(options.tolerance > 0.0)) {
    core::fail<OptionError>("hessian_check: step ", options.step, ", tolerance ", options.tolerance,
                            "; wanted both above 0");
  }
  Parameters<double> parameters(runtime);
  const Model<double> model(parameters, args...);
  autograd::add_noise(parameters, options.noise);
  auto products = curvature<Model, double>(parameters, options.micro, loss_of, args...);
  Tape tape(runtime);
  Gradients<double> gradients(parameters, tape);

  GradientReport report;
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    const auto& info = parameters.info({p});
    std::vector<double> direction(products.size());
    const std::uint64_t stream = core::stream(info.name, "hessian_check");
    std::uint64_t element = 0;
    for (double& d : products.part(std::span(direction), info.name)) {
      d = static_cast<double>(numeric::normal(runtime.seed(), stream, element++));
    }
    const auto analytic = products.hessian_vector_product(direction);

    // The gradient `steps` steps along the direction.
    const auto gradient_at = [&](double steps) {
      const auto weights = parameters.write({p});
      const std::vector<double> before(weights.begin(), weights.end());
      for (std::size_t i = 0; i < before.size(); ++i) {
        weights[i] = core::fma(steps * options.step,
                               direction[static_cast<std::size_t>(info.offset) + i], before[i]);
      }
      gradients.clear();
      tape.begin(options.micro);
      tape.backward(loss_of(model, tape));
      std::copy(before.begin(), before.end(), parameters.write({p}).begin());
      std::vector<double> all;
      for (std::uint32_t q = 0; q < parameters.size(); ++q) {
        const auto g = gradients[ParameterId{q}];
        all.insert(all.end(), g.begin(), g.end());
      }
      return all;
    };
    const auto near_up = gradient_at(1.0), near_down = gradient_at(-1.0);
    const auto far_up = gradient_at(2.0), far_down = gradient_at(-2.0);
    double largest = 0.0;
    for (const double a : analytic)
      largest = std::max(largest, std::fabs(a));
    GradientReport::Row row{
        info.name, info.elements, static_cast<std::int64_t>(analytic.size()), 0.0, 0, 0.0, 0.0};
    for (std::size_t i = 0; i < analytic.size(); ++i) {
      const double far = far_up[i] - far_down[i];
      const double numeric =
          core::fma(8.0, near_up[i] - near_down[i], -far) / (12.0 * options.step);
      double error =
          std::fabs(analytic[i] - numeric) / (std::fabs(numeric) + largest / 100.0 + 1e-7);
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      if (error <= row.worst) continue;
      row.worst = error, row.worst_at = static_cast<std::int64_t>(i), row.analytic = analytic[i],
      row.numeric = numeric;
    }
    if (row.worst > report.worst) {
      report.worst = row.worst;
      const auto& infos = parameters.infos();
      const auto of = std::find_if(infos.rbegin(), infos.rend(),
                                   [&](const auto& other) { return other.offset <= row.worst_at; });
      report.where = core::text("the derivative along ", row.name, " of the gradient of ", of->name,
                                '[', row.worst_at - of->offset, ']');
    }
    report.rows.push_back(row);
  }
  report.passed = report.worst <= options.tolerance;
  return report;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
