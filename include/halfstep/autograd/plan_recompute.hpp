// SPDX-License-Identifier: MIT
// The cheapest recompute of a model that fits into a budget of bytes: measures each layer by a dry
// run, plans, and predicts the peak of what it has planned to the byte. Takes no memory. Not for
// running the plan (run_chain.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halfstep/autograd/chain_plans.hpp>
#include <halfstep/autograd/run_chain.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/placement.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// What fits into how much.
struct RecomputeAlternative {
  std::int64_t bytes = 0;         ///< the least budget that it fits into
  double recomputed_flops = 0.0;  ///< a pass
};

/// What plan_recompute returns. All bytes are of the whole account: what is long-lived is in them.
struct RecomputePlan {
  bool fits = false;  ///< into the budget; if not, the rest is of the smallest that there is
  std::int64_t budget = 0;
  std::int64_t smallest = 0;    ///< the smallest budget that something fits into
  autograd::Schedule schedule;  ///< of the layers, for run_chain
  std::int64_t peak = 0;  ///< of a pass, forward and backward: predicted, and measured exactly so
  double flops = 0.0;     ///< of a pass, as ops declare them, what is recomputed included
  double recomputed_flops = 0.0;
  std::vector<RecomputeAlternative> frontier;  ///< bytes rise, FLOPs fall
  tensor::Placement placement;                 ///< for Tape::place of the tape that runs it

  /// @throws OptionError naming the smallest budget, unless the plan fits.
  const RecomputePlan& require() const {
    if (!fits) {
      core::fail<OptionError>("plan_recompute: nothing fits into ", budget,
                              " bytes; the smallest budget is ", smallest,
                              ". A smaller batch or context needs less.");
    }
    return *this;
  }
  /// One line for a log.
  [[nodiscard]] std::string describe() const {
    std::int64_t segments = 0;
    for (const auto& part : schedule.parts)
      segments += part.inside > 0 ? 1 : 0;
    return core::text("recompute: peak ", peak, " bytes of a budget of ", budget, ", ", segments,
                      " segments over ", schedule.steps, " layers, ", recomputed_flops / 1e9,
                      " GFLOP a pass run again (", 100.0 * recomputed_flops / flops,
                      " % of it); budgets from ", smallest, " to ", frontier.back().bytes);
  }
};

struct RecomputePlanOptions {
  std::int64_t budget = std::numeric_limits<std::int64_t>::max();  ///< bytes of the whole account
  std::int64_t long_lived =
      0;  ///< of these, what lives beside the pass: weights, sums, masters, moments
  MicroBatch micro{0, 0, 0, 1};    ///< that the pass begins with
  KeepPolicy keep = keep_default;  ///< of the tape that the plan is for
};

namespace autograd::detail {

/// One dry pass by a schedule, and what it did.
template <class Front, class Layer, class Back>
struct DryPass {
  const Front& front;
  std::span<const Layer> layers;
  const Back& back;
  Tape tape;
  std::vector<std::size_t> first_node;   // of each layer, then of what follows
  std::vector<std::int64_t> live, peak;  // before each of these; the peak of its forward
  std::vector<double> flops;             // before each of these, and at the end
  std::vector<Tape::Swept> swept;        // by node
  std::int64_t front_peak = 0;

  DryPass(Runtime& runtime, const Front& f, std::span<const Layer> l, const Back& b)
      : front(f), layers(l), back(b), tape(runtime, Tape::Mode::dry) {}

  void run(const Schedule& schedule, const RecomputePlanOptions& options) {
    tape.keep(options.keep);
    tape.begin(options.micro);
    tape.watch_sweep(&swept);
    auto& ledger = tape.ledger();
    auto x = front(tape);
    front_peak = ledger.peak();
    for_each_part(schedule.parts, [&](std::size_t i, const Part& part) {
      note(x);
      x = run_parts(layers,
                    std::span<const Part>(schedule.parts)
                        .subspan(i, 1 + static_cast<std::size_t>(part.inside)),
                    x);
      peak.push_back(ledger.peak());
    });
    note(x);
    const Loss loss = back(x);
    peak.push_back(ledger.peak());
    flops.push_back(tape.flops());
    first_node.push_back(tape.nodes());
    tape.backward(loss);
  }

 private:
  void note(const AnyVariable& x) {
    tape.settle(x);
    first_node.push_back(tape.nodes());
    live.push_back(tape.ledger().live());
    flops.push_back(tape.flops());
    tape.ledger().restart_peaks();
  }
};

/// The chain of layers and what follows them, its sizes by two dry passes: with every layer kept,
/// and with every layer a segment.
template <class Front, class Layer, class Back>
[[nodiscard]] Chain measure_chain(Runtime& runtime, const Front& front,
                                  std::span<const Layer> layers, const Back& back,
                                  const RecomputePlanOptions& options, std::int64_t& outside,
                                  std::int64_t& least) {
  const int n = static_cast<int>(layers.size());
  DryPass<Front, Layer, Back> kept(runtime, front, layers, back),
      segments(runtime, front, layers, back);
  Schedule each{n, {}};
  for (int i = 0; i < n; ++i) {
    each.parts.push_back({i, i + 1, 1});
    each.parts.push_back({i, i + 1, 0});
  }
  kept.run(keep_all(n), options);
  segments.run(each, options);

  const auto backward_peak = [](const auto& pass, std::size_t i) {
    std::int64_t peak = 0;
    for (auto node = pass.first_node[i]; node < pass.first_node[i + 1]; ++node)
      peak = std::max(peak, pass.swept[node].peak);
    return peak;
  };
  Chain chain;
  for (std::size_t i = 0; i <= layers.size(); ++i) {
    // Unfinished gradients of shared parameters, where the sweep comes to this step.
    const auto held_before = [&](const auto& pass) {
      return pass.swept[pass.first_node[i + 1] - 1].gradients_before;
    };
    ChainStep step;
    step.cost = kept.flops[i + 1] - kept.flops[i];
    step.forward = kept.peak[i] - kept.live[i];
    step.backward = backward_peak(kept, i) - kept.live[i];
    if (i < layers.size()) {
      step.tape = kept.live[i + 1] - kept.live[i];
      step.output = segments.live[i + 1] - segments.live[i];
      step.gradient = step.output;
      step.advance = segments.peak[i] - segments.live[i];
      step.backward -= held_before(kept);
      step.again = backward_peak(segments, i) - segments.live[i] - held_before(segments);
      const auto node = segments.first_node[i];
      step.tail = step.cost - segments.swept[node].replayed_flops;
      chain.held = std::max(chain.held, held_before(kept));
    }
    chain.steps.push_back(step);
  }
  outside = kept.live[0];
  least = kept.front_peak;
  for (std::size_t node = 0; node < kept.first_node[0]; ++node)
    least = std::max(least, kept.swept[node].peak);
  return chain;
}

}  // namespace autograd::detail

/// Plans the recompute of a pass back(run_chain(layers, schedule, front(tape))), backward included:
///
///   front(tape)  what comes before the layers, a Variable<T>; never recomputed
///   layers       a Layer takes and returns a Variable<T>, and may differ in size from the next
///   back(x)      what follows, up to the Loss; never recomputed
///
/// Each is called a few times with a dry tape, so it may branch on shapes and not on values. The
/// plan is the cheapest persistent one (see autograd::ChainPlans), by the FLOPs that the ops
/// declare; its peak is what a dry run of it says, and so what the ledger will say. More budget
/// never means more recomputed FLOPs. Where several layers share a parameter the plan may leave
/// bytes unused, because the unfinished gradient is taken to live through the whole sweep.
///
/// Memory: none of the tensors' own. Cost: two dry passes, the planning, one more dry pass, and
/// tensor::arrange of the chosen plan's blocks: a millisecond in all for GPT-2's 12 layers.
template <class Front, class Layer, class Back>
[[nodiscard]] RecomputePlan plan_recompute(Runtime& runtime, const RecomputePlanOptions& options,
                                           const Front& front, std::span<const Layer> layers,
                                           const Back& back) {
  std::int64_t outside = 0, least = 0;
  autograd::Chain chain =
      autograd::detail::measure_chain(runtime, front, layers, back, options, outside, least);
  double plain = 0.0;
  for (const auto& step : chain.steps)
    plain += step.cost;
  const autograd::ChainPlans plans(std::move(chain));

  RecomputePlan plan;
  plan.budget = options.budget;
  const std::int64_t base = options.long_lived + outside;
  for (const auto& point : plans.frontier()) {
    const RecomputeAlternative next{std::max(base + point.bytes, options.long_lived + least),
                                    point.cost - plain};
    if (!plan.frontier.empty() && plan.frontier.back().bytes == next.bytes)
      plan.frontier.pop_back();
    plan.frontier.push_back(next);
  }
  plan.smallest = plan.frontier.front().bytes;
  plan.fits = plan.smallest <= options.budget;
  plan.schedule = plans.schedule(std::max(options.budget, plan.smallest) - base);
  plan.schedule.parts.pop_back();  // what follows the layers
  plan.schedule.steps = static_cast<int>(layers.size());

  Tape tape(runtime, Tape::Mode::dry);
  tape.keep(options.keep);
  tape.begin(options.micro);
  tape.backward(back(run_chain(layers, plan.schedule, front(tape))));
  plan.peak = options.long_lived + tape.ledger().peak();
  plan.flops = tape.flops();
  plan.recomputed_flops = tape.replayed_flops();
  plan.placement = tape.placement();
  return plan;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
