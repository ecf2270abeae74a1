// SPDX-License-Identifier: MIT
// How much memory this process may still take: what the system has left, but no more than its
// control groups leave it. For what is reserved as a whole, where too much is no error but has the
// system kill processes. Not for: the library's own account (core/ledger.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/sysinfo.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/threads.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

namespace detail {

/// The number after that word at the beginning of a line: "MemAvailable:  123 kB".
[[nodiscard]] inline std::optional<std::int64_t> number_after(std::string_view text,
                                                              std::string_view word) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.substr(0, word.size()) != word || line.substr(word.size(), 1) != " ") continue;
    line.remove_prefix(word.size());
    return take_integer(line);
  }
  return std::nullopt;
}

/// What the limit that one directory states still allows. Pages of files that nobody reads count as
/// used, but are given up first.
[[nodiscard]] inline std::optional<std::int64_t> cgroup_memory_left(const std::string& directory,
                                                                    bool version2) {
  const auto number = [&](const char* name) -> std::optional<std::int64_t> {
    const auto content = read_small_file(directory + name);
    std::string_view rest = content ? std::string_view(*content) : std::string_view();
    return take_integer(rest);
  };
  const auto limit = number(version2 ? "/memory.max" : "/memory.limit_in_bytes");
  const auto used = number(version2 ? "/memory.current" : "/memory.usage_in_bytes");
  if (!limit || !used) return std::nullopt;
  const auto statistics = read_small_file(directory + "/memory.stat").value_or("");
  const auto unread =
      number_after(statistics, version2 ? "inactive_file" : "total_inactive_file").value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - unread));
}

}  // namespace detail

/// Bytes that the control groups of a process leave it: the least on the way from its group up to
/// the root; nothing if none sets a limit. Arguments as cgroup_cpus has them.
[[nodiscard]] inline std::optional<std::int64_t> cgroup_memory(const std::string& root,
                                                               std::string_view membership) {
  std::optional<std::int64_t> least;
  detail::visit_cgroups(root, membership, "memory",
                        [&least](const std::string& directory, bool version2) {
                          const auto left = detail::cgroup_memory_left(directory, version2);
                          if (left) least = std::min(*left, least.value_or(*left));
                        });
  return least;
}

/// The smaller of what the text of /proc/meminfo and the control groups say; nothing if the system
/// does not say: what its groups leave a process is not there for that.
[[nodiscard]] inline std::optional<std::int64_t> available_memory(
    std::string_view meminfo, std::optional<std::int64_t> groups) {
  const auto kilobytes = detail::number_after(meminfo, "MemAvailable:");
  if (!kilobytes || *kilobytes < 0) return std::nullopt;
  return std::min(*kilobytes * 1024, groups.value_or(*kilobytes * 1024));
}

/// Asks the system; where /proc does not say, free pages count (sysinfo). Nothing if unknown.
[[nodiscard]] inline std::optional<std::int64_t> available_memory() {
  const auto membership = detail::read_small_file("/proc/self/cgroup");
  const auto groups = membership ? cgroup_memory("/sys/fs/cgroup", *membership) : std::nullopt;
  const auto said = available_memory(detail::read_small_file("/proc/meminfo").value_or(""), groups);
  struct sysinfo info {};
  if (said || sysinfo(&info) != 0) return said;
  const auto free = static_cast<std::int64_t>(info.freeram) * info.mem_unit;
  return std::min(free, groups.value_or(free));
}

/// Refuses to take `bytes` for `what` where more than 15/16 of what is left would go: the rest is
/// for what this process and others take meanwhile.
/// @throws MemoryError with the numbers, also where the system does not say what it has.
inline void require_memory(std::int64_t bytes, std::string_view what,
                           std::optional<std::int64_t> available = available_memory()) {
  if (!available) {
    fail<MemoryError>("require_memory: ", what, " needs ", bytes,
                      " bytes, but this system does not say how much memory is left. ",
                      "Is /proc mounted?");
  }
  const std::int64_t most = *available / 16 * 15;
  if (bytes > most) {
    fail<MemoryError>("require_memory: ", what, " needs ", bytes, " bytes, but of the ", *available,
                      " that this system and its control groups have left, ", most,
                      " may be taken. Is a size per rank meant for all of them?");
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
