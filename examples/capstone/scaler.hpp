// SPDX-License-Identifier: MIT
// The loss scaler that --loss-scale asks for.
#pragma once

#include <charconv>
#include <limits>
#include <string>
#include <string_view>

#include <halfstep/core/error.hpp>
#include <halfstep/mixed/loss_scaler.hpp>

#include "options.hpp"

namespace capstone {

/// What --loss-scale says.
struct LossScale {
  bool dynamic = false;
  halfstep::mixed::LossScalerOptions options{.initial = 1.0F};
};

/// auto, dynamic, a policy's name, either of the latter with :FIRST or :FIRST:LEAST, or a number.
/// Makes no scaler: that may warn, and once is enough.
/// @throws halfstep::OptionError for anything else.
[[nodiscard]] inline LossScale loss_scale_of(const Options& options) {
  using halfstep::mixed::LossScalerOptions;
  const std::string_view text = options.loss_scale;
  const auto number = [&](std::string_view digits, float least, float most) {
    float value = 0.0F;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() ||
        !(value >= least && value <= most)) {
      std::string names;
      for (const auto& policy : halfstep::mixed::scale_policies())
        names += std::string(policy.name) + ", ";
      halfstep::core::fail<halfstep::OptionError>(
          "--loss-scale is '", text, "'; wanted auto, dynamic, ", names,
          "one of these but auto with :FIRST or :FIRST:LEAST behind it, or a number, finite and at "
          "least ",
          least);
    }
    return value;
  };
  constexpr float largest = std::numeric_limits<float>::max();
  if (text == "auto") {
    return options.format == "fp16" ? LossScale{true, LossScalerOptions::pytorch()} : LossScale{};
  }
  const std::string_view name = text.substr(0, text.find(':'));
  LossScale scale{true, LossScalerOptions::pytorch()};
  bool named = name == "dynamic";
  for (const auto& policy : halfstep::mixed::scale_policies()) {
    if (policy.name != name) continue;
    named = true;
    scale.options = policy.options;
    // A run that ends at the floor keeps what was trained until then.
    using halfstep::mixed::AtFloor;
    if (scale.options.at_floor == AtFloor::error) scale.options.at_floor = AtFloor::stop;
  }
  if (!named)
    return {false, {.initial = number(text, std::numeric_limits<float>::denorm_min(), largest)}};
  if (name == text) return scale;
  std::string_view first = text.substr(name.size() + 1);
  if (const auto colon = first.find(':'); colon != text.npos) {
    scale.options.minimum =
        number(first.substr(colon + 1), std::numeric_limits<float>::min(), scale.options.maximum);
    first = first.substr(0, colon);
  }
  scale.options.initial = number(first, scale.options.minimum, scale.options.maximum);
  return scale;
}

/// The scaler itself. @throws as loss_scale_of.
[[nodiscard]] inline halfstep::mixed::LossScaler make_scaler(const Options& options) {
  using halfstep::mixed::LossScaler;
  const LossScale scale = loss_scale_of(options);
  return scale.dynamic ? LossScaler(scale.options) : LossScaler::fixed(scale.options.initial);
}

}  // namespace capstone
