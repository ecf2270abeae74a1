// SPDX-License-Identifier: MIT
// The directory of a run. Files are written under temporary names and get theirs together, when the
// run has succeeded; otherwise the directory is as it was before, or not there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/error.hpp>

namespace capstone {

class RunFolder {
 public:
  /// Makes the directory if it is missing, and sees to it that `bytes` fit beside what is there.
  /// @throws halfstep::FileError if not, or if something else has that name.
  RunFolder(std::filesystem::path directory, std::uintmax_t bytes);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  /// Without `commit`: removes what was written.
  ~RunFolder();

  /// The temporary name to write `name` under. It ends in .part.
  [[nodiscard]] std::string part(std::string_view name);
  /// Gives every part its name. @throws halfstep::FileError.
  void commit();
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

 private:
  std::filesystem::path directory_;
  std::filesystem::path made_;  ///< the outermost directory that was made, or empty
  std::vector<std::string> names_;
  bool committed_ = false;
};

}  // namespace capstone
