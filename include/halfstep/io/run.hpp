// SPDX-License-Identifier: MIT
// The checkpoints of a run in one directory: continues from the newest whole one, saves, and keeps
// the last few and the best. Not for: one checkpoint by its path (io/checkpoint.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/manifest.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

struct RunOptions {
  std::string directory{};  ///< made if missing; holds iteration_00000100 and so on
  int keep = 3;             ///< newest checkpoints that stay, at least 1; the best stays besides
  std::string config =
      "{}";  ///< a JSON object that says what the run is; another one is another run
  std::uint64_t data_hash = 0;  ///< of what it is trained on, such as data::Text::hash
  /// Told what was skipped and why, a line at a time.
  std::function<void(std::string_view)> report = [](std::string_view line) {
    std::fprintf(stderr, "halfstep: %.*s\n", static_cast<int>(line.size()), line.data());
  };
};

/// A checkpoint as it lies in a run's directory.
struct Found {
  std::int64_t iteration = 0;
  std::string path;
  std::optional<Manifest> manifest;  ///< nothing if it is not whole
  std::string problem;               ///< why not
};

/// The checkpoints in a directory, by number, the newest first. Sizes are compared, hashes are not.
/// A directory that is not there has none. What has another name is not looked at.
[[nodiscard]] inline std::vector<Found> find_checkpoints(const std::string& directory) {
  std::vector<Found> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    constexpr std::string_view prefix = "iteration_";
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    Found one;
    const char* const end = name.data() + name.size();
    const auto [at, bad] = std::from_chars(name.data() + prefix.size(), end, one.iteration);
    if (bad != std::errc{} || at != end || one.iteration < 0) continue;
    one.path = entry.path().string();
    try {
      one.manifest = Checkpoint::read_manifest(one.path);
      if (one.manifest->iteration != one.iteration) {
        core::fail<FileError>("its manifest is of iteration ", one.manifest->iteration);
      }
    } catch (const FileError& problem) {
      one.manifest.reset();
      one.problem = problem.what();
    }
    found.push_back(std::move(one));
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.iteration > b.iteration; });
  return found;
}

/// Of checkpoints with a metric that is a number, the one with the smallest, the earliest of
/// equals; or null.
[[nodiscard]] inline const Found* best_of(const std::vector<Found>& found) {
  const Found* best = nullptr;
  for (const Found& one : found) {  // the newest first, so an equal one that comes later is earlier
    if (!one.manifest || !one.manifest->metric || !(*one.manifest->metric == *one.manifest->metric))
      continue;
    if (best == nullptr || *one.manifest->metric <= *best->manifest->metric) best = &one;
  }
  return best;
}

/// A run that can be killed anywhere:
///
///   io::Run run("out", parameters, optimizer, scaler);    // continues where the last one stopped
///   for (auto i = run.iteration(); i < 2000; ++i) {
///     …
///     if ((i + 1) % 100 == 0) run.save(i + 1);
///   }
///
/// The parts are everything with a visit_state, in one order, the store of parameters first; they
/// must outlive it. Seed and step are taken from the parts that have a runtime() or steps(). One
/// process at a time: the directory is locked.
template <class... Parts>
class Run {
 public:
  /// Fills the parts from the newest checkpoint that is whole. Newer ones that are not are reported
  /// and skipped; none at all: the parts stay as they are, and iteration() is 0.
  ///
  /// @throws OptionError if the directory has a checkpoint of another run: other seed, data or
  /// config; FileError if it cannot be made or is in use, or the checkpoint does not fit the parts.
  explicit Run(RunOptions options, Parts&... parts)
      : options_(std::move(options)), parts_(parts...) {
    if (options_.keep < 1) {
      core::fail<OptionError>("Run: keep is ", options_.keep, "; wanted at least 1");
    }
    static_cast<void>(manifest_text({.config = options_.config}));  // throws if it is no object
    std::error_code error;
    std::filesystem::create_directories(options_.directory, error);
    if (error) {
      core::fail<FileError>("Run: cannot make '", options_.directory, "': ", error.message(),
                            ". May this user write there?");
    }
    if (!lock_.take(options_.directory)) {
      core::fail<FileError>("Run: '", options_.directory,
                            "' is in use by another process. Wait for it, or name another.");
    }
    resume();
  }
  template <std::convertible_to<std::string> Path>
  explicit Run(const Path& directory, Parts&... parts)
      : Run(RunOptions{.directory = directory}, parts...) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Windows done when the run was resumed; 0 for a new one. The loop begins here.
  [[nodiscard]] std::int64_t iteration() const { return iteration_; }

  /// Saves the parts after `iteration` windows, in place of an earlier save of that number, then
  /// removes this run's checkpoints that are neither among the `keep` newest nor the best. `metric`
  /// is what they are compared by, the smaller the better; a NaN is never the best.
  /// @throws FileError as write_checkpoint; earlier checkpoints are as they were.
  void save(std::int64_t iteration, std::optional<double> metric = std::nullopt) {
    Manifest manifest = identity();
    manifest.iteration = iteration;
    manifest.metric = metric;
    std::apply(
        [&](auto&... parts) {
          ((manifest.step = step_of(parts, manifest.step)), ...);
          write_checkpoint(path_of(iteration), std::move(manifest), parts...);
        },
        parts_);
    rotate();
  }

 private:
  [[nodiscard]] std::string path_of(std::int64_t iteration) const {
    std::string number = core::text(iteration);
    if (number.size() < 8) number.insert(0, 8 - number.size(), '0');
    return core::text(options_.directory, "/iteration_", number);
  }

  template <class Part>
  [[nodiscard]] static std::int64_t step_of(const Part& part, std::int64_t otherwise) {
    if constexpr (requires {
                    { part.steps() } -> std::convertible_to<std::int64_t>;
                  }) {
      return part.steps();
    } else {
      return otherwise;
    }
  }
  template <class Part>
  [[nodiscard]] static std::uint64_t seed_of(Part& part, std::uint64_t otherwise) {
    if constexpr (requires {
                    { part.runtime().seed() } -> std::convertible_to<std::uint64_t>;
                  }) {
      return part.runtime().seed();
    } else {
      return otherwise;
    }
  }

  [[nodiscard]] Manifest identity() {
    Manifest manifest{.data_hash = options_.data_hash, .config = options_.config};
    std::apply([&](auto&... parts) { ((manifest.seed = seed_of(parts, manifest.seed)), ...); },
               parts_);
    return manifest;
  }

  /// How a manifest differs from this run; empty if it is of this run.
  [[nodiscard]] std::string difference(const Manifest& other) {
    const Manifest mine = identity();
    if (other.seed != mine.seed) {
      return core::text("its seed is ", other.seed, ", here it is ", mine.seed);
    }
    if (other.data_hash != mine.data_hash) {
      return core::text("it is trained on other data: hash ", detail::hash_text(other.data_hash),
                        ", here ", detail::hash_text(mine.data_hash));
    }
    const auto theirs = nlohmann::json::parse(other.config);
    const auto ours = nlohmann::json::parse(mine.config);
    if (theirs == ours) return "";
    for (const auto* side : {&theirs, &ours}) {
      for (const auto& item : side->items()) {
        const std::string& key = item.key();
        const auto text = [&](const auto& json) {
          return json.contains(key) ? json.at(key).dump() : std::string("not there");
        };
        if (text(theirs) == text(ours)) continue;
        return core::text("'", key, "' of its config is ", text(theirs), ", here ", text(ours));
      }
    }
    return "its config is another";
  }

  void resume() {
    // What a killed save or removal left: no name of a checkpoint ends so.
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(options_.directory, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("iteration_") || !name.ends_with(".tmp")) continue;
      options_.report(
          core::text("'", entry.path().string(), "' is what an interrupted save left; removed"));
      std::filesystem::remove_all(entry.path(), error);
    }
    for (const Found& found : find_checkpoints(options_.directory)) {
      if (!found.manifest) {
        options_.report(core::text("skipped a checkpoint that is not whole: ", found.problem));
        continue;
      }
      if (const std::string why = difference(*found.manifest); !why.empty()) {
        core::fail<OptionError>("Run: '", found.path, "' is of another run: ", why,
                                ". Name another directory, or move that away.");
      }
      std::optional<Checkpoint> checkpoint;
      try {
        checkpoint.emplace(Checkpoint::open(found.path));
      } catch (const FileError& problem) {
        options_.report(core::text("skipped a checkpoint that is damaged: ", problem.what()));
        continue;
      }
      std::apply([&](auto&... parts) { checkpoint->restore(parts...); }, parts_);
      iteration_ = found.iteration;
      return;
    }
  }

  void rotate() {
    std::vector<Found> found = find_checkpoints(options_.directory);
    std::erase_if(found, [&](const Found& one) {
      return !one.manifest || !difference(*one.manifest).empty();
    });
    const Found* const best = best_of(found);
    int kept = 0;
    for (const Found& one : found) {
      if (kept++ < options_.keep || &one == best) continue;
      // By another name first, so that a kill leaves nothing that looks like a checkpoint.
      const std::string gone = one.path + ".tmp";
      std::error_code error;
      std::filesystem::rename(one.path, gone, error);
      if (!error) std::filesystem::remove_all(gone, error);
      if (error) {
        options_.report(
            core::text("cannot remove the old checkpoint '", one.path, "': ", error.message()));
      }
    }
  }

  RunOptions options_;
  std::tuple<Parts&...> parts_;
  core::DirectoryLock lock_;
  std::int64_t iteration_ = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
