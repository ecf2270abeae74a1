// SPDX-License-Identifier: MIT
// From the name of a format, as a user types it, to a type: the one place where flags meet
// templates. Not for files: dtype.hpp has their names.
#pragma once

#include <string_view>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Calls `body.template operator()<T>()` with T = float, bf16 or fp16, by name, and returns what it
/// returns: `with_format(options.format, [&]<class T> { return train<T>(options); })`.
/// @throws OptionError for another name.
template <class Body>
decltype(auto) with_format(std::string_view name, Body&& body) {
  if (name == "float") return std::forward<Body>(body).template operator()<float>();
  if (name == "bf16") return std::forward<Body>(body).template operator()<bf16>();
  if (name == "fp16") return std::forward<Body>(body).template operator()<fp16>();
  const bool eight = name.starts_with("fp8");
  core::fail<OptionError>("with_format: \"", name,
                          "\" is not a format that trains; there are float, bf16 and fp16. ",
                          eight ? "fp8 is for storage and telemetry in this release."
                                : "Was it meant as a dtype name (F32, BF16, F16)?");
}

/// The name that with_format takes for T.
template <class T>
inline constexpr std::string_view format_name = "";
template <>
inline constexpr std::string_view format_name<float> = "float";
template <>
inline constexpr std::string_view format_name<bf16> = "bf16";
template <>
inline constexpr std::string_view format_name<fp16> = "fp16";
template <>
inline constexpr std::string_view format_name<double> = "double";

}  // namespace halfstep::inline HALFSTEP_CONFIG
