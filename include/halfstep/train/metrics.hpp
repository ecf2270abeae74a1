// SPDX-License-Identifier: MIT
// metrics.jsonl: one JSON object a line for each step and evaluation, whole lines only, numbers
// that read back to the same bits whatever the locale. Not for people: train/progress.hpp.
#pragma once

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <unistd.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/train/step_info.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

/// The value of "schema" in every line; another one when a field changes its meaning.
inline constexpr int metrics_schema = 1;

namespace detail {

/// A flat JSON object, built in order.
class JsonLine {
 public:
  void add(std::string_view key, std::string_view value) {
    begin(key);
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') text_ += '\\';
      // Names of parameters and kinds: control characters have no business in them.
      text_ += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    text_ += '"';
  }
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  template <class Number>
    requires std::is_arithmetic_v<Number>
  void add(std::string_view key, Number value) {
    begin(key);
    if constexpr (std::is_floating_point_v<Number>) {
      // JSON has no NaN and no infinity.
      text_ += std::isfinite(value) ? core::text(value) : std::string("null");
    } else {
      text_ += core::text(value);
    }
  }
  [[nodiscard]] std::string line() const { return "{" + text_ + "}\n"; }

 private:
  void begin(std::string_view key) {
    text_ += core::text(text_.empty() ? "" : ",", "\"", key, "\":");
  }
  std::string text_;
};

}  // namespace detail

/// {"schema":1,"kind":"step","iteration":0,"step":1,"loss":…}
[[nodiscard]] inline std::string metrics_line(const StepInfo& info) {
  detail::JsonLine json;
  json.add("schema", metrics_schema);
  json.add("kind", "step");
  json.add("iteration", info.iteration);
  json.add("step", info.step);
  json.add("loss", info.loss);
  json.add("tokens", info.tokens);
  json.add("lr", info.lr);
  json.add("norm", info.norm);
  json.add("clipped_by", info.clipped_by);
  json.add("scale", info.scale);
  json.add("applied", info.applied);
  if (!info.first_bad.empty()) json.add("first_bad", info.first_bad);
  json.add("step_seconds", info.step_seconds);
  json.add("seconds", info.seconds);
  return json.line();
}

/// {"schema":1,"kind":"evaluation","iteration":250,…}
[[nodiscard]] inline std::string metrics_line(const EvaluationInfo& info) {
  detail::JsonLine json;
  json.add("schema", metrics_schema);
  json.add("kind", "evaluation");
  json.add("iteration", info.iteration);
  json.add("step", info.step);
  json.add("loss", info.evaluation.nats_per_token());
  json.add("standard_error", info.evaluation.standard_error);
  json.add("bits_per_byte", info.evaluation.bits_per_byte());
  json.add("accuracy", info.evaluation.accuracy());
  json.add("tokens", info.evaluation.count);
  json.add("seconds", info.seconds);
  return json.line();
}

/// A run goes on from a checkpoint.
struct ResumeInfo {
  std::int64_t iteration = 0;  ///< windows done before the checkpoint
};

[[nodiscard]] inline std::string metrics_line(const ResumeInfo& info) {
  detail::JsonLine json;
  json.add("schema", metrics_schema);
  json.add("kind", "resume");
  json.add("iteration", info.iteration);
  return json.line();
}

namespace detail {

/// The iteration that a line was written for; nothing if it is no whole line of ours.
[[nodiscard]] inline std::optional<std::int64_t> iteration_of(std::string_view line) {
  constexpr std::string_view key = "\"iteration\":";
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos || !line.starts_with('{') || !line.ends_with("}\n")) return {};
  std::int64_t value = 0;
  const auto end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + at + key.size(), end, value);
  return error == std::errc{} && stop != end ? std::optional(value) : std::nullopt;
}

}  // namespace detail

/// Cuts the log of a run that goes on after `iteration` windows: keeps the lines before it, the
/// evaluation after that many windows only if the run so far includes it (`evaluated`), and drops the
/// rest, a half-written last line too. A file that is not there stays so.
/// @throws FileError as core::write_file_atomically: the log is the old one or the new one.
inline void cut_metrics(const std::string& path, std::int64_t iteration, bool evaluated) {
  if (::access(path.c_str(), F_OK) != 0) return;
  const std::string text = core::read_whole_file(path);
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    const std::string_view line = std::string_view(text).substr(at, end + 1 - at);
    at = end + 1;
    const auto of = detail::iteration_of(line);
    const bool step = line.find("\"kind\":\"step\"") != std::string_view::npos;
    const bool evaluation = line.find("\"kind\":\"evaluation\"") != std::string_view::npos;
    if (!of || *of > iteration || (*of == iteration && (step || (evaluation && !evaluated)))) break;
    kept += line;
  }
  core::write_file_atomically(path, kept);
}

/// A file that lines are appended to; each is there as soon as `write` returns (not synced).
class Metrics {
 public:
  enum class Start { empty, append };

  /// @throws FileError if the file cannot be opened.
  explicit Metrics(std::string path, Start start = Start::empty)
      : path_(std::move(path)),
        file_(std::fopen(path_.c_str(), start == Start::empty ? "we" : "ae"), &std::fclose) {
    if (file_ == nullptr) fail("open");
  }

  /// Until now everything is on the disk: before a checkpoint that the lines lead up to.
  /// @throws FileError with the system's cause.
  void sync() {
    if (::fsync(::fileno(file_.get())) != 0 && errno != EINVAL) fail("sync");
  }

  /// @throws FileError if the line cannot be written whole.
  template <class Info>
  void write(const Info& info) {
    const std::string line = metrics_line(info);
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
        std::fflush(file_.get()) != 0) {
      fail("write");
    }
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    core::fail<FileError>("Metrics: cannot ", what, " '", path_, "': ",
                          std::system_category().message(errno),
                          ". Is there space, and may this user write there?");
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
