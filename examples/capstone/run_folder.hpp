// SPDX-License-Identifier: MIT
// The directory of a run. Files are written under temporary names and get theirs together, when the
// run has succeeded; otherwise the directory is as it was before, or not there.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/error.hpp>

namespace capstone {

/// What a run leaves behind.
inline constexpr std::array<std::string_view, 6> run_files{
    "weights.safetensors", "tokenizer.txt", "config.json", "metrics.jsonl", "summary.json", "sample.txt"};

class RunFolder {
 public:
  /// Makes the directory if it is missing, keeps other runs out of it until destroyed, and sees to it
  /// that `bytes` fit beside what is there.
  /// @throws halfstep::FileError if not, if something else has that name, or that of a file of a run.
  RunFolder(std::filesystem::path directory, std::uintmax_t bytes);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Without `commit`: removes what was written, and directories that were made and are empty.
  ~RunFolder();

  /// The temporary name to write `name`, one of run_files, under. It ends in .part.
  [[nodiscard]] std::string part(std::string_view name);
  /// Gives every part its name. @throws halfstep::FileError.
  void commit();
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  /// Held on the directory itself, so that no file is left behind by it. A kill releases it.
  class Lock {
   public:
    Lock() = default;
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();
    /// False if another process holds it.
    [[nodiscard]] bool take(const std::filesystem::path& directory);

   private:
    int descriptor_ = -1;
  };

  void remove_made();

  std::filesystem::path directory_;
  std::filesystem::path absolute_;  ///< the same, without a slash at its end
  std::filesystem::path made_;  ///< the outermost directory that was made, or empty
  Lock lock_;
  std::vector<std::string> names_;
  bool committed_ = false;
};

}  // namespace capstone
