// SPDX-License-Identifier: MIT
// When the steps of a chain run again in a backward pass: schedules as data, and the known ones for
// chains of equal steps. Pure functions; not for running one (run_chain.hpp) or for steps of
// different sizes (chain_plans.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

/// One thing that happens to step i of a chain, whose input is x_i and whose output is x_(i+1).
struct Action {
  enum class Kind : std::uint8_t {
    advance,  ///< run step i on the live x_i, keeping nothing: x_(i+1) is live instead
    tape,     ///< run step i on the live x_i and keep what its backward reads, x_i included
    store,    ///< keep the live x_i beside
    load,     ///< the stored x_i is live, and stored no more
    reverse   ///< the backward of step i, whose tape is there and is dropped
  };
  Kind kind;
  int step;
  friend bool operator==(const Action&, const Action&) = default;
};

/// A part of a schedule. With inside == 0 it is one step, taped: last is first + 1. Otherwise it is
/// a segment: steps first to last - 1 run and are forgotten but for the input of the first, and
/// when the backward pass comes to them they run again, by the `inside` parts that follow this one.
struct Part {
  int first = 0, last = 0;
  int inside = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

/// A persistent schedule for a chain of `steps` steps: what is stored stays until its backward.
/// Every sequence of parts covers its steps in order; all of `parts` is the sequence of the forward
/// pass.
///
/// Dropping a stored value before its backward and making it again is not expressible. On a chain
/// of equal steps nothing is lost (exhaustive search up to six steps, any sizes); on unequal ones a
/// few in a thousand have a cheaper schedule of that kind, for instance 24 forward costs where the
/// best persistent one takes 26 (tests/autograd/chain_plans_test.cpp has that chain).
struct Schedule {
  int steps = 0;
  std::vector<Part> parts;

  /// How often a step runs forward, all in all: once for each that is taped or advanced. `steps` of
  /// them are a plain forward pass; the rest is what recompute costs.
  [[nodiscard]] std::int64_t forwards() const {
    std::int64_t count = 0;
    for (const Part& part : parts)
      count += part.last - part.first;
    return count;
  }
  /// How often each step runs forward.
  [[nodiscard]] std::vector<std::int64_t> forwards_by_step() const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(steps));
    for (const Part& part : parts) {
      for (int i = part.first; i < part.last; ++i)
        ++counts[static_cast<std::size_t>(i)];
    }
    return counts;
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Calls visit(index, part) for the parts of one sequence, not for those inside of its segments.
template <class Visit>
void for_each_part(std::span<const Part> sequence, const Visit& visit) {
  for (std::size_t i = 0; i < sequence.size();
       i += 1 + static_cast<std::size_t>(sequence[i].inside)) {
    visit(i, sequence[i]);
  }
}

namespace detail {

inline void append_actions(std::span<const Part> sequence, std::vector<Action>& out) {
  std::vector<std::size_t> starts;
  for_each_part(sequence, [&](std::size_t i, const Part& part) {
    starts.push_back(i);
    if (part.inside == 0) {
      out.push_back({Action::Kind::tape, part.first});
      return;
    }
    out.push_back({Action::Kind::store, part.first});
    for (int step = part.first; step < part.last; ++step)
      out.push_back({Action::Kind::advance, step});
  });
  while (!starts.empty()) {
    const Part& part = sequence[starts.back()];
    if (part.inside == 0) {
      out.push_back({Action::Kind::reverse, part.first});
    } else {
      out.push_back({Action::Kind::load, part.first});
      append_actions(sequence.subspan(starts.back() + 1, static_cast<std::size_t>(part.inside)),
                     out);
    }
    starts.pop_back();
  }
}

/// Where a sequence stops covering steps first to last - 1 in order, or -1 if it does.
inline int first_gap(std::span<const Part> sequence, int first, int last) {
  int at = first;
  int gap = -1;
  std::size_t used = 0;
  for_each_part(sequence, [&](std::size_t i, const Part& part) {
    if (gap >= 0) return;
    const auto inside = static_cast<std::size_t>(std::max(part.inside, 0));
    used = i + 1 + inside;
    if (part.inside < 0 || part.first != at || part.last <= at || part.last > last ||
        used > sequence.size() || (part.inside == 0 && part.last != at + 1)) {
      gap = at;
      return;
    }
    if (part.inside > 0) gap = first_gap(sequence.subspan(i + 1, inside), part.first, part.last);
    at = part.last;
  });
  return gap < 0 && at != last ? at : gap;
}

/// Appends sequence(first, last) as a segment.
template <class Sequence>
void append_segment(std::vector<Part>& parts, int first, int last, const Sequence& sequence) {
  const std::size_t at = parts.size();
  parts.push_back({first, last, 0});
  sequence();
  parts[at].inside = static_cast<int>(parts.size() - at - 1);
}

}  // namespace detail

/// The schedule as a list of actions, from x_0 live to the backward of step 0: what an interpreter
/// runs, and what a schedule can be checked by.
[[nodiscard]] inline std::vector<Action> actions(const Schedule& schedule) {
  std::vector<Action> out;
  detail::append_actions(schedule.parts, out);
  return out;
}

/// @throws OptionError naming the first step at which a sequence has a gap, an overlap or an end.
inline void require_valid(const Schedule& schedule) {
  const int gap = detail::first_gap(schedule.parts, 0, schedule.steps);
  if (gap < 0) return;
  core::fail<OptionError>("Schedule: its parts do not cover ", schedule.steps,
                          " steps in order: there is no way on from step ", gap,
                          ". Was it made for another chain?");
}

/// Nothing runs again. @throws OptionError for less than one step, as all below.
[[nodiscard]] inline Schedule keep_all(int steps) {
  if (steps < 1) core::fail<OptionError>("Schedule: ", steps, " steps; wanted at least 1");
  Schedule out{steps, {}};
  for (int i = 0; i < steps; ++i)
    out.parts.push_back({i, i + 1, 0});
  return out;
}

/// `segments` runs of as equal a length as can be, the shorter ones first; all but the last are
/// forgotten, the last is kept, since the backward pass needs it at once. More segments than steps
/// are as many as steps. Forwards: 2 steps - (length of the last).
/// Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
[[nodiscard]] inline Schedule uniform(int steps, int segments) {
  Schedule out = keep_all(steps);
  if (segments < 1) core::fail<OptionError>("Schedule: ", segments, " segments; wanted at least 1");
  const std::int64_t k = std::min(segments, steps);
  out.parts.clear();
  for (std::int64_t s = 0; s < k; ++s) {
    const int first = static_cast<int>(steps * s / k), last = static_cast<int>(steps * (s + 1) / k);
    const auto taped = [&] {
      for (int i = first; i < last; ++i)
        out.parts.push_back({i, i + 1, 0});
    };
    if (s + 1 < k) detail::append_segment(out.parts, first, last, taped);
    if (s + 1 == k) taped();
  }
  return out;
}

/// uniform with ceil(sqrt(steps)) segments: about 2 sqrt(steps) values and tapes at a time.
[[nodiscard]] inline Schedule square_root(int steps) {
  int segments = 1;
  while (std::int64_t{segments} * segments < steps)
    ++segments;
  return uniform(steps, segments);
}

/// C(s + r, s), the longest chain that s snapshots reverse when no step is advanced more than r
/// times; the largest 64-bit number where it does not fit.
[[nodiscard]] constexpr std::int64_t longest_chain(int s, int r) {
  if (s < 0 || r < 0) return 0;
  std::int64_t value = 1;
  for (int i = 1; i <= std::min(s, r); ++i) {
    // value (n - m + i) / i is an integer at every i: the product alone can overflow.
    std::int64_t product = 0;
    if (__builtin_mul_overflow(value, std::int64_t{std::max(s, r)} + i, &product)) {
      return std::numeric_limits<std::int64_t>::max();
    }
    value = product / i;
  }
  return value;
}

/// The least advances that reverse a chain of `steps` with `snapshots` stored inputs, that of step
/// 0 among them, and one tape: r steps - C(snapshots + r, snapshots + 1) where r is the least
/// number with C(snapshots + r, snapshots) >= steps. Forwards: steps more. Source: Griewank &
/// Walther, "Algorithm 799: revolve", 2000.
[[nodiscard]] constexpr std::int64_t revolve_advances(int steps, int snapshots) {
  if (steps <= 1) return 0;
  int r = 1;
  while (longest_chain(snapshots, r) < steps)
    ++r;
  return std::int64_t{r} * steps - longest_chain(snapshots + 1, r - 1);
}

namespace detail {

/// Where the next snapshot goes: the second input that is stored. Source: Griewank & Walther 2000.
[[nodiscard]] constexpr int revolve_split(int n, int s) {
  s = std::min(s, n - 1);
  if (s <= 1) return n - 1;
  if (s == n - 1) return 1;
  int r = 1;
  while (longest_chain(s, r) < n)
    ++r;
  const auto least = longest_chain(s, r - 1) + longest_chain(s - 2, r - 1);
  const auto most =
      longest_chain(s, r - 1) + longest_chain(s - 1, r - 1) + longest_chain(s - 2, r - 1);
  if (n <= least) return static_cast<int>(longest_chain(s, r - 2));
  if (n < most)
    return static_cast<int>(n - longest_chain(s - 1, r - 1) - longest_chain(s - 2, r - 1));
  return static_cast<int>(longest_chain(s, r - 1));
}

inline void append_revolve(std::vector<Part>& parts, int first, int last, int snapshots) {
  for (; last - first > 1; --snapshots) {
    const int next = first + revolve_split(last - first, snapshots);
    append_segment(parts, first, next, [&] { append_revolve(parts, first, next, snapshots); });
    first = next;
  }
  parts.push_back({first, last, 0});
}

}  // namespace detail

/// The schedule of revolve_advances: the optimum where one tape is held at a time and memory goes
/// to inputs alone. Nets can hold several tapes, and `mixed` then needs fewer forwards.
/// @throws OptionError for less than one snapshot.
[[nodiscard]] inline Schedule revolve(int steps, int snapshots) {
  Schedule out = keep_all(steps);
  if (snapshots < 1)
    core::fail<OptionError>("Schedule: ", snapshots,
                            " snapshots; wanted at least 1, the input itself");
  out.parts.clear();
  detail::append_revolve(out.parts, 0, steps, snapshots);
  return out;
}

/// The optimum for equal steps where a unit of memory holds a stored input or a tape, `units` of
/// them besides the one in work. Forwards M(n, s): n if n <= s + 1, else the least of 1 + M(n-1,
/// s-1) (keep the tape of the first step) and i + M(i, s) + M(n-i, s-1) over i (keep its input,
/// advance i). Cost: O(steps^2 units) operations and O(steps units) memory, to plan. Source: the
/// recurrence of Maddison, "Step-based checkpointing with high-level algorithmic differentiation",
/// 2024, and of Beaumont et al., RR-9302, for equal sizes.
/// @throws OptionError for less than one unit.
[[nodiscard]] inline Schedule mixed(int steps, int units) {
  Schedule out = keep_all(steps);
  if (units < 1)
    core::fail<OptionError>("Schedule: ", units, " units of memory; wanted at least 1");
  units = std::min(units, steps);
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 4;
  const auto columns = static_cast<std::size_t>(units) + 1;
  // [n][s]: forwards, and how many steps to advance first; 0: tape the first.
  std::vector<std::pair<std::int64_t, int>> best((static_cast<std::size_t>(steps) + 1) * columns,
                                                 {never, 0});
  const auto at = [&](int n, int s) -> auto& {
    return best[static_cast<std::size_t>(n) * columns + static_cast<std::size_t>(s)];
  };
  for (int s = 0; s <= units; ++s)
    at(1, s) = {1, 0};
  for (int n = 2; n <= steps; ++n) {
    for (int s = 1; s <= units; ++s) {
      at(n, s) = {1 + at(n - 1, s - 1).first, 0};
      for (int i = 2; i < n && n > s + 1; ++i) {
        const std::int64_t cost = i + at(i, s).first + at(n - i, s - 1).first;
        if (cost < at(n, s).first) at(n, s) = {cost, i};
      }
    }
  }
  out.parts.clear();
  const auto append = [&](const auto& self, int first, int last, int s) -> void {
    for (; first < last; --s) {
      const int advance = at(last - first, s).second;
      if (advance == 0) {
        out.parts.push_back({first, first + 1, 0});
        ++first;
      } else {
        const int next = first + advance;
        detail::append_segment(out.parts, first, next, [&] { self(self, first, next, s); });
        first = next;
      }
    }
  };
  append(append, 0, steps, units);
  return out;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
