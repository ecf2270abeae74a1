// SPDX-License-Identifier: MIT
// One checkpoint: a directory with the state of a run at one moment, whole or not there, and back.
// Not for: which of several to keep or to continue from (io/run.hpp), or activation checkpointing
// (autograd/checkpoint.hpp).
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/io/byte_hash.hpp>
#include <halfstep/io/manifest.hpp>
#include <halfstep/io/safetensors.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

/// The sizes of a shape, as a file has them.
[[nodiscard]] inline std::vector<std::int64_t> sizes_of(const Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (int d = 0; d < shape.rank(); ++d)
    sizes.push_back(shape[d]);
  return sizes;
}

/// The visitor that gathers tensors for a file, and scalars for a manifest. The tensors must stay
/// until they are written.
/// @throws StateError for a tensor that is here in part only, or a scalar's name that is there
/// twice.
class StateWriter {
 public:
  void tensor(const tensor::StateTensor& t) {
    const auto whole = static_cast<std::uint64_t>(t.shape.elements()) * numeric::size_of(t.dtype);
    if (t.first != 0 || t.bytes.size() != whole) {
      core::fail<StateError>("checkpoint: '", t.name, "' is here from element ", t.first, ", ",
                             t.bytes.size(), " of its ", whole,
                             " bytes. A file holds whole tensors: gather the shards first.");
    }
    entries_.push_back({std::string(t.name), t.dtype, sizes_of(t.shape), t.bytes});
  }
  void scalar(std::string_view name, std::int64_t& value) { add(integers_, name, value); }
  void scalar(std::string_view name, double& value) { add(reals_, name, value); }

  [[nodiscard]] const std::vector<TensorEntry>& entries() const { return entries_; }
  [[nodiscard]] const std::map<std::string, std::int64_t>& integers() const { return integers_; }
  [[nodiscard]] const std::map<std::string, double>& reals() const { return reals_; }

 private:
  template <class V>
  void add(std::map<std::string, V>& scalars, std::string_view name, V value) {
    if (integers_.count(std::string(name)) + reals_.count(std::string(name)) > 0) {
      core::fail<StateError>("checkpoint: the scalar '", name,
                             "' is in the state twice. Was one part given twice?");
    }
    scalars[std::string(name)] = value;
  }

  std::vector<TensorEntry> entries_;
  std::map<std::string, std::int64_t> integers_;
  std::map<std::string, double> reals_;
};

/// The visitor that fills tensors from a file, each whole or the range of it that is here. With
/// `Mode::compare` it only looks whether it could.
/// @throws FileError for a tensor that is missing or of another shape or format; nothing is written
/// to that one.
class TensorReader {
 public:
  enum class Mode { compare, fill };
  TensorReader(const SafeTensors& file, std::string_view source, Mode mode = Mode::fill)
      : file_(file), source_(source), mode_(mode) {}

  void tensor(const tensor::StateTensor& t) {
    const TensorEntry& entry = file_.at(t.name);
    if (entry.dtype != t.dtype || entry.shape != sizes_of(t.shape)) {
      core::fail<FileError>("'", source_, "': '", t.name, "' is ", numeric::to_string(entry.dtype),
                            " ", detail::shape_text(entry.shape), ", but here it is ",
                            numeric::to_string(t.dtype), " ", detail::shape_text(sizes_of(t.shape)),
                            ". Is the file of a model with other sizes or another format?");
    }
    ++read_;
    const auto first = static_cast<std::size_t>(t.first) * numeric::size_of(t.dtype);
    if (first > entry.bytes.size() || t.bytes.size() > entry.bytes.size() - first) {
      core::fail<StateError>("'", source_, "': the range of '", t.name, "' from element ", t.first,
                             " on, ", t.bytes.size(), " bytes, is not within its ",
                             entry.bytes.size());
    }
    if (mode_ == Mode::fill && !t.bytes.empty()) {
      std::memcpy(t.bytes.data(), entry.bytes.data() + first, t.bytes.size());
    }
  }
  void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
  void scalar(std::string_view /*name*/, double& /*value*/) {}

  /// After the visit. @throws FileError if the file holds more than was asked for.
  void finish() const {
    if (read_ == file_.entries().size()) return;
    core::fail<FileError>("'", source_, "' holds ", file_.entries().size(), " tensors, of which ",
                          read_, " are wanted here. Was it written with other options?");
  }

 private:
  const SafeTensors& file_;
  std::string source_;
  Mode mode_;
  std::size_t read_ = 0;
};

namespace detail {

/// The scalars of a manifest, and the tensors by another reader.
class StateReader {
 public:
  StateReader(const Manifest& manifest, std::string_view source, TensorReader& tensors,
              TensorReader::Mode mode)
      : manifest_(manifest), source_(source), tensors_(tensors), mode_(mode) {}
  void tensor(const tensor::StateTensor& t) { tensors_.tensor(t); }
  void scalar(std::string_view name, std::int64_t& value) { take(manifest_.integers, name, value); }
  void scalar(std::string_view name, double& value) { take(manifest_.reals, name, value); }
  [[nodiscard]] std::size_t scalars() const { return scalars_; }

 private:
  template <class V>
  void take(const std::map<std::string, V>& from, std::string_view name, V& value) {
    const auto at = from.find(std::string(name));
    if (at == from.end()) {
      core::fail<FileError>("'", source_, "' has no '", name,
                            "'. Was it written without that part of the state?");
    }
    ++scalars_;
    if (mode_ == TensorReader::Mode::fill) value = at->second;
  }

  const Manifest& manifest_;
  std::string_view source_;
  TensorReader& tensors_;
  TensorReader::Mode mode_;
  std::size_t scalars_ = 0;
};

inline constexpr const char* weights_file = "weights.safetensors";
inline constexpr const char* state_file = "state.safetensors";
inline constexpr const char* manifest_file = "manifest.json";

[[nodiscard]] inline Manifest::File sealed(const ByteHash& hash) {
  return {hash.size(), hash.value()};
}

inline void visit_all(auto& /*visitor*/) {}
template <class First, class... Rest>
void visit_all(auto& visitor, First& first, Rest&... rest) {
  first.visit_state(visitor);
  visit_all(visitor, rest...);
}

}  // namespace detail

/// Writes the state of `weights` and `rest` as the directory `path`: weights.safetensors has the
/// tensors of the first, usually the store of parameters, state.safetensors those of all others,
/// manifest.json the scalars and what `manifest` says.
///
/// Everything goes to path + ".tmp" first and is synced, the manifest last; then that gets the
/// name. So at every moment the directory of this name is the one that was there before or this
/// one, whole, a power cut included. A writer that is killed leaves at most the .tmp, which the
/// next overwrites.
///
/// Cost: one write of the state; no copy of it. Same state, same bytes.
/// @throws FileError with the system's cause; the .tmp is removed then. StateError as StateWriter.
template <class Weights, class... Rest>
void write_checkpoint(const std::string& path, Manifest manifest, Weights& weights, Rest&... rest) {
  StateWriter state;
  weights.visit_state(state);
  const auto first = static_cast<std::ptrdiff_t>(state.entries().size());
  detail::visit_all(state, rest...);
  manifest.integers = state.integers();
  manifest.reals = state.reals();
  const auto& entries = state.entries();

  namespace fs = std::filesystem;
  const std::string temporary = path + ".tmp";
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  if (::mkdir(temporary.c_str(), 0777) != 0) {
    core::fail<FileError>("checkpoint: cannot make '", temporary,
                          "': ", core::detail::cause(errno));
  }
  try {
    const auto in = [&](const char* name) { return core::text(temporary, "/", name); };
    manifest.files[detail::weights_file] = detail::sealed(
        write_safetensors(in(detail::weights_file), {entries.begin(), entries.begin() + first}));
    manifest.files[detail::state_file] = detail::sealed(
        write_safetensors(in(detail::state_file), {entries.begin() + first, entries.end()}));
    core::write_file_atomically(in(detail::manifest_file), manifest_text(manifest));
    if (core::move_directory(temporary, path)) fs::remove_all(temporary, ignored);
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

/// A checkpoint that was found whole: read back, and held in memory until it is destroyed.
class Checkpoint {
 public:
  /// Reads all of it and compares each file with the manifest.
  /// @throws FileError naming the file and what is wrong with it.
  [[nodiscard]] static Checkpoint open(const std::string& path) {
    Manifest manifest = read_manifest(path);
    const auto file = [&](const char* name) {
      const std::string source = core::text(path, "/", name);
      std::string bytes = core::read_whole_file(source);
      ByteHash hash;
      hash.add(std::string_view(bytes));
      const Manifest::File& wanted = manifest.files.at(name);
      if (hash.size() != wanted.bytes || hash.value() != wanted.hash) {
        core::fail<FileError>("checkpoint: '", source, "' is not what was written: ", hash.size(),
                              " bytes with hash ", detail::hash_text(hash.value()), ", but the ",
                              "manifest says ", wanted.bytes, " and ",
                              detail::hash_text(wanted.hash),
                              ". Was it cut, or is the disk damaged?");
      }
      return SafeTensors::parse(std::move(bytes), source);
    };
    SafeTensors weights = file(detail::weights_file);
    SafeTensors state = file(detail::state_file);
    return Checkpoint(path, std::move(manifest), std::move(weights), std::move(state));
  }

  /// The manifest alone, compared with the sizes of the files beside it: what is quickly known.
  /// @throws FileError if a file is missing or has another size, or the manifest is not whole.
  [[nodiscard]] static Manifest read_manifest(const std::string& path) {
    const std::string source = core::text(path, "/", detail::manifest_file);
    Manifest manifest = parse_manifest(core::read_whole_file(source), source);
    for (const char* name : {detail::weights_file, detail::state_file}) {
      const auto at = manifest.files.find(name);
      std::error_code error;
      const auto size = std::filesystem::file_size(core::text(path, "/", name), error);
      if (at == manifest.files.end() || error || size != at->second.bytes) {
        core::fail<FileError>("checkpoint: '", path, "/", name, "' is missing or was cut");
      }
    }
    return manifest;
  }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const SafeTensors& weights() const { return weights_; }

  /// Fills the parts in the order in which they were saved. First everything is compared, so that a
  /// checkpoint that does not fit changes nothing.
  /// @throws FileError for a tensor or scalar that is missing, of another shape or format, or
  /// wanted by no part.
  template <class Weights, class... Rest>
  void restore(Weights& weights, Rest&... rest) const {
    for (const auto mode : {TensorReader::Mode::compare, TensorReader::Mode::fill}) {
      TensorReader first(weights_, core::text(path_, "/", detail::weights_file), mode);
      TensorReader others(state_, core::text(path_, "/", detail::state_file), mode);
      const std::string source = core::text(path_, "/", detail::manifest_file);
      detail::StateReader a(manifest_, source, first, mode), b(manifest_, source, others, mode);
      weights.visit_state(a);
      detail::visit_all(b, rest...);
      first.finish();
      others.finish();
      const std::size_t there = manifest_.integers.size() + manifest_.reals.size();
      if (a.scalars() + b.scalars() != there) {
        core::fail<FileError>("'", source, "' holds ", there, " scalars, of which ",
                              a.scalars() + b.scalars(),
                              " are wanted here. Was it written with more parts?");
      }
    }
  }

 private:
  Checkpoint(std::string path, Manifest manifest, SafeTensors weights, SafeTensors state)
      : path_(std::move(path)),
        manifest_(std::move(manifest)),
        weights_(std::move(weights)),
        state_(std::move(state)) {}

  std::string path_;
  Manifest manifest_;
  SafeTensors weights_, state_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
