// SPDX-License-Identifier: MIT
// Named tensors in one file that Python's safetensors reads, and back: strict on the way in, whole
// or not there on the way out. Not for: which tensors a model has (visit_state), or several files.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/io/byte_hash.hpp>
#include <halfstep/io/detail/safetensors_header.hpp>
#include <halfstep/numeric/dtype.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

/// A tensor as it lies in a file: elements in C order, little-endian. `bytes` is a view.
struct TensorEntry {
  std::string name;
  numeric::DType dtype = numeric::DType::f32;
  std::vector<std::int64_t> shape;   ///< empty for a scalar; any of it may be 0
  std::span<const std::byte> bytes;  ///< product(shape) x size_of(dtype); any alignment
};

/// Free text about the file, in order of its keys.
using Metadata = std::map<std::string, std::string>;

namespace detail {

/// What the format knows, in its own order, which is by alignment: files are sorted by it,
/// descending. Those without a DType here are refused by name.
struct FormatRow {
  std::string_view name;
  std::uint64_t bits;
};
inline constexpr std::array<FormatRow, 22> safetensors_formats{
    {{"BOOL", 8},        {"F4", 4},    {"F6_E2M3", 6},     {"F6_E3M2", 6},     {"U8", 8},
     {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},   {"F8_E8M0", 8},
     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},  {"U16", 16},        {"F16", 16},
     {"BF16", 16},       {"I32", 32},  {"U32", 32},        {"F32", 32},        {"C64", 64},
     {"F64", 64},        {"I64", 64},  {"U64", 64}}};

[[nodiscard]] constexpr std::size_t format_rank(std::string_view name) {
  std::size_t rank = 0;
  while (rank < safetensors_formats.size() && safetensors_formats[rank].name != name) ++rank;
  return rank;
}

/// The header may not be longer; both ways.
inline constexpr std::uint64_t max_header = 100'000'000;

/// Bits of product(shape) elements, or nothing if it does not fit: not even by a zero that comes
/// later, as the reference multiplies, nor by a product that wraps to one.
[[nodiscard]] inline std::optional<std::uint64_t> checked_bits(std::span<const std::uint64_t> shape,
                                                               std::uint64_t bits) {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  if (__builtin_mul_overflow(product, bits, &product)) return std::nullopt;
  return product;
}

inline std::string quoted(const std::string& text, std::string_view path) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    core::fail<FileError>("write_safetensors: '", path, "': a name or metadata is not UTF-8 ('",
                          text, "')");
  }
}

inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (const std::int64_t extent : shape) out += core::text(out.size() > 1 ? "," : "", extent);
  return out + "]";
}

}  // namespace detail

/// The length and header of a file of these entries, which are put in the file's order: by format,
/// the widest first (so that every tensor is aligned to its elements), then by name. Metadata comes
/// first, and spaces pad to a multiple of 8.
///
/// @throws FileError naming `path` for a name twice, "__metadata__" as a name, a name that is not
/// UTF-8, bytes that do not fit the shape, or a header beyond 100 MB.
[[nodiscard]] inline std::string safetensors_header(std::vector<TensorEntry>& entries,
                                                    const Metadata& metadata = {},
                                                    std::string_view path = "(memory)") {
  const auto bad = [&](const auto&... why) {
    core::fail<FileError>("write_safetensors: '", path, "': ", why...);
  };
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    const std::size_t rank_a = detail::format_rank(numeric::to_string(a.dtype));
    const std::size_t rank_b = detail::format_rank(numeric::to_string(b.dtype));
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  std::string json = "{";
  std::set<std::string_view> names{"__metadata__"};
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata) {
      json += core::text(json.size() == 1 ? "\"__metadata__\":{" : ",", detail::quoted(key, path),
                         ":", detail::quoted(value, path));
    }
    json += "}";
  }
  std::uint64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      bad("the name '", entry.name, "' is there twice, or is the format's own");
    }
    std::vector<std::uint64_t> extents;
    for (const std::int64_t extent : entry.shape) {
      if (extent < 0) bad("'", entry.name, "' has a negative extent, ", extent);
      extents.push_back(static_cast<std::uint64_t>(extent));
    }
    const auto bits = detail::checked_bits(extents, 8 * numeric::size_of(entry.dtype));
    if (!bits || *bits / 8 != entry.bytes.size()) {
      bad("'", entry.name, "' has ", entry.bytes.size(), " bytes, but its shape ",
          detail::shape_text(entry.shape), " of ", numeric::to_string(entry.dtype),
          " wants another number");
    }
    const std::uint64_t end = offset + entry.bytes.size();
    json += core::text(json.size() == 1 ? "" : ",", detail::quoted(entry.name, path),
                       ":{\"dtype\":\"", numeric::to_string(entry.dtype), "\",\"shape\":",
                       detail::shape_text(entry.shape), ",\"data_offsets\":[", offset, ",", end,
                       "]}");
    offset = end;
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > detail::max_header) {
    bad("the header has ", json.size(), " bytes, but the format allows ", detail::max_header);
  }
  std::string out;
  for (int byte = 0; byte < 8; ++byte) {
    out += static_cast<char>(json.size() >> (8 * byte) & 0xFF);
  }
  return out + json;
}

/// Writes a safetensors file by core::AtomicFile: on any failure the old file is as it was. Returns
/// its size and hash. The same entries and metadata give the same bytes, in whatever order they come.
/// Memory: the header; tensors go from their bytes to the file.
/// @throws FileError as safetensors_header, or with the system's cause.
/// Source: github.com/huggingface/safetensors, format of version 0.3 on; tensor order as there.
inline ByteHash write_safetensors(const std::string& path, std::vector<TensorEntry> entries,
                                  const Metadata& metadata = {}) {
  const std::string header = safetensors_header(entries, metadata, path);
  core::AtomicFile file(path);
  ByteHash hash;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes.data(), bytes.size());
    hash.add(bytes);
  };
  write(std::as_bytes(std::span(header)));
  for (const TensorEntry& entry : entries) write(entry.bytes);
  file.commit();
  return hash;
}

/// A safetensors file in memory, checked whole. Owns the bytes that its entries view; movable.
class SafeTensors {
 public:
  /// Checks and keeps the bytes of a file.
  ///
  /// @throws FileError naming `source` unless: the length of the header is there, at most 100 MB
  /// and inside the file; the header is one JSON object in UTF-8 with nothing after it but
  /// whitespace; no key occurs twice in an object; __metadata__ maps strings to strings; each entry
  /// has dtype, shape and data_offsets, the numbers unsigned integers; the tensors cover the data
  /// exactly, with no gap, overlap or tail, each of the size of its shape. A format that is valid
  /// but has no DType here (8-bit floats, BOOL …) is refused as unsupported.
  [[nodiscard]] static SafeTensors parse(std::string bytes, std::string_view source = "(memory)") {
    SafeTensors result;
    result.source_ = source;
    result.bytes_ = std::make_unique<const std::string>(std::move(bytes));
    result.check();
    return result;
  }

  SafeTensors(SafeTensors&&) = default;
  SafeTensors& operator=(SafeTensors&&) = default;
  SafeTensors(const SafeTensors&) = delete;  // a copy's entries would view the original
  SafeTensors& operator=(const SafeTensors&) = delete;

  /// In order of the file's data.
  [[nodiscard]] std::span<const TensorEntry> entries() const { return entries_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }

  /// The tensor of that name, or null.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &entries_[at->second];
  }
  /// @throws FileError if there is no tensor of that name.
  [[nodiscard]] const TensorEntry& at(std::string_view name) const {
    if (const TensorEntry* entry = find(name)) return *entry;
    core::fail<FileError>("SafeTensors: '", source_, "' has no tensor '", name, "' among its ",
                          entries_.size(), ". Was it written by another model?");
  }

  /// Copies a tensor's elements, which may lie misaligned in the file, into out.
  /// @throws FileError if there is none of that name, or its format is not T's; ShapeError if it
  /// has another number of elements than out. The shape itself is the caller's to compare.
  template <numeric::stored T>
  void copy_to(std::string_view name, std::span<T> out) const {
    const TensorEntry& entry = at(name);
    if (entry.dtype != numeric::dtype_of<T>) {
      core::fail<FileError>("SafeTensors: '", source_, "': '", name, "' holds ",
                            numeric::to_string(entry.dtype), ", but ",
                            numeric::to_string(numeric::dtype_of<T>),
                            " was wanted. Was the run's --format another?");
    }
    if (entry.bytes.size() != out.size_bytes()) {
      core::fail<ShapeError>("SafeTensors: '", source_, "': '", name, "' has shape ",
                             detail::shape_text(entry.shape), ", but ", out.size(),
                             " elements were wanted. Does the model have other sizes?");
    }
    if (!out.empty()) std::memcpy(out.data(), entry.bytes.data(), entry.bytes.size());
  }

 private:
  SafeTensors() = default;

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    core::fail<FileError>("read_safetensors: '", source_, "': ", parts...);
  }

  void check() {
    const std::string_view bytes = *bytes_;
    if (bytes.size() < 8) {
      bad("has ", bytes.size(), " bytes, but even an empty file of the format has 10. Was it cut?");
    }
    std::uint64_t n = 0;
    for (std::size_t i = 8; i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[i]);
    if (n > detail::max_header) {
      bad("its first 8 bytes say that the header has ", n, " bytes; at most ", detail::max_header,
          " are allowed. Is it a safetensors file?");
    }
    if (n > bytes.size() - 8) {
      bad("the header should have ", n, " bytes, but ", bytes.size() - 8,
          " are there. Was it cut?");
    }
    const std::string_view header = bytes.substr(8, static_cast<std::size_t>(n));
    const std::string_view data = bytes.substr(8 + static_cast<std::size_t>(n));
    // nlohmann takes a NUL for the end and skips a byte order mark; JSON allows neither.
    if (header.find('\0') != std::string_view::npos || header.starts_with("\xEF\xBB\xBF")) {
      bad("the header has a NUL byte or a byte order mark");
    }
    detail::SafetensorsHeader events;
    if (!nlohmann::json::sax_parse(header.begin(), header.end(), &events)) bad(events.error);
    metadata_ = std::move(events.metadata);
    std::sort(events.entries.begin(), events.entries.end(),
              [](const detail::RawEntry& a, const detail::RawEntry& b) {
                return a.offsets != b.offsets ? a.offsets < b.offsets : a.name < b.name;
              });
    std::uint64_t end = 0;
    for (detail::RawEntry& raw : events.entries) {
      end = check_entry(raw, end, data.size());
      TensorEntry entry{std::move(raw.name), numeric::parse_dtype(raw.dtype), {}, {}};
      for (const std::uint64_t extent : raw.shape) {
        entry.shape.push_back(static_cast<std::int64_t>(extent));
      }
      entry.bytes = std::as_bytes(std::span(data)).subspan(
          static_cast<std::size_t>(raw.offsets[0]),
          static_cast<std::size_t>(end - raw.offsets[0]));
      by_name_[entry.name] = entries_.size();
      entries_.push_back(std::move(entry));
    }
    if (end != data.size()) {
      bad("the tensors end at byte ", end, " of the data, which has ", data.size(),
          ". Was something appended?");
    }
  }

  /// The end of an entry that begins where the one before it ended.
  [[nodiscard]] std::uint64_t check_entry(const detail::RawEntry& raw, std::uint64_t begin,
                                          std::uint64_t data_size) const {
    const auto bad_entry = [&](const auto&... why) { bad("'", raw.name, "' ", why...); };
    const std::size_t rank = detail::format_rank(raw.dtype);
    if (rank == detail::safetensors_formats.size()) bad_entry("has the unknown dtype ", raw.dtype);
    if (raw.offsets[0] != begin || raw.offsets[1] < begin) {
      bad_entry("lies at bytes ", raw.offsets[0], " to ", raw.offsets[1],
                " of the data, but must begin at ", begin,
                ": tensors may not overlap, leave gaps or end before they begin");
    }
    if (raw.offsets[1] > data_size) {
      bad_entry("ends at byte ", raw.offsets[1], " of the data, which has ", data_size,
                ". Was the file cut?");
    }
    for (const std::uint64_t extent : raw.shape) {
      if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        bad_entry("has an extent of ", extent, ", beyond 2^63 - 1");
      }
    }
    const auto bits = detail::checked_bits(raw.shape, detail::safetensors_formats[rank].bits);
    if (!bits) bad_entry("has a shape whose size overflows 64 bits");
    if (*bits % 8 != 0) bad_entry("of ", raw.dtype, " does not end at a whole byte");
    if (*bits / 8 != raw.offsets[1] - raw.offsets[0]) {
      bad_entry("has ", raw.offsets[1] - raw.offsets[0], " bytes, but its shape wants ", *bits / 8);
    }
    if (!numeric::find_dtype(raw.dtype)) {
      bad_entry("has dtype ", raw.dtype, ", which is valid but unsupported here");
    }
    return raw.offsets[1];
  }

  std::string source_;
  std::unique_ptr<const std::string> bytes_;  // a short string itself would move with the object
  std::vector<TensorEntry> entries_;
  Metadata metadata_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

/// Reads and checks a whole file; see SafeTensors::parse. Memory: the file, once.
/// @throws FileError if it cannot be read or breaks a rule of the format.
[[nodiscard]] inline SafeTensors read_safetensors(const std::string& path) {
  return SafeTensors::parse(core::read_whole_file(path), path);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
