// SPDX-License-Identifier: MIT
// The errors that the library throws at its edges, and the one way to throw them. A message names
// the function, the values it saw, what it wanted and the likely cause.
#pragma once

#include <charconv>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Base of everything the library throws.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Sizes that do not fit each other.
struct ShapeError : Error {
  using Error::Error;
};
/// An option, flag or key out of range or unknown.
struct OptionError : Error {
  using Error::Error;
};
/// A file that is missing, cut, full or malformed.
struct FileError : Error {
  using Error::Error;
};
/// Tokens, targets or text that cannot be used.
struct DataError : Error {
  using Error::Error;
};
/// A non-finite loss or gradient.
struct NumericError : Error {
  using Error::Error;
};
/// Calls in the wrong order, stale handles.
struct StateError : Error {
  using Error::Error;
};
/// Memory or threads that the system refuses.
struct MemoryError : Error {
  using Error::Error;
};
/// Another rank failed, ended or was ended: not the cause, but what this rank saw of it.
struct PeerError : Error {
  using Error::Error;
};
/// Another rank did not come in time.
struct TimeoutError : Error {
  using Error::Error;
};
/// Ranks that met in different operations, or in one operation with different sizes.
struct MismatchError : Error {
  using Error::Error;
};

namespace core {

namespace detail {
inline void append(std::string& out, std::string_view text) { out += text; }
inline void append(std::string& out, const char* text) { out += text; }
inline void append(std::string& out, char c) { out += c; }
inline void append(std::string& out, bool value) { out += value ? "true" : "false"; }
template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) void append(std::string& out,
                                                                           Number value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, result.ptr);
}
}  // namespace detail

/// Its arguments as one string; numbers in the shortest form that reads back, whatever the locale.
template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

/// Throws E with the parts as its message.
template <class E, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw E(text(parts...));
}

}  // namespace core
}  // namespace halfstep::inline HALFSTEP_CONFIG
