// SPDX-License-Identifier: MIT
// What a run of the capstone is told, from where, and what is wrong with it. Precedence: flag, then
// --config, then --preset, then default. One table (options.cpp) serves flags, files and defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <halfstep/core/error.hpp>

namespace capstone {

/// Everything that `train` can be told. Names of members are the long flags with '-' for '_'.
struct Options {
  std::string data, out, preset;
  std::string format = "float";
  std::string tokenizer = "char";
  std::string loss_scale = "auto";
  std::string recompute = "none";
  std::string order = "random";
  int vocabulary = 0;
  int layers = 4, heads = 4, width = 128, context = 128;
  bool bias = true;
  float dropout = 0.0F;
  int batch = 8, accumulate = 1;
  std::int64_t steps = 1000, warmup = 100, eval_every = 0;
  std::int64_t checkpoint_every = 0;
  int eval_stride = 0, keep = 3;
  int patience = 0, plateau_patience = 0;
  double plateau_factor = 0.5;
  float lr = 1e-3F, min_lr = 1e-4F, clip = 1.0F;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
  double held_out = 0.1;
  double ema = 0.0;
  std::uint64_t seed = 1;
  int threads = 0;
  bool telemetry = false;
  int ranks = 1, zero = 0;
  std::string transport = "shm", algorithm = "best";
  std::int64_t bucket = std::int64_t{1} << 20;
};

/// What `sample` and `eval` are told besides the directory of the run.
struct ReadOptions {
  std::string out, data, prompt;
  int tokens = 300, batch = 8, eval_stride = 0, threads = 0, top_k = 0;
  float temperature = 0.8F;
  double top_p = 1.0;
  bool average = false;
  std::uint64_t seed = 1;
};

/// One option: its flag without the dashes, and where its value goes.
template <class Target>
struct Field {
  std::string_view name;
  std::string_view help;
  std::variant<std::string Target::*, int Target::*, std::int64_t Target::*,
               std::uint64_t Target::*, float Target::*, double Target::*, bool Target::*>
      member;
};

[[nodiscard]] std::span<const Field<Options>> train_fields();
[[nodiscard]] std::span<const Field<ReadOptions>> eval_fields();
[[nodiscard]] std::span<const Field<ReadOptions>> sample_fields();

/// A flag with the text that was given for it.
struct Given {
  std::string name, text;
};

/// Values by precedence, checked one by one and against each other. Reads the --config file; with
/// --resume the options of that run, beside which only a few flags may say something else.
/// @throws halfstep::OptionError or FileError, saying what to do.
[[nodiscard]] Options resolve(std::span<const Given> flags);
/// The options that a resumed run must share with the run so far, as JSON: all but where its files
/// are, how often it saves and on how many threads and ranks it runs, which do not change its
/// results.
[[nodiscard]] std::string identity_json(const Options& options);
/// The same for `eval` or `sample`.
[[nodiscard]] ReadOptions resolve_read(std::span<const Given> flags,
                                       std::span<const Field<ReadOptions>> fields);

/// Every option as a JSON object whose keys are flags: what --config takes.
/// @throws halfstep::OptionError if a text, a path for instance, is not UTF-8.
[[nodiscard]] std::string to_json(const Options& options);
/// The options of such a file. @throws as resolve.
[[nodiscard]] Options from_json(std::string_view text, std::string_view source);

/// The candidate with the smallest edit distance to `name`, the first of equals.
[[nodiscard]] std::string_view nearest(std::string_view name,
                                       std::span<const std::string_view> candidates);

[[nodiscard]] std::span<const std::string_view> preset_names();

/// Whether --data names files of tokens, and their names: commas separate them.
[[nodiscard]] bool reads_shards(const Options& options);
[[nodiscard]] std::vector<std::string> shard_files(const Options& options);

/// Into how many segments --recompute cuts the blocks; 1 for none and for a budget.
[[nodiscard]] int segments_of(const Options& options);
/// The bytes that --recompute budget:BYTES keeps the whole account in.
[[nodiscard]] std::optional<std::int64_t> budget_of(const Options& options);

}  // namespace capstone
