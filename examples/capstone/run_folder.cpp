// SPDX-License-Identifier: MIT
#include "run_folder.hpp"

#include <system_error>
#include <utility>

namespace capstone {

namespace fs = std::filesystem;
using halfstep::FileError;
namespace core = halfstep::core;

RunFolder::RunFolder(fs::path directory, std::uintmax_t bytes) : directory_(std::move(directory)) {
  std::error_code error;
  // Of a/b/c the outermost missing part is what has to go again if the run fails.
  fs::path missing = fs::absolute(directory_).lexically_normal();
  if (!missing.has_filename()) missing = missing.parent_path();
  while (!fs::exists(missing, error)) {
    made_ = missing;
    missing = missing.parent_path();
  }
  if (!made_.empty() && !fs::create_directories(directory_, error) && error) {
    const fs::path failed = std::exchange(made_, {});
    fs::remove_all(failed, error);
    core::fail<FileError>("--out '", directory_.string(), "' cannot be made below '", missing.string(),
                          "'. May this user write there?");
  }
  if (!fs::is_directory(directory_, error)) {
    core::fail<FileError>("--out '", directory_.string(), "' is there and is no directory. Name another.");
  }
  const fs::space_info space = fs::space(directory_, error);
  if (!error && space.available < bytes) {
    if (!made_.empty()) fs::remove_all(made_, error);
    core::fail<FileError>("--out '", directory_.string(), "' has room for ", space.available,
                          " bytes, but the run will write about ", bytes,
                          ". Free some space, or name a directory on another disk.");
  }
}

RunFolder::~RunFolder() {
  if (committed_) return;
  std::error_code ignored;
  for (const std::string& name : names_) {
    fs::remove(directory_ / (name + ".part"), ignored);
    fs::remove(directory_ / (name + ".part.tmp"), ignored);
  }
  if (!made_.empty()) fs::remove_all(made_, ignored);
}

std::string RunFolder::part(std::string_view name) {
  names_.emplace_back(name);
  return (directory_ / (names_.back() + ".part")).string();
}

void RunFolder::commit() {
  for (const std::string& name : names_) {
    std::error_code error;
    fs::rename(directory_ / (name + ".part"), directory_ / name, error);
    if (error) {
      core::fail<FileError>("cannot give '", (directory_ / name).string(), "' its name: ",
                            error.message());
    }
  }
  committed_ = true;
}

}  // namespace capstone
