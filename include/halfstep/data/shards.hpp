// SPDX-License-Identifier: MIT
// Files of token numbers as a dataset, mapped, several as one stream: llm.c's shards and nanoGPT's
// .bin, 16 and 32 bits a token. Not for: making tokens of a text (data/text.hpp).
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/data/crops.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// How token numbers lie in a file. All are little-endian.
enum class ShardFormat {
  llm_c,  ///< a header of 256 int32: 20240520, 1, count, then 16 bits a token; 20240801, 7: 32 bits
  raw16,  ///< nothing but tokens of 16 bits, as nanoGPT's prepare.py writes
  raw32,  ///< nothing but tokens of 32 bits
};

struct ShardsOptions {
  ShardFormat format = ShardFormat::llm_c;
  int vocabulary = 0;      ///< every token is below it; 0: the largest of the files, and one
  double held_out = 0.1;   ///< share of the stream, at its end, that training never sees; [0, 1)
  std::uint64_t seed = 0;  ///< of the crops
  Order order = Order::epochs;
};

namespace detail {

inline constexpr std::size_t shard_header = 1024;
struct ShardKind {
  std::int32_t magic, version;
  int bytes;  ///< of a token
};
inline constexpr std::array<ShardKind, 2> shard_kinds{{{20240520, 1, 2}, {20240801, 7, 4}}};

/// A file mapped for reading, for as long as this lives.
class Mapping {
 public:
  /// @throws FileError if it cannot be opened or mapped, or is empty or not a regular file.
  explicit Mapping(const std::string& path) {
    const core::InputFile file("Shards", path);
    const struct stat& status = file.status();
    if (status.st_size == 0) {
      core::fail<FileError>("Shards: '", path, "' is empty. Give a file of tokens.");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address_ == MAP_FAILED) {
      core::fail<FileError>("Shards: cannot map '", path, "': ", core::detail::cause(errno));
    }
  }
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, MAP_FAILED)),
        size_(other.size_),
        device_(other.device_),
        inode_(other.inode_) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (address_ != MAP_FAILED) ::munmap(address_, size_);
  }
  [[nodiscard]] const std::byte* data() const { return static_cast<const std::byte*>(address_); }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Whether both are one file, by whatever names.
  [[nodiscard]] bool same_file(const Mapping& other) const {
    return device_ == other.device_ && inode_ == other.inode_;
  }

 private:
  void* address_;
  std::size_t size_;
  dev_t device_;
  ino_t inode_;
};

template <class N>
[[nodiscard]] N number_at(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little);
  N value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace detail

/// Token files as one stream, in the order given, split by position: see Crops. Samples are Text's:
/// the same tokens, seed and order give the same batches.
///
/// Immutable; const members may run on several threads at once. Memory: 4 bytes a held-out token;
/// the rest is the system's file cache. A file that is cut while it is mapped ends the process with
/// SIGBUS, as mappings do; one that is replaced by renaming does not.
class Shards {
 public:
  /// Reads every file once: its size, header and each token are checked, here and nowhere else.
  ///
  /// @throws OptionError if there is no file, one is named twice, or an option is out of range;
  /// FileError naming the file for a wrong magic or version, a size that is not the header's, a
  /// width that cannot hold the vocabulary; DataError naming file, token and byte offset for a
  /// token that is not in the vocabulary.
  explicit Shards(const std::vector<std::string>& paths, const ShardsOptions& options = {})
      : options_(options) {
    if (paths.empty()) core::fail<OptionError>("Shards: no file is named");
    if (!(options.held_out >= 0.0 && options.held_out < 1.0) || options.vocabulary < 0) {
      core::fail<OptionError>("Shards: held_out is ", options.held_out, " and vocabulary ",
                              options.vocabulary,
                              "; wanted a share in [0, 1) and a number of at least 0");
    }
    for (const std::string& path : paths)
      add(path);
    if (options_.vocabulary == 0) options_.vocabulary = static_cast<int>(largest_) + 1;
    const std::size_t total = parts_.back().first + parts_.back().count;
    crops_ = {"Shards", total, options.held_out, options.seed, options.order};
    held_out_.resize(total - crops_.split());
    read(crops_.split(), held_out_);
  }

  [[nodiscard]] int vocabulary() const { return options_.vocabulary; }
  [[nodiscard]] const ShardsOptions& options() const { return options_; }
  [[nodiscard]] std::size_t size() const { return crops_.total; }          ///< tokens in all
  [[nodiscard]] std::size_t train_size() const { return crops_.split(); }  ///< of them to train on
  [[nodiscard]] std::span<const std::int32_t> held_out() const& { return held_out_; }
  std::span<const std::int32_t> held_out() && = delete;
  /// Of the token numbers in order, whatever files and width they lie in.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

  /// The tokens from position `from` on, across files. @throws OptionError beyond the last.
  void read(std::size_t from, std::span<std::int32_t> to) const {
    if (from > size() || to.size() > size() - from) {
      core::fail<OptionError>("Shards::read: ", to.size(), " tokens from ", from, " of ", size());
    }
    auto part = std::upper_bound(parts_.begin(), parts_.end(), from,
                                 [](std::size_t at, const Part& p) { return at < p.first; }) -
                1;
    for (std::size_t done = 0; done < to.size(); ++part) {
      const std::size_t at = from + done - part->first;
      const std::size_t n = std::min(part->count - at, to.size() - done);
      part->each(at, n, [&](std::size_t i, std::uint32_t token) {
        to[done + i] = static_cast<std::int32_t>(token);
      });
      done += n;
    }
  }

  /// As Text's members of these names.
  void require_context(int length) const { crops_.require_context(length); }
  [[nodiscard]] std::int64_t samples_per_epoch(int length) const {
    return crops_.samples_per_epoch(length);
  }
  [[nodiscard]] std::int64_t start_of(std::int64_t sample, int length) const {
    return static_cast<std::int64_t>(crops_.start_of(sample, length));
  }
  void batch(const MicroBatch& micro, int length, Batch& out) const {
    crops_.batch(micro, length, out,
                 [this](std::size_t from, std::span<std::int32_t> to) { read(from, to); });
  }
  [[nodiscard]] Batch batch(const MicroBatch& micro, int length) const {
    Batch out;
    batch(micro, length, out);
    return out;
  }
  [[nodiscard]] std::vector<Window> windows(int length) const& {
    require_context(length);
    return windows_of(held_out_, length);
  }
  std::vector<Window> windows(int length) && = delete;

 private:
  /// One file.
  struct Part {
    detail::Mapping file;
    std::size_t offset = 0;  ///< of the first token, in bytes
    int bytes = 2;           ///< of a token
    std::size_t first = 0;   ///< position of the first token in the stream
    std::size_t count = 0;

    template <class Visit>
    void each(std::size_t from, std::size_t n, const Visit& visit) const {
      const std::byte* const at = file.data() + offset + from * static_cast<std::size_t>(bytes);
      if (bytes == 2) {
        for (std::size_t i = 0; i < n; ++i) {
          visit(i, std::uint32_t{detail::number_at<std::uint16_t>(at + 2 * i)});
        }
      } else {
        for (std::size_t i = 0; i < n; ++i)
          visit(i, detail::number_at<std::uint32_t>(at + 4 * i));
      }
    }
  };

  void add(const std::string& path) {
    Part part{detail::Mapping(path)};
    for (const Part& other : parts_) {
      if (!part.file.same_file(other.file)) continue;
      core::fail<OptionError>("Shards: '", path, "' is named twice, perhaps by another path");
    }
    const std::size_t size = part.file.size();
    std::optional<std::size_t> said;  // by the header
    if (options_.format == ShardFormat::llm_c) {
      if (size < detail::shard_header) {
        core::fail<FileError>("Shards: '", path, "' has ", size, " bytes, less than a header of ",
                              detail::shard_header, ". Is it whole? nanoGPT's files are raw16.");
      }
      const auto field = [&](std::size_t i) {
        return detail::number_at<std::int32_t>(part.file.data() + 4 * i);
      };
      const auto kind = std::find_if(detail::shard_kinds.begin(), detail::shard_kinds.end(),
                                     [&](const auto& k) { return k.magic == field(0); });
      if (kind == detail::shard_kinds.end() || kind->version != field(1) || field(2) < 0) {
        core::fail<FileError>("Shards: '", path, "' begins with magic ", field(0), ", version ",
                              field(1), ", count ", field(2),
                              "; wanted 20240520, 1 (16 bits a token) or 20240801, 7 (32 bits). Is "
                              "it a shard of llm.c? nanoGPT's files have no header: raw16.");
      }
      part.bytes = kind->bytes;
      part.offset = detail::shard_header;
      said = static_cast<std::size_t>(field(2));
    } else if (options_.format == ShardFormat::raw32) {
      part.bytes = 4;
    }
    const auto width = static_cast<std::size_t>(part.bytes);
    part.count = (size - part.offset) / width;
    if ((size - part.offset) % width != 0 || part.count == 0 ||
        part.count != said.value_or(part.count)) {
      core::fail<FileError>("Shards: '", path, "' has ", size - part.offset, " bytes of tokens",
                            said ? core::text(", but its header says ", *said, " tokens") : "",
                            "; wanted ", said ? core::text(*said * width) : "a multiple",
                            said ? " bytes" : core::text(" of ", width, " and some"),
                            ". Is the file whole, and of this width?");
    }
    if (part.bytes == 2 && options_.vocabulary > 65536) {
      core::fail<FileError>("Shards: '", path,
                            "' has 16 bits a token, which cannot hold a vocabulary of ",
                            options_.vocabulary, ". Write it with 32 bits.");
    }
    const auto limit = options_.vocabulary > 0
                           ? static_cast<std::uint32_t>(options_.vocabulary)
                           : std::uint32_t{std::numeric_limits<std::int32_t>::max()};
    part.each(0, part.count, [&](std::size_t i, std::uint32_t token) {
      if (token >= limit) {
        core::fail<DataError>("Shards: '", path, "', token ", i, " at byte ",
                              part.offset + i * width, " is ", token, ", but the vocabulary is ",
                              limit,
                              ". Were the tokens made for another one, or with another width?");
      }
      largest_ = std::max(largest_, token);
      hash_ = (hash_ ^ token) * 0x100000001B3U;
    });
    part.first = parts_.empty() ? 0 : parts_.back().first + parts_.back().count;
    parts_.push_back(std::move(part));
  }

  ShardsOptions options_;
  std::vector<Part> parts_;
  Crops crops_;
  std::vector<std::int32_t> held_out_;
  std::uint32_t largest_ = 0;
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

/// Writes one file that Shards reads: of llm_c with `bits` 16 or 32 a token, else as the format
/// says and `bits` has to agree. Whole or not at all.
/// @throws OptionError for other bits; DataError naming the token and its place if it is negative
/// or does not fit them, or there is no token, or 2^31 and more for llm.c's header; FileError if it
/// cannot be written.
inline void write_shard(const std::string& path, std::span<const std::int32_t> tokens,
                        ShardFormat format = ShardFormat::llm_c, int bits = 16) {
  if ((bits != 16 && bits != 32) || (format == ShardFormat::raw16 && bits != 16) ||
      (format == ShardFormat::raw32 && bits != 32)) {
    core::fail<OptionError>("write_shard: ", bits,
                            " bits a token; wanted 16 or 32, those of the format");
  }
  if (tokens.empty()) {
    core::fail<DataError>("write_shard: no token for '", path, "', and Shards reads no empty file");
  }
  if (format == ShardFormat::llm_c && tokens.size() > 0x7FFF'FFFFU) {
    core::fail<DataError>("write_shard: ", tokens.size(),
                          " tokens, but the header counts up to 2^31 - 1. Write several files.");
  }
  const auto width = static_cast<std::size_t>(bits / 8);
  std::string bytes(format == ShardFormat::llm_c ? detail::shard_header : 0, '\0');
  if (format == ShardFormat::llm_c) {
    const detail::ShardKind& kind = detail::shard_kinds[bits == 16 ? 0 : 1];
    const std::int32_t fields[]{kind.magic, kind.version, static_cast<std::int32_t>(tokens.size())};
    std::memcpy(bytes.data(), fields, sizeof fields);
  }
  bytes.reserve(bytes.size() + width * tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || (bits == 16 && tokens[i] > 0xFFFF)) {
      core::fail<DataError>(
          "write_shard: token ", i, " is ", tokens[i], ", which ", bits,
          " bits do not hold. Write 32 bits, or look for the tokenizer's mistake.");
    }
    const auto token = static_cast<std::uint32_t>(tokens[i]);
    char raw[4];
    std::memcpy(raw, &token, sizeof raw);
    bytes.append(raw, width);
  }
  core::write_file_atomically(path, bytes);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
