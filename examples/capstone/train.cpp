// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/file.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/transport/launch.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/train/metrics.hpp>
#include <halfstep/train/progress.hpp>

#include "commands.hpp"
#include "dataset.hpp"
#include "leaked.hpp"
#include "model.hpp"
#include "run_folder.hpp"
#include "scaler.hpp"
#include "signals.hpp"
#include "summary.hpp"

namespace capstone {

namespace core = halfstep::core;
namespace dist = halfstep::dist;
namespace train_ = halfstep::train;

namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// What the directory will hold: weights, checkpoints, and a bound for the rest.
std::uintmax_t expected_bytes(const Options& options, std::int64_t parameters) {
  const int element = options.format == "float" ? 4 : 2;
  const int average = options.ema > 0.0 ? 4 : 0;
  const int state = element + 8 + (element == 2 ? 4 : 0) + average;  // with two moments and masters
  // Those that stay, the best, and the one being written. In double: no option is too large for it.
  const double checkpoints =
      options.checkpoint_every > 0
          ? 2.0 + static_cast<double>(std::min<std::int64_t>(
                      options.keep, options.steps / options.checkpoint_every))
          : 1.0;
  const double bytes = static_cast<double>(parameters) * (2 * element + checkpoints * state) +
                       800.0 * static_cast<double>(options.steps) + 0x1p17;
  return static_cast<std::uintmax_t>(std::min(bytes, 0x1p63));
}

std::string name_of(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

void report(const Options& options, const Dataset& dataset, const Trained& trained, double ngram) {
  const auto& e = trained.evaluation;
  const auto number = [](double x) { return train_::fixed_text(x, 4); };
  const auto share = [&](std::int64_t bytes) {
    return core::text(train_::fixed_text(static_cast<double>(bytes) / 1e6, 3), " MB");
  };
  print(core::text(
      "\nheld-out loss     ", number(e.nats_per_token()), " nats a token (standard error ",
      number(e.standard_error), "), perplexity ", number(e.perplexity()),
      e.bytes > 0 ? core::text(", ", number(e.bits_per_byte()), " bits a byte") : "", "\n"));
  if (options.ema > 0.0) {
    print(core::text("of the average    ", number(trained.average_evaluation.nats_per_token()),
                     " nats a token\n"));
  }
  if (ngram > 0.0) {
    print(core::text("4-gram            ", number(ngram),
                     " bits a byte, Witten-Bell, on the same split\n"));
  }
  if (dataset.grammar) {
    print(core::text("floor             ", number(dataset.grammar->entropy_per_character()),
                     " nats a character: the entropy of the language\n"));
  }
  print(core::text(
      "speed             ", train_::fixed_text(trained.tokens_per_second, 0), " tokens/s, ",
      train_::fixed_text(trained.median_step_seconds * 1e3, 2), " ms a step (median), ",
      train_::fixed_text(static_cast<double>(trained.train_flops) / 1e9 / trained.train_seconds, 1),
      " GFLOP/s, path ", paths_that_ran(trained.counters), "\n"));
  print(core::text("peak memory       ", trained.peak, " bytes counted, ",
                   trained.predicted_peak
                       ? core::text(*trained.predicted_peak, " predicted by a dry run (")
                       : std::string("of rank 0 ("),
                   share(trained.peak), "); the process grew by ", share(trained.resident), "\n"));
  for (std::size_t c = 0; c < core::categories; ++c) {
    if (trained.at_peak[c] == 0) continue;
    std::string name(core::to_string(static_cast<core::Category>(c)));
    name.resize(16, ' ');
    print(core::text("  ", name, share(trained.at_peak[c]), "\n"));
  }
  if (trained.skipped_steps > 0)
    print(core::text("skipped updates   ", trained.skipped_steps, "\n"));
  if (options.telemetry) {
    print(core::text("\n", to_string(trained.telemetry), to_string(trained.shadow)));
  }
  print(core::text("\nsample:\n", trained.sample, "\n\n"));
  print(core::text("in ", options.out, ": weights.safetensors, ",
                   options.ema > 0.0 ? "average.safetensors, " : "",
                   "tokenizer.txt, config.json, metrics.jsonl, "
                   "summary.json, sample.txt",
                   options.checkpoint_every > 0 ? ", checkpoints" : "",
                   "\nmore: capstone sample --out ", options.out, " --prompt TEXT\n"));
}

}  // namespace

namespace {

/// The run of rank 0, which alone writes anything.
void train_first(const Options& options, bool resume, const Dataset& dataset,
                 halfstep::Runtime& runtime, dist::Group& group) {
  const auto& text = dataset.text;
  const std::int64_t parameters = count_parameters(options, text.vocabulary());
  // What the files say, so that the run can be evaluated and repeated from any directory.
  Options stored = options;
  if (dataset.grammar == std::nullopt) {
    stored.data.clear();
    for (const std::string& file :
         reads_shards(options) ? shard_files(options) : std::vector{options.data}) {
      stored.data += (stored.data.empty() ? "" : ",") + std::filesystem::absolute(file).string();
    }
  }
  const std::string config = to_json(stored);
  print(runtime.describe() + "\n");
  if (options.ranks > 1) {
    print(core::text(options.ranks, " ranks over ", options.transport, ", ZeRO ", options.zero,
                     ", each of ", options.accumulate / options.ranks,
                     " micro-batches an update\n"));
  }
  print(core::text("text '", options.data,
                   "': ", dataset.bytes.empty() ? "" : core::text(dataset.bytes.size(), " bytes, "),
                   text.size(), " tokens of ", text.vocabulary(), ", ", text.train_size(),
                   " to train on\n"));
  print(core::text("model: ", parameters, " parameters in ", options.format, "\n"));
  if (!std::has_single_bit(static_cast<unsigned>(options.accumulate))) {
    print(core::text("note: --accumulate ", options.accumulate,
                     " is no power of two, so the bits of the result "
                     "depend on how micro-batches are distributed\n"));
  }

  RunFolder folder(options.out, expected_bytes(options, parameters), resume);
  try {
    Trained trained;
    const std::string weights = folder.part("weights.safetensors");
    const std::string average = options.ema > 0.0 ? folder.part("average.safetensors") : "";
    const std::string log = (folder.checkpoints() / "metrics.jsonl").string();
    if (!resume) core::write_file_atomically((folder.checkpoints() / "run.json").string(), config);
    {
      std::optional<train_::Metrics> metrics;
      train_::Progress progress;
      const Listeners listeners{
          .on_start =
              [&](const Start& start) {
                print(start.groups);
                if (resume) {
                  train_::cut_metrics(log, start.iteration, start.evaluated);
                  metrics.emplace(log, train_::Metrics::Start::append);
                  metrics->write(train_::ResumeInfo{.iteration = start.iteration});
                  print(core::text("resumed after iteration ", start.iteration, "\n"));
                } else {
                  metrics.emplace(log);
                }
                std::fflush(stdout);
              },
          .on_step =
              [&](const train_::StepInfo& info) {
                progress.step(info);
                metrics->write(info);
                if (!info.applied) {
                  progress.note(core::text("iteration ", info.iteration, " skipped: gradient of '",
                                           info.first_bad, "' is not finite at loss scale ",
                                           info.scale));
                }
              },
          .on_evaluate =
              [&](const train_::EvaluationInfo& info) {
                progress.evaluation(info);
                metrics->write(info);
              },
          .on_telemetry = [&](const train_::TelemetryInfo& info) { metrics->write(info); },
          .on_shadow = [&](const train_::Divergence& divergence) { metrics->write(divergence); },
          .before_save = [&] { metrics->sync(); },
          .on_note = [&](std::string_view line) { progress.note(line); },
          .should_stop = [] { return signal_that_came() != 0; }};
      trained = halfstep::with_format(options.format, [&]<class T> {
        return train_model<T>(options, runtime, group, text, folder.checkpoints().string(), weights,
                              average, listeners);
      });
    }
    if (trained.stopped) {
      throw Interrupted(core::text("stopped by ", name_of(signal_that_came()), " after iteration ",
                                   trained.iterations, " of ", options.steps,
                                   "; to go on: capstone train --resume ", options.out),
                        signal_that_came());
    }
    core::write_file_atomically(folder.part("metrics.jsonl"), core::read_whole_file(log));
    const double ngram = ngram_of(dataset);
    const double floor = dataset.grammar ? dataset.grammar->entropy_per_character() : 0.0;
    core::write_file_atomically(folder.part("tokenizer.txt"), text.tokenizer().serialise());
    core::write_file_atomically(folder.part("config.json"), config);
    core::write_file_atomically(folder.part("sample.txt"), trained.sample + "\n");
    core::write_file_atomically(folder.part("summary.json"),
                                summary_json(stored, trained, runtime.threads(), text.vocabulary(),
                                             text.hash(), ngram, floor));
    folder.commit(options.checkpoint_every > 0);
    report(options, dataset, trained, ngram);
    if (!trained.ended_by_scaler.empty()) throw RunFailed("stopped at " + trained.ended_by_scaler);
    const auto& e = trained.evaluation;
    if (dataset.grammar && leaked(e.nats_per_token(), e.standard_error, floor)) {
      throw RunFailed(core::text("the held-out loss ", e.nats_per_token(), " is below the floor ",
                                 floor, " by more than three standard errors of ", e.standard_error,
                                 ": the target leaked into what the model sees"));
    }
  } catch (const halfstep::PeerError&) {
    throw;
  } catch (const halfstep::OptionError&) {
    throw;  // a budget that nothing fits into, say: the command line's
  } catch (const halfstep::Error& error) {
    throw RunFailed(error.what());
  }
}

int train_rank(const Options& options, bool resume, const Dataset& dataset,
               const dist::Rank& rank) {
  const auto run = [&] {
    std::optional<core::Isa> isa;
    if (options.ranks > 1) isa = dist::isa_of_rank_0(rank.transport);
    halfstep::Runtime runtime({.threads = rank.threads, .seed = options.seed, .isa = isa});
    dist::Group group(rank.transport, runtime);
    if (group.rank() == 0) {
      train_first(options, resume, dataset, runtime, group);
    } else {
      halfstep::with_format(options.format, [&]<class T> {
        static_cast<void>(train_model<T>(options, runtime, group, dataset.text, "", "", "", {}));
      });
    }
    return 0;
  };
  if (rank.transport.rank() == 0) return exit_code_of(run);
  try {
    return run();
  } catch (const halfstep::NumericError&) {
    return 0;  // all ranks come to it, and rank 0 says so
  } catch (const halfstep::OptionError&) {
    return 0;  // so too
  }
}

}  // namespace

int train(const Options& options, bool resume) {
  listen_for_signals();
  // Everything that can be found wrong with the input is, before the directory is touched.
  static_cast<void>(loss_scale_of(options));
  const Dataset dataset = load_dataset(options);
  const std::int64_t parameters = count_parameters(options, dataset.text.vocabulary());
  const SharedBytes shared = halfstep::with_format(
      options.format, [&]<class T> { return shared_bytes<T>(options, parameters); });
  const int code = dist::launch(
      {.ranks = options.ranks,
       .transport = dist::transport_kind(options.transport),
       .threads = options.threads,
       .arena_bytes = shared.arena,
       .common_bytes = shared.common},
      [&](const dist::Rank& rank) { return train_rank(options, resume, dataset, rank); });
  return code == dist::failed_rank_code ? 1 : code;
}

}  // namespace capstone
