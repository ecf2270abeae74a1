// SPDX-License-Identifier: MIT
// How much memory this process has had at most, as the system counts it: to be held against the
// library's own account (core/ledger.hpp), which knows what the memory was for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/threads.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// Bytes, in whole pages, code and stacks and what other libraries took included; 0 where the system
/// does not say. The growth from before a model is made to the end of its training is the account's
/// peak, and beyond it the holes in the tapes' arenas (Tape::addresses, Tape::place) and what no
/// account is kept of: about 1 MB of code, stacks and lists. What a plain `new` takes is not in it.
[[nodiscard]] inline std::int64_t peak_resident_memory() {
  const auto status = detail::read_small_file("/proc/self/status").value_or("");
  constexpr std::string_view name = "VmHWM:\t";
  const std::size_t at = status.find(name);
  if (at == std::string::npos) return 0;
  std::string_view rest = std::string_view(status).substr(at + name.size());
  return 1024 * detail::take_integer(rest).value_or(0);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
