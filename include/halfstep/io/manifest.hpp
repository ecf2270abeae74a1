// SPDX-License-Identifier: MIT
// manifest.json of a checkpoint: what run it is of and where in it, the scalars of the state, size
// and hash of each file beside it, and a seal over all of that. Not for: tensors (safetensors.hpp).
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/io/byte_hash.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

/// The value of "version" in a manifest; another one when a reader of this one could not read it.
inline constexpr int checkpoint_version = 1;

/// What a checkpoint says of itself. The first four members say which run it belongs to.
struct Manifest {
  std::uint64_t seed = 0;
  std::uint64_t data_hash = 0;  ///< of what is trained on; data::Text::hash, for instance
  std::string config = "{}";    ///< a JSON object: the options that the run was started with
  std::string library = HALFSTEP_VERSION;  ///< which wrote it; not compared

  std::int64_t iteration = 0;      ///< windows done
  std::int64_t step = 0;           ///< updates applied
  std::optional<double> metric{};  ///< by which checkpoints are compared; smaller is better

  std::map<std::string, std::int64_t> integers{};  ///< scalars of the state, by name
  std::map<std::string, double> reals{};
  struct File {
    std::uint64_t bytes = 0, hash = 0;  ///< as ByteHash counts them
  };
  std::map<std::string, File> files{};  ///< every other file of the checkpoint
};

namespace detail {

[[nodiscard]] inline std::string hash_text(std::uint64_t hash) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i)
    text[15 - i] = "0123456789abcdef"[hash >> (4 * i) & 15U];
  return text;
}

[[nodiscard]] inline std::uint64_t hash_of(const nlohmann::ordered_json& json) {
  const auto& text = json.get_ref<const std::string&>();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc{} || end != text.data() + 16) {
    core::fail<FileError>("'", text, "' is no hash");
  }
  return value;
}

// JSON knows no NaN and no infinity; every other double reads back from the text that is written.
[[nodiscard]] inline nlohmann::ordered_json real_json(double value) {
  if (std::isfinite(value)) return value;
  return core::text(value);
}
[[nodiscard]] inline double real_of(const nlohmann::ordered_json& json) {
  if (json.is_number()) return json.get<double>();
  const auto& text = json.get_ref<const std::string&>();
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    core::fail<FileError>("'", text, "' is no number");
  }
  return value;
}

// nlohmann would cast a real that no integer can hold.
template <class Integer>
[[nodiscard]] Integer integer_of(const nlohmann::ordered_json& json) {
  const bool fits = std::is_signed_v<Integer>
                        ? json.is_number_integer() &&
                              (!json.is_number_unsigned() || json.get<std::uint64_t>() >> 63 == 0)
                        : json.is_number_unsigned();
  if (!fits) core::fail<FileError>("has ", json.dump(), " where a whole number of 64 bits belongs");
  return json.get<Integer>();
}

inline constexpr std::string_view seal_begin = ",\n  \"seal\": \"";
inline constexpr std::string_view seal_end = "\"\n}\n";

}  // namespace detail

/// The file's text. Equal manifests give equal texts.
/// @throws OptionError if config is no JSON object.
[[nodiscard]] inline std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = "halfstep checkpoint";
  json["version"] = checkpoint_version;
  json["library"] = manifest.library;
  json["iteration"] = manifest.iteration;
  json["step"] = manifest.step;
  json["metric"] = manifest.metric ? detail::real_json(*manifest.metric) : nullptr;
  json["seed"] = manifest.seed;
  json["data_hash"] = detail::hash_text(manifest.data_hash);
  auto config = nlohmann::ordered_json::parse(manifest.config, nullptr, false);
  if (!config.is_object()) {
    core::fail<OptionError>("checkpoint: the run's config is '", manifest.config,
                            "'; wanted a JSON object, such as {\"layers\": 4}");
  }
  json["config"] = std::move(config);
  auto& integers = json["integers"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : manifest.integers)
    integers[name] = value;
  auto& reals = json["reals"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : manifest.reals)
    reals[name] = detail::real_json(value);
  auto& files = json["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"hash", detail::hash_text(file.hash)}};
  }
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // the seal comes before the last brace
  ByteHash seal;
  seal.add(std::string_view(text));
  return core::text(text, detail::seal_begin, detail::hash_text(seal.value()), detail::seal_end);
}

/// @throws FileError naming `source` unless it is a manifest of this version, whole and unchanged.
[[nodiscard]] inline Manifest parse_manifest(std::string_view text, std::string_view source) {
  const auto bad = [&](const auto&... why) {
    core::fail<FileError>("checkpoint: '", source, "' ", why...);
  };
  const std::size_t tail = detail::seal_begin.size() + 16 + detail::seal_end.size();
  if (text.size() < tail || !text.ends_with(detail::seal_end) ||
      !text.substr(text.size() - tail).starts_with(detail::seal_begin)) {
    bad("does not end with its seal. Was it cut?");
  }
  ByteHash seal;
  seal.add(text.substr(0, text.size() - tail));
  if (text.substr(text.size() - tail + detail::seal_begin.size(), 16) !=
      detail::hash_text(seal.value())) {
    bad("is not what was written: its seal is another. Was it edited, or is the disk damaged?");
  }
  Manifest manifest;
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    const auto version = detail::integer_of<std::int64_t>(json.at("version"));
    if (version != checkpoint_version) {
      core::fail<FileError>("is of version ", version, ", and ", checkpoint_version,
                            " can be read. Was it written by a newer halfstep?");
    }
    manifest.library = json.at("library").get<std::string>();
    manifest.iteration = detail::integer_of<std::int64_t>(json.at("iteration"));
    manifest.step = detail::integer_of<std::int64_t>(json.at("step"));
    if (!json.at("metric").is_null()) manifest.metric = detail::real_of(json.at("metric"));
    manifest.seed = detail::integer_of<std::uint64_t>(json.at("seed"));
    manifest.data_hash = detail::hash_of(json.at("data_hash"));
    manifest.config = json.at("config").dump();
    for (const auto& [name, value] : json.at("integers").items()) {
      manifest.integers[name] = detail::integer_of<std::int64_t>(value);
    }
    for (const auto& [name, value] : json.at("reals").items()) {
      manifest.reals[name] = detail::real_of(value);
    }
    for (const auto& [name, file] : json.at("files").items()) {
      manifest.files[name] = {detail::integer_of<std::uint64_t>(file.at("bytes")),
                              detail::hash_of(file.at("hash"))};
    }
  } catch (const nlohmann::json::exception& error) {
    bad("is sealed, but not a manifest: ", error.what());
  } catch (const FileError& error) {
    bad(error.what());
  }
  return manifest;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
