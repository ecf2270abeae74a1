// SPDX-License-Identifier: MIT
// What fit measures of a window where somebody listens: magnitudes of its gradient, and what its
// update did to the weights. As plain data, as a line of metrics.jsonl and as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/histogram.hpp>
#include <halfstep/mixed/lost_updates.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/train/metrics.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// One window and the update that followed.
struct TelemetryInfo {
  std::int64_t iteration = 0;  ///< windows done, this one included, as in EvaluationInfo
  std::int64_t step = 0;       ///< updates applied
  float scale = 1.0F;          ///< loss scale of the window
  std::vector<mixed::TensorMagnitudes> gradients{};  ///< a row for each parameter
  std::vector<mixed::WeightUpdates> updates{};       ///< the same, against the format of the weights
};

/// {"schema":1,"kind":"telemetry","iteration":250,…}: of all parameters together, shares of the
/// gradients that are not zero and of the weights that changed.
[[nodiscard]] inline std::string metrics_line(const TelemetryInfo& info) {
  const mixed::Magnitudes all = mixed::total(info.gradients);
  const auto advice = all.advised_scale<fp16>();
  const mixed::WeightUpdates updates = mixed::total(info.updates);
  detail::JsonLine json;
  json.add("schema", metrics_schema);
  json.add("kind", "telemetry");
  json.add("iteration", info.iteration);
  json.add("step", info.step);
  json.add("scale", info.scale);
  json.add("largest_gradient", all.largest);
  json.add("smallest_gradient", all.smallest);
  json.add("zero_gradients", all.zeros);
  json.add("fp16_lost", all.share_lost<fp16>());
  json.add("fp16_lost_at_scale", all.share_lost<fp16>(static_cast<double>(info.scale)));
  json.add("fp16_advised_scale", advice.scale);
  json.add("bf16_lost", all.share_lost<bf16>());
  json.add("largest_update", updates.largest);
  json.add("updates_below_half_ulp", updates.share_below_half());
  return json.line();
}

/// The histogram of all gradients, the table of parameters, and a line on the updates.
[[nodiscard]] inline std::string to_string(const TelemetryInfo& info) {
  const auto scale = static_cast<double>(info.scale);
  const mixed::WeightUpdates updates = mixed::total(info.updates);
  return core::text("gradients of iteration ", info.iteration, ", by magnitude\n",
                    mixed::histogram_text(mixed::total(info.gradients), scale), "\n",
                    mixed::table_text(info.gradients, scale), "\nupdates below half an ulp of their weight: ",
                    updates.below_half, " of ", updates.updated, "\n");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
