// SPDX-License-Identifier: MIT
// The exact held-out loss of a language model: every token once, summed loss over summed tokens.
// Not for: means of batch means, or losses that are not over tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/data/crops.hpp>
#include <halfstep/kernels/cross_entropy.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/step_info.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// The processes that share an evaluation. Each computes every n-th batch, and all have the result.
/// One that has none left computes the last one once more, for nothing: so that all of them run the
/// model as often, and weights can be gathered for it.
struct EvaluateShare {
  int rank = 0, ranks = 1;
  /// Makes of each number the sum of those that the processes have; called once, by all.
  /// Unless one of them is stopped. Wanted where there are several.
  std::function<void(std::span<double>)> sum{};
};

struct EvaluateOptions {
  int length = 0;  ///< tokens of a window; 0: the model's context
  int stride = 0;  ///< tokens from the start of one window to that of the next; 0: length
  int rows = 8;    ///< windows at a time; memory and speed depend on it, the result does not
  std::function<bool()> should_stop{};  ///< asked before each batch; true: Stopped is thrown
  EvaluateShare share{};                ///< which batches are this process's
};

namespace detail {

/// Adds a window's losses, in order, under the house's floating-point environment.
template <class A>
[[nodiscard]] double sum_losses(const core::Compute& compute, std::span<const A> losses) {
  double sum = 0.0;
  compute.parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (const A loss : losses)
      sum += static_cast<double>(loss);
  });
  return sum;
}

/// Of a ratio of sums over windows: sqrt(sum (nats_i - mean count_i)^2 n / (n - 1)) / count.
[[nodiscard]] inline double standard_error(const Evaluation& total, std::span<const double> nats,
                                           std::span<const data::Window> windows) {
  if (windows.size() < 2) return 0.0;
  const double mean = total.nats_per_token();
  double squares = 0.0;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const double off = core::fma(-mean, static_cast<double>(windows[i].fresh().size()), nats[i]);
    squares = core::fma(off, off, squares);
  }
  const auto n = static_cast<double>(windows.size());
  return std::sqrt(core::rounded(squares * n) / (n - 1.0)) / static_cast<double>(total.count);
}

struct EvaluationBatch {
  std::size_t first, rows;  ///< windows
};
/// Batches of up to `rows` windows of one length.
[[nodiscard]] inline std::vector<EvaluationBatch> batches_of(std::span<const data::Window> windows,
                                                             std::size_t rows) {
  std::vector<EvaluationBatch> batches;
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const bool joins = w > 0 && batches.back().rows < rows &&
                       windows[w].inputs.size() == windows[w - 1].inputs.size();
    if (joins) {
      ++batches.back().rows;
    } else {
      batches.push_back({w, 1});
    }
  }
  return batches;
}

template <class Model>
[[nodiscard]] int length_of(const Model& model, int wanted, const char* function) {
  if (wanted > 0) return wanted;
  if constexpr (requires { model.context(); }) {
    if (wanted == 0) return model.context();
  }
  core::fail<OptionError>(
      function, ": length is ", wanted,
      ". Give the length of a row: the model has no context() to take it from.");
}

}  // namespace detail

/// The loss of `model` on windows of `tokens`, the last one shorter: what windows_of cuts. Each
/// window is seen from its own first token on, so a longer context is a lower loss, and so is a
/// stride below the length: all but the first window's targets then have more than length - stride
/// tokens before them, at length / stride times the cost.
///
///   model   model(tape, inputs) gives logits [rows, length, vocabulary]; tape.micro().rows is rows
///   tape    begun here, recording nothing: no dropout, no gradients
///
/// The sum is over tokens in their order and in double, whatever `rows` is and whoever shares it.
/// @throws DataError for fewer than two tokens or one that the model does not know; Stopped if
/// options.should_stop says so.
template <class Model>
[[nodiscard]] Evaluation evaluate_tokens(const Model& model, Tape& tape,
                                         std::span<const std::int32_t> tokens,
                                         const EvaluateOptions& options = {}) {
  const int length = detail::length_of(model, options.length, "evaluate");
  if (options.rows < 1) {
    core::fail<OptionError>("evaluate: rows is ", options.rows, "; wanted at least 1");
  }
  const EvaluateShare& share = options.share;
  if (share.rank < 0 || share.rank >= share.ranks || (share.ranks > 1 && !share.sum)) {
    core::fail<OptionError>(
        "evaluate: rank ", share.rank, " of ", share.ranks, share.sum ? "" : " without a sum",
        "; wanted a rank below their number, and a sum where there are several.");
  }
  const std::vector<data::Window> windows = data::windows_of(tokens, length, options.stride);
  if (windows.empty()) {
    core::fail<DataError>("evaluate: ", tokens.size(),
                          " tokens; at least 2 are needed, one to see ",
                          "and one to predict. Use a longer text or a larger held-out fraction.");
  }
  const auto batches = detail::batches_of(windows, static_cast<std::size_t>(options.rows));
  const auto ranks = static_cast<std::size_t>(share.ranks);
  // Of the windows, zero for those of others; then the tokens that were right.
  std::vector<double> sums(windows.size() + 1);
  std::vector<std::int32_t> inputs, targets;
  for (std::size_t first = 0; first < batches.size(); first += ranks) {
    if (options.should_stop && options.should_stop()) {
      core::fail<Stopped>("evaluate: stopped before window ", batches[first].first, " of ",
                          windows.size());
    }
    const std::size_t mine = first + static_cast<std::size_t>(share.rank);
    const auto [w, rows] = batches[std::min(mine, batches.size() - 1)];
    const std::size_t size = windows[w].inputs.size();
    inputs.clear();
    targets.clear();
    for (const data::Window& window : std::span(windows).subspan(w, rows)) {
      inputs.insert(inputs.end(), window.inputs.begin(), window.inputs.end());
      targets.insert(targets.end(), window.seen, kernels::CrossEntropyOptions{}.ignore);
      targets.insert(targets.end(), window.fresh().begin(), window.fresh().end());
    }
    tape.begin(MicroBatch{.rows = static_cast<int>(rows)}, Record::nothing);
    const auto logits = model(tape, inputs);
    if (mine >= batches.size()) continue;
    const auto values = logits.value();
    using A = std::remove_const_t<typename decltype(values)::element_type>;
    std::vector<A> losses(targets.size()), lse(targets.size());
    const core::Compute compute = tape.runtime().compute();
    const auto found = kernels::cross_entropy<A>(compute, values, targets, losses, lse);
    sums.back() += static_cast<double>(found.correct);
    for (std::size_t row = 0; row < rows; ++row) {
      sums[w + row] =
          detail::sum_losses<A>(compute, std::span<const A>(losses).subspan(row * size, size));
    }
  }
  if (ranks > 1) share.sum(sums);
  Evaluation result;
  result.correct = static_cast<std::int64_t>(sums.back());
  sums.pop_back();
  tape.runtime().compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (std::size_t w = 0; w < windows.size(); ++w) {
      result.nats += sums[w];
      result.count += std::ssize(windows[w].fresh());
    }
    result.standard_error = detail::standard_error(result, sums, windows);
  });
  return result;
}

/// The held-out part of a data::Text, with the bytes that its targets stand for, or of
/// data::Shards, whose bytes nobody knows.
template <class Model, class Data>
[[nodiscard]] Evaluation evaluate(const Model& model, Tape& tape, const Data& data,
                                  const EvaluateOptions& options = {}) {
  const std::span<const std::int32_t> tokens = data.held_out();
  Evaluation result = evaluate_tokens(model, tape, tokens, options);
  if constexpr (requires { data.tokenizer(); }) {
    result.bytes = data.tokenizer().count_bytes(tokens.subspan(1));
  }
  return result;
}

/// As above, on a tape of its own.
template <class Model, class T, class Data>
[[nodiscard]] Evaluation evaluate(const Model& model, Parameters<T>& parameters, const Data& data,
                                  const EvaluateOptions& options = {}) {
  Tape tape(parameters.runtime());
  return evaluate(model, tape, data, options);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
