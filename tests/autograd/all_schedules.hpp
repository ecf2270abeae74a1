// SPDX-License-Identifier: MIT
// Every persistent schedule of a few steps.
#pragma once

#include <vector>

#include <halfstep/autograd/schedule.hpp>

using Trees = std::vector<std::vector<halfstep::autograd::Part>>;

// Every persistent schedule of the steps first to last - 1.
[[nodiscard]] inline Trees all_schedules(int first, int last) {
  if (first == last) return {{}};
  Trees out;
  for (auto& rest : all_schedules(first + 1, last)) {
    rest.insert(rest.begin(), {first, first + 1, 0});
    out.push_back(rest);
  }
  for (int k = first + 1; k < last; ++k) {
    for (const auto& inside : all_schedules(first, k)) {
      for (const auto& rest : all_schedules(k, last)) {
        std::vector<halfstep::autograd::Part> parts{{first, k, static_cast<int>(inside.size())}};
        parts.insert(parts.end(), inside.begin(), inside.end());
        parts.insert(parts.end(), rest.begin(), rest.end());
        out.push_back(parts);
      }
    }
  }
  return out;
}
