// SPDX-License-Identifier: MIT
// What a person sees of a run: one line that refreshes itself on a terminal, a plain line now and
// then elsewhere. Not for machines: those read metrics.jsonl (train/metrics.hpp).
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/train/step_info.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

struct ProgressOptions {
  std::FILE* out = stderr;
  bool terminal = isatty(2) == 1;  ///< whether `out` shows \r as a return to the line's start
  double refresh_seconds = 0.1;    ///< on a terminal: at least this between two refreshes
  double plain_seconds = 10.0;     ///< elsewhere: at least this between two lines
};

/// "1:02:03", "4:05", or "-" for what is not known.
[[nodiscard]] inline std::string duration_text(double seconds) {
  if (!(seconds >= 0.0 && seconds < 1e8)) return "-";
  const auto total = static_cast<std::int64_t>(seconds + 0.5);
  const auto two = [](std::int64_t n) { return core::text(n < 10 ? "0" : "", n); };
  if (total < 3600) return core::text(total / 60, ":", two(total % 60));
  return core::text(total / 3600, ":", two(total / 60 % 60), ":", two(total % 60));
}

/// A number with `digits` decimals, whatever the locale.
[[nodiscard]] inline std::string fixed_text(double value, int digits) {
  char buffer[400];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits).ptr;
  return {buffer, end};
}

/// "1.00e-03": learning rates and norms.
[[nodiscard]] inline std::string scientific_text(double value, int digits) {
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific, digits)
          .ptr;
  return {buffer, end};
}

/// Tokens per second are those since the last line over the wall time since then, so that a slow
/// evaluation or another process shows at once. One unit everywhere: windows.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options = {}) : options_(options) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  /// Shows a step, if enough time has passed or it is the run's last.
  void step(const StepInfo& info) {
    tokens_ += info.tokens;
    if (!info.applied) {
      ++skipped_;
    }
    const bool last = info.iteration + 1 == info.iterations;
    const double wait = options_.terminal ? options_.refresh_seconds : options_.plain_seconds;
    if (!last && shown_once_ && info.seconds - shown_at_ < wait) return;
    const double elapsed = info.seconds - shown_at_;
    const std::string text =
        line(info, elapsed > 0.0 ? static_cast<double>(tokens_) / elapsed : 0.0);
    tokens_ = 0;
    shown_at_ = info.seconds;
    shown_once_ = true;
    if (options_.terminal) {
      write(core::text("\r", text, "\x1b[K"));
      open_line_ = true;
    } else {
      write(text + "\n");
    }
  }

  /// A line that stays: on a terminal above the one that refreshes.
  void note(std::string_view text) {
    write(core::text(open_line_ ? "\r\x1b[K" : "", text, "\n"));
    open_line_ = false;
  }

  void evaluation(const EvaluationInfo& info) {
    note(core::text(
        "held out after ", info.iteration, ": ", fixed_text(info.evaluation.nats_per_token(), 4),
        " nats a token",
        info.evaluation.bytes > 0
            ? core::text(", ", fixed_text(info.evaluation.bits_per_byte(), 4), " bits a byte")
            : std::string()));
  }

  /// Ends the refreshing line, so that what follows starts on its own. Called by the destructor.
  void finish() {
    if (open_line_) write("\n");
    open_line_ = false;
  }

  /// What step shows.
  [[nodiscard]] std::string line(const StepInfo& info, double tokens_per_second) const {
    const auto done = static_cast<double>(info.iteration + 1);
    const double left =
        info.seconds / done * static_cast<double>(info.iterations - info.iteration - 1);
    std::string text =
        core::text(info.iteration + 1, "/", info.iterations, "  loss ", fixed_text(info.loss, 4),
                   "  lr ", scientific_text(info.lr, 2), "  norm ", fixed_text(info.norm, 3), "  ",
                   fixed_text(tokens_per_second, 0), " tokens/s  ", duration_text(left), " left");
    if (info.scale != 1.0F) text += core::text("  scale ", info.scale);
    if (skipped_ > 0) text += core::text("  skipped ", skipped_);
    return text;
  }

 private:
  void write(std::string_view text) {
    // A closed terminal is no reason to end a run.
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), options_.out));
    static_cast<void>(std::fflush(options_.out));
  }

  ProgressOptions options_;
  std::int64_t tokens_ = 0, skipped_ = 0;
  double shown_at_ = 0.0;
  bool shown_once_ = false;
  bool open_line_ = false;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
