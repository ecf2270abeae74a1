// SPDX-License-Identifier: MIT
#include "run_folder.hpp"

#include <system_error>
#include <utility>

#include <halfstep/io/run.hpp>

namespace capstone {

namespace fs = std::filesystem;
using halfstep::FileError;
namespace core = halfstep::core;

namespace {

/// Also for a link without a target, and for what cannot be looked at.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

}  // namespace

RunFolder::RunFolder(fs::path directory, std::uintmax_t bytes, bool resume)
    : directory_(std::move(directory)) {
  std::error_code error;
  absolute_ = fs::absolute(directory_).lexically_normal();
  if (!absolute_.has_filename()) absolute_ = absolute_.parent_path();
  // Of a/b/c the outermost missing part is what has to go again if the run fails.
  fs::path missing = absolute_;
  while (!is_there(missing)) {
    made_ = missing;
    missing = missing.parent_path();
  }
  if (!made_.empty() && !fs::create_directories(directory_, error) && error) {
    remove_made();
    core::fail<FileError>("--out '", directory_.string(), "' cannot be made below '",
                          missing.string(), "'. May this user write there?");
  }
  if (!fs::is_directory(directory_, error)) {
    const bool dangling = fs::is_symlink(absolute_, error) && !fs::exists(absolute_, error);
    core::fail<FileError>("--out '", directory_.string(),
                          dangling
                              ? "' is a link without a target. Make the target, or name another."
                              : "' is there and is no directory. Name another.");
  }
  // Who holds the lock decides what is removed, so a refusal here leaves even what was made above.
  if (!lock_.take(directory_.string())) {
    core::fail<FileError>("--out '", directory_.string(),
                          "': another run writes there. Wait for it, or name another directory.");
  }
  for (const std::string_view name : run_files) {
    for (const char* end : {"", ".part", ".part.tmp"}) {
      const fs::path path = directory_ / (std::string(name) + end);
      if (!is_there(path) || fs::is_regular_file(fs::symlink_status(path, error))) continue;
      core::fail<FileError>("'", path.string(),
                            "' is there and is no regular file, so a run cannot put its own ",
                            "in its place. Move it away, or name another --out.");
    }
  }
  const fs::space_info space = fs::space(directory_, error);
  if (!error && space.available < bytes) {
    remove_made();
    core::fail<FileError>("--out '", directory_.string(), "' has room for ", space.available,
                          " bytes, but the run will write about ", bytes,
                          ". Free some space, or name a directory on another disk.");
  }
  if (!resume && !halfstep::io::find_checkpoints(checkpoints().string()).empty()) {
    core::fail<FileError>("--out '", directory_.string(),
                          "' has checkpoints of a run. Go on with it by --resume '",
                          directory_.string(), "', remove '", checkpoints().string(),
                          "', or name another directory.");
  }
  fs::create_directory(checkpoints(), error);
  if (error) {
    remove_made();
    core::fail<FileError>("cannot make '", checkpoints().string(), "': ", error.message(),
                          ". May this user write there?");
  }
}

RunFolder::~RunFolder() {
  if (committed_) return;
  std::error_code ignored;
  for (const std::string& name : names_) {
    fs::remove(directory_ / (name + ".part"), ignored);
    fs::remove(directory_ / (name + ".part.tmp"), ignored);
  }
  remove_empty_checkpoints();
  remove_made();
}

void RunFolder::remove_empty_checkpoints() {
  if (!halfstep::io::find_checkpoints(checkpoints().string()).empty()) return;
  std::error_code ignored;
  for (const char* name : {"run.json", "run.json.tmp", "metrics.jsonl", "metrics.jsonl.tmp"}) {
    fs::remove(checkpoints() / name, ignored);
  }
  fs::remove(checkpoints(), ignored);
}

// One by one from the inside, and only what is empty: somebody else's files may be there by now.
void RunFolder::remove_made() {
  if (made_.empty()) return;
  std::error_code error;
  for (fs::path path = absolute_; fs::remove(path, error) && !error && path != made_;
       path = path.parent_path()) {
  }
}

std::string RunFolder::part(std::string_view name) {
  names_.emplace_back(name);
  return (directory_ / (names_.back() + ".part")).string();
}

void RunFolder::commit(bool keep_checkpoints) {
  for (const std::string& name : names_) {
    std::error_code error;
    fs::rename(directory_ / (name + ".part"), directory_ / name, error);
    if (error) {
      core::fail<FileError>("cannot give '", (directory_ / name).string(),
                            "' its name: ", error.message());
    }
  }
  committed_ = true;
  if (keep_checkpoints) return;
  // The results are there; what cannot be removed now is only in the way.
  std::error_code ignored;
  for (const auto& found : halfstep::io::find_checkpoints(checkpoints().string()))
    fs::remove_all(found.path, ignored);
  remove_empty_checkpoints();
}

}  // namespace capstone
