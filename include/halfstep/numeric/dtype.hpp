// SPDX-License-Identifier: MIT
// The format of stored elements as a value: what a tensor of a file or of a state is made of. Names
// are those of safetensors. Not for picking code: format.hpp does that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::numeric {

enum class DType : std::uint8_t {
  f32,
  bf16,
  f16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f8_e4m3,
  f8_e5m2
};

namespace detail {
struct DTypeRow {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
inline constexpr std::array<DTypeRow, 14> dtypes{{{DType::f32, "F32", 4},
                                                  {DType::bf16, "BF16", 2},
                                                  {DType::f16, "F16", 2},
                                                  {DType::f64, "F64", 8},
                                                  {DType::i8, "I8", 1},
                                                  {DType::i16, "I16", 2},
                                                  {DType::i32, "I32", 4},
                                                  {DType::i64, "I64", 8},
                                                  {DType::u8, "U8", 1},
                                                  {DType::u16, "U16", 2},
                                                  {DType::u32, "U32", 4},
                                                  {DType::u64, "U64", 8},
                                                  {DType::f8_e4m3, "F8_E4M3", 1},
                                                  {DType::f8_e5m2, "F8_E5M2", 1}}};
template <class T>
struct dtype_tag {};
template <>
struct dtype_tag<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_tag<halfstep::bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_tag<fp16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_tag<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_tag<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct dtype_tag<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct dtype_tag<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_tag<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_tag<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_tag<std::uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct dtype_tag<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct dtype_tag<std::uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct dtype_tag<fp8_e4m3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <>
struct dtype_tag<fp8_e5m2> {
  static constexpr DType value = DType::f8_e5m2;
};
}  // namespace detail

/// A type that has a DType. Duals have none: each of their planes has that of its real type.
template <class T>
concept stored = requires {
  detail::dtype_tag<T>::value;
};

template <stored T>
inline constexpr DType dtype_of = detail::dtype_tag<T>::value;

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  return detail::dtypes[static_cast<std::size_t>(dtype)].bytes;
}

/// The name in a safetensors header: "F32", "BF16", …
[[nodiscard]] constexpr std::string_view to_string(DType dtype) {
  return detail::dtypes[static_cast<std::size_t>(dtype)].name;
}

/// The format of that safetensors name, if there is one.
[[nodiscard]] constexpr std::optional<DType> find_dtype(std::string_view name) {
  for (const auto& row : detail::dtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

/// The format of that safetensors name.
/// @throws DataError for a name that is not one, listing those that are.
[[nodiscard]] inline DType parse_dtype(std::string_view name) {
  if (const auto dtype = find_dtype(name)) return *dtype;
  std::string known;
  for (const auto& row : detail::dtypes)
    known += core::text(known.empty() ? "" : ", ", row.name);
  core::fail<DataError>("parse_dtype: \"", name, "\" is not a format known here (", known,
                        "). Was the file written by a newer version?");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric
