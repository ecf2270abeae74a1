// SPDX-License-Identifier: MIT
// What the program does with a model, in any format: train, evaluate, sample. The bodies are in
// model_of.hpp and are compiled once for each format, in files of their own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/ledger.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/data/tokenizer.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/train/shadow.hpp>
#include <halfstep/train/step_info.hpp>
#include <halfstep/train/telemetry.hpp>

#include "dataset.hpp"
#include "options.hpp"

namespace capstone {

/// What training leaves behind, besides the weights file.
struct Trained {
  bool stopped = false;  ///< a signal ended the run; the rest is of what was done until then
  std::int64_t parameters = 0;
  std::int64_t iterations = 0, steps = 0, skipped_steps = 0, micro_batches = 0, tokens = 0;
  double train_loss = 0.0;
  halfstep::train::Evaluation evaluation;
  halfstep::train::Evaluation average_evaluation;  ///< of the averaged weights, with --ema
  std::uint64_t average_hash = 0;                  ///< of the average
  double train_seconds = 0.0, tokens_per_second = 0.0, median_step_seconds = 0.0;
  std::uint64_t weights_hash = 0;
  float loss_scale = 1.0F;
  halfstep::mixed::Underflow underflow;  ///< of the last step's gradient
  std::uint64_t train_flops = 0;
  std::int64_t replayed_ops = 0;
  std::optional<std::int64_t> predicted_peak;  ///< not where ranks keep parts of the state
  std::int64_t peak = 0;
  halfstep::core::Ledger::Bytes at_peak{};
  std::int64_t resident = 0;  ///< by how much the process's memory grew, as the system counts it
  halfstep::core::Counters counters{};
  halfstep::train::TelemetryInfo telemetry;  ///< of the last window, with --telemetry
  halfstep::train::Divergence shadow;        ///< of the step that would come next, the same
  std::vector<std::int64_t> rank_tokens;     ///< targets that each rank trained on in this call
  /// What each collective moved until the end of training, on every rank.
  std::vector<std::pair<std::string, std::vector<halfstep::dist::CollectiveTraffic>>> traffic;
  std::int64_t gathered = 0;    ///< elements of parameters that ZeRO 3 gathered for ops
  std::string ended_by_scaler;  ///< why the loss scaler ended the run; empty if it did not
  std::string sample;
};

/// Where a run begins: 0 windows done, or those before the checkpoint that it goes on from.
struct Start {
  std::string groups;  ///< which parameters decay
  std::int64_t iteration = 0;
  bool evaluated = false;  ///< the evaluation after that iteration is done as well
};

/// Who listens to a run.
struct Listeners {
  std::function<void(const Start&)> on_start;
  std::function<void(const halfstep::train::StepInfo&)> on_step;
  std::function<void(const halfstep::train::EvaluationInfo&)> on_evaluate;
  std::function<void(const halfstep::train::TelemetryInfo&)> on_telemetry;  ///< with --telemetry
  std::function<void(const halfstep::train::Divergence&)> on_shadow;        ///< the same
  std::function<void()> before_save;              ///< the log must be on the disk by then
  std::function<void(std::string_view)> on_note;  ///< of checkpoints that were skipped
  std::function<bool()> should_stop;
};

/// The sizes of the model that the options describe. @throws halfstep::OptionError.
[[nodiscard]] std::int64_t count_parameters(const Options& options, int vocabulary);

/// What the ranks of a training run take of shared memory: each of them, and all together.
struct SharedBytes {
  std::int64_t arena = 0, common = 0;
};
template <class T>
[[nodiscard]] SharedBytes shared_bytes(const Options& options, std::int64_t parameters);

/// Trains on from the newest checkpoint in `checkpoints`, if there is one, writes the weights to
/// `weights_path` and, with --ema, their average to `average_path`, samples: one rank's part of it.
/// The paths and the listeners are rank 0's.
template <class T>
Trained train_model(const Options& options, halfstep::Runtime& runtime,
                    halfstep::dist::Group& group, const Corpus& text,
                    const std::string& checkpoints, const std::string& weights_path,
                    const std::string& average_path, const Listeners& listeners);

/// The loss of saved weights on tokens.
template <class T>
halfstep::train::Evaluation evaluate_model(const Options& options, halfstep::Runtime& runtime,
                                           const halfstep::data::Tokenizer& tokenizer,
                                           std::span<const std::int32_t> tokens,
                                           const ReadOptions& what,
                                           const std::string& weights_path);

/// Text from saved weights, given out as it comes.
template <class T>
std::string sample_model(const Options& options, halfstep::Runtime& runtime,
                         const halfstep::data::Tokenizer& tokenizer, const ReadOptions& what,
                         const std::string& weights_path,
                         const std::function<void(std::string_view)>& on_text);

}  // namespace capstone
