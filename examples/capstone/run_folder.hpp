// SPDX-License-Identifier: MIT
// The directory of a run. Results are written under temporary names and get theirs together, when
// the run has succeeded; otherwise they are as they were before, or not there. What a run needs to
// go on after a kill is in checkpoints/ below it from the start.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>

namespace capstone {

/// What a run leaves behind.
inline constexpr std::array<std::string_view, 7> run_files{
    "weights.safetensors", "average.safetensors", "tokenizer.txt", "config.json",
    "metrics.jsonl",       "summary.json",        "sample.txt"};

class RunFolder {
 public:
  /// Makes the directory and its checkpoints/ if they are missing, keeps other runs out of it until
  /// destroyed, and sees to it that `bytes` fit beside what is there.
  /// @throws halfstep::FileError if not, if something else has that name, or that of a file of a
  /// run; or if there are checkpoints and this is not to resume them.
  RunFolder(std::filesystem::path directory, std::uintmax_t bytes, bool resume);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Without `commit`: removes what was written, but for checkpoints with what belongs to them, and
  /// directories that were made and are empty.
  ~RunFolder();

  /// The temporary name to write `name`, one of run_files, under. It ends in .part.
  [[nodiscard]] std::string part(std::string_view name);
  /// Gives every part its name, and removes checkpoints/ unless it is to stay.
  /// @throws halfstep::FileError.
  void commit(bool keep_checkpoints);
  /// Where checkpoints, run.json and the log of the run so far are.
  [[nodiscard]] std::filesystem::path checkpoints() const { return directory_ / "checkpoints"; }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  void remove_made();
  /// checkpoints/ without any: what a run that saved nothing leaves.
  void remove_empty_checkpoints();

  std::filesystem::path directory_;
  std::filesystem::path absolute_;  ///< the same, without a slash at its end
  std::filesystem::path made_;      ///< the outermost directory that was made, or empty
  halfstep::core::DirectoryLock lock_;
  std::vector<std::string> names_;
  bool committed_ = false;
};

}  // namespace capstone
