// SPDX-License-Identifier: MIT
// The cheapest way to reverse a chain, by search over everything that can be in memory. Knows the
// sizes of the steps and nothing of schedules.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

/// Step i costs `cost`, its input takes `input` to store, its tape takes `tape` and holds the
/// input.
struct SearchStep {
  std::int64_t cost, input, tape;
};

/// Forward cost of the best schedule of any kind within `memory`, or -1. The input in work is free,
/// as in the published recurrences.
inline std::int64_t cheapest_of_all(const std::vector<SearchStep>& steps, std::int64_t memory) {
  struct State {
    unsigned stored = 0, taped = 0;
    int live = 0, left = 0;  // the step whose input is live, or -1; adjoints still to come
    auto operator<=>(const State&) const = default;
  };
  const int n = static_cast<int>(steps.size());
  std::map<State, std::int64_t> best;
  std::multimap<std::int64_t, State> queue;
  const auto push = [&](const State& state, std::int64_t cost) {
    std::int64_t held = 0;
    for (int i = 0; i < n; ++i) {
      const auto& step = steps[static_cast<std::size_t>(i)];
      held += (state.stored >> i & 1U) != 0 ? step.input : 0;
      held += (state.taped >> i & 1U) != 0 ? step.tape : 0;
    }
    if (held > memory) return;
    const auto found = best.find(state);
    if (found != best.end() && found->second <= cost) return;
    best[state] = cost;
    queue.emplace(cost, state);
  };
  push({0, 0, 0, n}, 0);
  while (!queue.empty()) {
    const auto [cost, at] = *queue.begin();
    queue.erase(queue.begin());
    if (best[at] < cost) continue;
    if (at.left == 0) return cost;
    if (at.live >= 0 && at.live < at.left) {
      const unsigned bit = 1U << at.live;
      const std::int64_t after = cost + steps[static_cast<std::size_t>(at.live)].cost;
      push({at.stored, at.taped, at.live + 1, at.left}, after);
      push({at.stored, at.taped | bit, at.live + 1, at.left}, after);
      push({at.stored | bit, at.taped, at.live, at.left}, cost);
    }
    for (int i = 0; i < n; ++i) {
      const unsigned bit = 1U << i;
      if ((at.stored & bit) != 0) {
        push({at.stored & ~bit, at.taped, at.live, at.left}, cost);
        push({at.stored, at.taped, i, at.left}, cost);
      }
      if ((at.taped & bit) != 0) {
        push({at.stored, at.taped & ~bit, at.live, at.left}, cost);
        push({at.stored, at.taped, i, at.left}, cost);
      }
    }
    const unsigned next = 1U << (at.left - 1);
    if ((at.taped & next) != 0) push({at.stored, at.taped & ~next, -1, at.left - 1}, cost);
  }
  return -1;
}
