// SPDX-License-Identifier: MIT
// How many threads this process may run at a time: the CPUs of its affinity mask, but no more than
// its control groups pay for. std::thread::hardware_concurrency knows nothing of the second.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

namespace detail {

/// The text of a small file, or nothing if it cannot be read.
[[nodiscard]] inline std::optional<std::string> read_small_file(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::string content(16384, '\0');
  content.resize(std::fread(content.data(), 1, content.size(), file));
  const bool failed = std::ferror(file) != 0;  // a directory opens, but does not read
  static_cast<void>(std::fclose(file));
  if (failed) return std::nullopt;
  return content;
}

/// Takes the next integer off the front of the text.
[[nodiscard]] inline std::optional<std::int64_t> take_integer(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n'))
    text.remove_prefix(1);
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return value;
}

/// Whole CPUs of quota microseconds every period, or nothing where those are no limit.
[[nodiscard]] inline std::optional<int> whole_cpus(std::optional<std::int64_t> quota,
                                                   std::optional<std::int64_t> period) {
  if (!quota || !period || *quota < 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(std::min<std::int64_t>(*quota / *period, 1 << 20));
}

/// The limit that one directory of version 2 ("max 100000", "150000 100000") or 1 states.
[[nodiscard]] inline std::optional<int> cgroup_limit(const std::string& directory, bool version2) {
  if (version2) {
    const auto content = read_small_file(directory + "/cpu.max");
    std::string_view rest = content ? std::string_view(*content) : std::string_view();
    const auto quota = take_integer(rest);
    return whole_cpus(quota, take_integer(rest));
  }
  const auto quota_text = read_small_file(directory + "/cpu.cfs_quota_us");
  const auto period_text = read_small_file(directory + "/cpu.cfs_period_us");
  if (!quota_text || !period_text) return std::nullopt;
  std::string_view quota = *quota_text, period = *period_text;
  return whole_cpus(take_integer(quota), take_integer(period));
}

[[nodiscard]] inline bool lists(std::string_view comma_separated, std::string_view wanted) {
  while (!comma_separated.empty()) {
    const std::size_t comma = std::min(comma_separated.find(','), comma_separated.size());
    if (comma_separated.substr(0, comma) == wanted) return true;
    comma_separated.remove_prefix(std::min(comma + 1, comma_separated.size()));
  }
  return false;
}

/// Calls visit(directory, whether it is of version 2) for every group on the way from a process's
/// own up to the root, of version 2 and of that controller's tree of version 1.
template <class Visit>
void visit_cgroups(const std::string& root, std::string_view membership,
                   std::string_view controller, Visit visit) {
  const auto walk_up = [&visit](const std::string& mount, std::string path, bool version2) {
    for (;;) {
      while (!path.empty() && path.back() == '/')
        path.pop_back();
      visit(mount + path, version2);
      if (path.empty()) return;
      const std::size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  };
  while (!membership.empty()) {
    const std::size_t end = std::min(membership.find('\n'), membership.size());
    const std::string_view line = membership.substr(0, end);
    membership.remove_prefix(std::min(end + 1, membership.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      walk_up(root, path, true);
      walk_up(root + "/unified", path, true);  // where systemd mounts it beside version 1
    } else if (lists(controllers, controller)) {
      walk_up(root + "/" + std::string(controllers), path, false);
      if (controllers != controller) walk_up(root + "/" + std::string(controller), path, false);
    }
  }
}

}  // namespace detail

/// Whole CPUs that the control groups of a process allow: the smallest quota on the way from its
/// group up to the root, rounded down, which may give 0; nothing if none sets one.
///
///   root        where the groups are mounted; /sys/fs/cgroup, or a saved tree in a test
///   membership  the text of /proc/self/cgroup: "0::/a/b" (version 2), "4:cpu,cpuacct:/a/b" (1)
///
/// Directories that do not exist are passed over: in a container the membership often names a path
/// of the host, and its own group is then the root of what is mounted.
[[nodiscard]] inline std::optional<int> cgroup_cpus(const std::string& root,
                                                    std::string_view membership) {
  std::optional<int> smallest;
  detail::visit_cgroups(root, membership, "cpu",
                        [&smallest](const std::string& directory, bool version2) {
                          const auto limit = detail::cgroup_limit(directory, version2);
                          if (limit) smallest = std::min(*limit, smallest.value_or(*limit));
                        });
  return smallest;
}

/// CPUs in the calling thread's affinity mask; 1 if the system does not say.
[[nodiscard]] inline int affinity_cpus() {
  for (std::size_t words = 16; words <= (std::size_t{1} << 14); words *= 2) {
    std::vector<cpu_set_t> mask(words / 16);  // 1024 CPUs each; the kernel wants a mask as its own
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) {
      return std::max(1, CPU_COUNT_S(bytes, mask.data()));
    }
  }
  return 1;
}

/// Threads that can run at a time, and what limits them.
struct AvailableThreads {
  int threads = 1;
  int affinity = 1;          ///< CPUs of the affinity mask
  std::optional<int> quota;  ///< whole CPUs of the control groups, if they set a limit
};

/// The smaller of the two, but at least 1.
[[nodiscard]] inline AvailableThreads available_threads(int affinity, std::optional<int> quota) {
  const int threads = quota ? std::min(affinity, *quota) : affinity;
  return {std::max(1, threads), affinity, quota};
}

/// Asks the system, on the calling thread. Reads some small files: about 0.1 ms.
[[nodiscard]] inline AvailableThreads find_available_threads() {
  const auto membership = detail::read_small_file("/proc/self/cgroup");
  return available_threads(affinity_cpus(),
                           membership ? cgroup_cpus("/sys/fs/cgroup", *membership) : std::nullopt);
}
[[nodiscard]] inline int available_threads() { return find_available_threads().threads; }

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
