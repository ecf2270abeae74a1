// SPDX-License-Identifier: MIT
// The cheapest schedule of a chain of unequal steps under a budget in bytes, for every budget at
// once: dynamic programming over sizes that count transient memory and gradients, nothing rounded.
// Not for measuring a model (plan_recompute.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <halfstep/autograd/schedule.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::autograd {

/// What step i of a chain takes, in bytes above what was live before it, its input not counted.
struct ChainStep {
  double cost = 0.0;          ///< of one forward, in FLOPs or any unit
  double tail = 0.0;          ///< of that, what a second run leaves out if it ends with this step
  std::int64_t output = 0;    ///< its output
  std::int64_t gradient = 0;  ///< the gradient of its output
  std::int64_t tape = 0;      ///< what a forward leaves that records, the output included
  std::int64_t forward = 0;   ///< the peak of such a forward
  std::int64_t advance = 0;   ///< the peak of a forward that keeps the output alone
  std::int64_t backward = 0;  ///< the peak from tape and output's gradient to the input's gradient
  std::int64_t again = 0;  ///< the peak of both, where a second run ends with this step; output's
                           ///< gradient included
};

/// A chain and what lies around it. `held` are bytes that appear in the backward of the last step
/// and stay to the end of the sweep (the unfinished gradients of shared parameters); the last
/// step's `backward` has them already.
struct Chain {
  std::vector<ChainStep> steps;
  std::int64_t held = 0;
};

/// The least bytes above x_0 at which a chain's forward and backward cost `cost` forward.
struct ChainPoint {
  std::int64_t bytes = 0;
  double cost = 0.0;
  int split = 0;  ///< where the first segment ends; 0: the first step is taped
};

/// The plans of one chain. With C(s, t, m) for the steps s to t - 1 in m bytes, x_s and what is
/// outside not counted, room for the gradient g_t of x_t counted, and |x| for bytes of x:
///
///   tape     cost_s + C(s + 1, t, m - tape_s)
///            if m >= backward_s and m >= forward_s + |g_t|
///   segment  sum of cost_s .. cost_(k-1) + C(k, t, m - |x_k|) + C(s, k, m)
///            if m >= |g_t| + |x_j| + advance_j for every j in [s, k)
///
/// and the least of them over k; cost_s - tail_s and again_s for the tape that a segment ends with.
/// In the forward pass itself there is no g_t yet, and `held` bytes less for what is swept after
/// the last step. The optimum among persistent schedules (see Schedule); predicted peaks are exact.
///
/// The whole function of m is kept, as the points at which it falls; so a budget is never rounded
/// and more bytes never cost more. Cost: O(steps^3) sums of such functions, which have a few
/// hundred points for equal steps and thousands for 48 of random sizes. Measured: 4 ms for 24 equal
/// steps, 1.5 s for 96, 1.6 s for 48 of random sizes.
class ChainPlans {
 public:
  /// @throws OptionError for an empty chain.
  explicit ChainPlans(Chain chain)
      : chain_(std::move(chain)), n_(static_cast<int>(chain_.steps.size())) {
    if (n_ < 1) core::fail<OptionError>("ChainPlans: the chain has no steps");
    inner_.resize(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_ + 1));
    outer_.resize(static_cast<std::size_t>(n_));
    for (int length = 1; length < n_; ++length) {
      for (int s = 0; s + length < n_; ++s)
        inner(s, s + length) = solve(s, s + length);
    }
    for (int s = n_; s-- > 0;)
      outer_[static_cast<std::size_t>(s)] = solve(s, n_);
  }

  /// Bytes rise and costs fall: every budget between two points gives the first of them.
  [[nodiscard]] std::span<const ChainPoint> frontier() const { return outer_.front(); }
  /// The least budget for which there is a schedule.
  [[nodiscard]] std::int64_t smallest() const { return frontier().front().bytes; }
  /// The cheapest plan within `bytes`. @throws OptionError, naming the smallest budget, if none
  /// fits.
  [[nodiscard]] const ChainPoint& best(std::int64_t bytes) const {
    const ChainPoint* const point = find(outer_.front(), bytes);
    if (point == nullptr) {
      core::fail<OptionError>("ChainPlans: no schedule of ", n_, " steps fits into ", bytes,
                              " bytes; the smallest budget is ", smallest());
    }
    return *point;
  }
  /// Its schedule. @throws as best.
  [[nodiscard]] Schedule schedule(std::int64_t bytes) const {
    Schedule out{n_, {}};
    append(out.parts, 0, n_, best(bytes).bytes);
    return out;
  }

 private:
  using Function = std::vector<ChainPoint>;  // bytes rise, costs fall

  [[nodiscard]] Function& inner(int s, int t) {
    return inner_[static_cast<std::size_t>(s) * static_cast<std::size_t>(n_ + 1) +
                  static_cast<std::size_t>(t)];
  }
  // Of the forward pass where t is the end of the chain, of a segment elsewhere.
  [[nodiscard]] const Function& function(int s, int t) const {
    return t == n_ ? outer_[static_cast<std::size_t>(s)]
                   : inner_[static_cast<std::size_t>(s) * static_cast<std::size_t>(n_ + 1) +
                            static_cast<std::size_t>(t)];
  }
  [[nodiscard]] const ChainStep& step(int s) const {
    return chain_.steps[static_cast<std::size_t>(s)];
  }
  // What else is live while the steps of a segment up to t run: the gradient of x_t.
  [[nodiscard]] std::int64_t beside(int t) const { return t == n_ ? 0 : step(t - 1).gradient; }
  // What is live, besides, once the sweep has come back to the steps before t.
  [[nodiscard]] std::int64_t held_below(int t) const { return t == n_ ? chain_.held : 0; }

  [[nodiscard]] static const ChainPoint* find(const Function& function, std::int64_t bytes) {
    const auto after =
        std::upper_bound(function.begin(), function.end(), bytes,
                         [](std::int64_t m, const ChainPoint& p) { return m < p.bytes; });
    return after == function.begin() ? nullptr : &*std::prev(after);
  }

  [[nodiscard]] Function solve(int s, int t) const {
    Function all;
    const ChainStep& first = step(s);
    if (s + 1 == t) {
      all.push_back(t == n_ ? ChainPoint{std::max(first.forward, first.backward), first.cost, 0}
                            : ChainPoint{first.again, first.cost - first.tail, 0});
    } else {
      const std::int64_t tape_needs =
          std::max(first.forward + beside(t), first.backward + held_below(t));
      for (const ChainPoint& rest : function(s + 1, t)) {
        all.push_back({std::max(tape_needs, rest.bytes + first.tape), first.cost + rest.cost, 0});
      }
    }
    double cost = 0.0;
    std::int64_t needs = 0;
    for (int k = s + 1; k < t; ++k) {
      const std::int64_t from = k == s + 1 ? 0 : step(k - 2).output;
      needs = std::max(needs, beside(t) + from + step(k - 1).advance);
      cost += step(k - 1).cost;
      append_sums(all, function(k, t), step(k - 1).output, function(s, k), held_below(t), needs,
                  cost, k);
    }
    return lower_envelope(std::move(all));
  }

  // The points of cost + a(m - a_shift) + b(m - b_shift) for m >= needs.
  static void append_sums(Function& out, const Function& a, std::int64_t a_shift, const Function& b,
                          std::int64_t b_shift, std::int64_t needs, double cost, int split) {
    std::size_t i = 0, j = 0;  // points of a and b that are reached
    while (i < a.size() || j < b.size()) {
      const bool take_a =
          j == b.size() || (i < a.size() && a[i].bytes + a_shift <= b[j].bytes + b_shift);
      const std::int64_t bytes = take_a ? a[i].bytes + a_shift : b[j].bytes + b_shift;
      ++(take_a ? i : j);
      if (i > 0 && j > 0)
        out.push_back({std::max(bytes, needs), cost + a[i - 1].cost + b[j - 1].cost, split});
    }
  }

  [[nodiscard]] static Function lower_envelope(Function all) {
    std::stable_sort(all.begin(), all.end(), [](const ChainPoint& a, const ChainPoint& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.cost < b.cost;
    });
    Function out;
    for (const ChainPoint& point : all) {
      if (out.empty() || point.cost < out.back().cost) out.push_back(point);
    }
    return out;
  }

  void append(std::vector<Part>& parts, int s, int t, std::int64_t bytes) const {
    while (s < t) {
      const int k = find(function(s, t), bytes)->split;
      if (k == 0) {
        parts.push_back({s, s + 1, 0});
        bytes -= step(s).tape;
        ++s;
      } else {
        const int first = s;
        detail::append_segment(parts, first, k,
                               [&] { append(parts, first, k, bytes - held_below(t)); });
        bytes -= step(k - 1).output;
        s = k;
      }
    }
  }

  Chain chain_;
  int n_;
  std::vector<Function> inner_;  // [s][t], t < n
  std::vector<Function> outer_;  // [s], to the end
};

/// The highest that live bytes above x_0 rise while `schedule` runs on `chain`, and the forward
/// cost, by walking through its actions: what ChainPlans promises, for any schedule.
/// @throws OptionError if the two do not fit.
[[nodiscard]] inline ChainPoint measure(const Schedule& schedule, const Chain& chain) {
  const std::size_t n = chain.steps.size();
  if (schedule.steps != static_cast<int>(n)) {
    core::fail<OptionError>("measure: the schedule is for ", schedule.steps,
                            " steps, the chain has ", n);
  }
  require_valid(schedule);
  // Who holds x_i: the tape of the step that made it, a store or the tape that reads it, nobody but
  // the forward pass in progress. x_0 is held by others.
  enum class Held : std::uint8_t { no, by_maker, kept, loose };
  std::vector<Held> held(n + 1, Held::no);
  const auto bytes = [&](std::size_t i) { return i == 0 ? 0 : chain.steps[i - 1].output; };
  std::int64_t live = 0, gradient = 0, peak = 0;
  double cost = 0.0;
  bool swept = false, ends_segment = false;
  const std::vector<Action> all = actions(schedule);
  for (std::size_t a = 0; a < all.size(); ++a) {
    const Action& action = all[a];
    const auto i = static_cast<std::size_t>(action.step);
    const ChainStep& step = chain.steps[i];
    switch (action.kind) {
      case Action::Kind::store:
        if (held[i] == Held::loose) held[i] = Held::kept;
        break;
      case Action::Kind::load:
        if (held[i] == Held::kept) held[i] = Held::loose;
        break;
      case Action::Kind::advance:
        peak = std::max(peak, live + step.advance);
        cost += step.cost;
        live += step.output;
        if (held[i] == Held::loose) {
          live -= bytes(i);
          held[i] = Held::no;
        }
        held[i + 1] = Held::loose;
        break;
      case Action::Kind::tape: {
        const bool last_of_segment = swept && all[a + 1].kind == Action::Kind::reverse;
        if (last_of_segment) {
          peak = std::max(peak, live - gradient + step.again);
        } else {
          peak = std::max(peak, live + step.forward);
        }
        cost += step.cost - (last_of_segment ? step.tail : 0.0);
        live += step.tape;
        ends_segment = last_of_segment;
        if (held[i] == Held::loose) held[i] = Held::kept;
        held[i + 1] = Held::by_maker;
        break;
      }
      case Action::Kind::reverse:
        live -= step.tape + gradient;
        if (!std::exchange(ends_segment, false)) peak = std::max(peak, live + step.backward);
        gradient = i == 0 ? 0 : chain.steps[i - 1].gradient;
        live += gradient + (swept ? 0 : chain.held);
        swept = true;
        if (held[i] == Held::kept) {
          live -= bytes(i);
          held[i] = Held::no;
        }
        break;
    }
  }
  return {peak, cost, 0};
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::autograd
