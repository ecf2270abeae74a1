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

/// Bytes, in whole pages, code and stacks and what other libraries took included; 0 where the
/// system does not say. It never falls, so a growth is right only where no more was there before.
/// From before a model is made to the end of its training it grows by the account's peak, by the
/// holes in the tapes' arenas (Tape::addresses, Tape::place), and by what is in no account: 1 to 1.5
/// MB of code, stacks and lists, and what a plain `new` takes.
[[nodiscard]] inline std::int64_t peak_resident_memory() {
  const auto status = detail::read_small_file("/proc/self/status").value_or("");
  constexpr std::string_view name = "VmHWM:\t";
  const std::size_t at = status.find(name);
  if (at == std::string::npos) return 0;
  std::string_view rest = std::string_view(status).substr(at + name.size());
  return 1024 * detail::take_integer(rest).value_or(0);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
