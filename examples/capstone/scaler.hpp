// SPDX-License-Identifier: MIT
// The loss scaler that --loss-scale asks for.
#pragma once

#include <charconv>
#include <limits>
#include <string_view>

#include <halfstep/core/error.hpp>
#include <halfstep/mixed/loss_scaler.hpp>

#include "options.hpp"

namespace capstone {

/// What --loss-scale says.
struct LossScale {
  bool dynamic = false;
  float first = 1.0F;
};

/// auto, dynamic, dynamic:FIRST or a number. Makes no scaler: that may warn, and once is enough.
/// @throws halfstep::OptionError for anything else.
[[nodiscard]] inline LossScale loss_scale_of(const Options& options) {
  const std::string_view text = options.loss_scale;
  const auto number = [&](std::string_view digits, float least) {
    float value = 0.0F;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || !(value >= least) ||
        value > std::numeric_limits<float>::max()) {
      halfstep::core::fail<halfstep::OptionError>(
          "--loss-scale is '", text, "'; wanted auto, dynamic, dynamic:FIRST or a number, finite and "
                                      "at least ", least);
    }
    return value;
  };
  const halfstep::mixed::LossScalerOptions defaults;
  if (text == "dynamic" || (text == "auto" && options.format == "fp16")) return {true, defaults.initial};
  if (text == "auto") return {false, 1.0F};
  constexpr std::string_view from = "dynamic:";
  if (text.starts_with(from)) return {true, number(text.substr(from.size()), defaults.minimum)};
  return {false, number(text, std::numeric_limits<float>::denorm_min())};
}

/// The scaler itself. @throws as loss_scale_of.
[[nodiscard]] inline halfstep::mixed::LossScaler make_scaler(const Options& options) {
  using halfstep::mixed::LossScaler;
  const LossScale scale = loss_scale_of(options);
  return scale.dynamic ? LossScaler({.initial = scale.first}) : LossScaler::fixed(scale.first);
}

}  // namespace capstone
