// SPDX-License-Identifier: MIT
// The loss scaler that --loss-scale asks for.
#pragma once

#include <charconv>
#include <string_view>

#include <halfstep/core/error.hpp>
#include <halfstep/mixed/loss_scaler.hpp>

#include "options.hpp"

namespace capstone {

/// auto, dynamic, dynamic:FIRST or a number. @throws halfstep::OptionError for anything else.
[[nodiscard]] inline halfstep::mixed::LossScaler make_scaler(const Options& options) {
  using halfstep::mixed::LossScaler;
  const std::string_view text = options.loss_scale;
  const auto number = [&](std::string_view digits) {
    float value = 0.0F;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || !(value > 0.0F)) {
      halfstep::core::fail<halfstep::OptionError>(
          "--loss-scale is '", text, "'; wanted auto, dynamic, dynamic:FIRST or a number above 0");
    }
    return value;
  };
  if (text == "dynamic" || (text == "auto" && options.format == "fp16")) return LossScaler();
  if (text == "auto") return LossScaler::fixed(1.0F);
  constexpr std::string_view from = "dynamic:";
  if (text.starts_with(from)) return LossScaler({.initial = number(text.substr(from.size()))});
  return LossScaler::fixed(number(text));
}

}  // namespace capstone
