// SPDX-License-Identifier: MIT
// Do Python's safetensors and we read each other's files, and refuse the same ones? The golden file
// was made by tensor_files.py and is compared without Python too.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/file.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/safetensors.hpp>

#include "require.hpp"

namespace {

namespace fs = std::filesystem;
using namespace halfstep;
using numeric::DType;

const std::string golden = HALFSTEP_SOURCE_DIR "/tests/golden/python.safetensors";

/// What tensor_files.py writes, by its formula.
class Tensors {
 public:
  Tensors() {
    storage_.reserve(64);
    for (const DType dtype :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i8, DType::i16, DType::i32,
          DType::i64, DType::u8, DType::u16, DType::u32, DType::u64}) {
      for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {3}, {2, 0}, {1, 2, 3}}) {
        std::size_t count = numeric::size_of(dtype);
        for (const auto extent : shape)
          count *= static_cast<std::size_t>(extent);
        std::string bytes(count, '\0');
        for (std::size_t b = 0; b < count; ++b)
          bytes[b] = static_cast<char>((37 * b + 11 * storage_.size()) % 256);
        storage_.push_back(std::move(bytes));
        entries.push_back({core::text(numeric::to_string(dtype), ".", shape.size()), dtype, shape,
                           std::as_bytes(std::span(storage_.back()))});
      }
    }
  }
  std::vector<io::TensorEntry> entries;

 private:
  std::vector<std::string> storage_;
};

struct Weights {
  std::array<float, 4> values{1.0F, -0.5F, 3e38F, 1e-40F};
  std::array<std::byte, 6> halves{};
  void visit_state(auto& visitor) {
    visitor.tensor(tensor::StateTensor{"layer.weight", DType::f32, Shape{2, 2}, 0,
                                       std::as_writable_bytes(std::span(values))});
    visitor.tensor(tensor::StateTensor{"layer.half", DType::bf16, Shape{3}, 0, std::span(halves)});
  }
};

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "halfstep-interop-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::string operator/(const std::string& name) const {
    return (path / name).string();
  }
  fs::path path;
};

/// What tensor_files.py prints; nothing if it fails.
std::string python(const std::string& command, const std::string& file) {
  const char* program = std::getenv("HALFSTEP_PYTHON");
  const std::string line = core::text("'", program == nullptr ? "python3" : program, "' '",
                                      HALFSTEP_SOURCE_DIR "/tests/interop/tensor_files.py", "' ",
                                      command, " '", file, "'");
  FILE* const pipe = ::popen(line.c_str(), "r");
  std::string out;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    out.append(buffer, n);
  return ::pclose(pipe) == 0 ? out : "";
}
bool there_is_python() {
  const char* program = std::getenv("HALFSTEP_PYTHON");
  const std::string line = core::text("'", program == nullptr ? "python3" : program,
                                      "' -c 'import safetensors' 2> /dev/null");
  return std::system(line.c_str()) == 0;
}

/// What tensor_files.py should print of these.
std::string listing(const io::SafeTensors& file) {
  std::vector<std::string> lines;
  for (const auto& entry : file.entries()) {
    std::string line = core::text(entry.name, " ", numeric::to_string(entry.dtype), " [");
    for (std::size_t d = 0; d < entry.shape.size(); ++d)
      line += core::text(d == 0 ? "" : ",", entry.shape[d]);
    line += "] ";
    for (const std::byte b : entry.bytes) {
      line += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
      line += "0123456789abcdef"[static_cast<unsigned>(b) & 15U];
    }
    lines.push_back(line + "\n");
  }
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const auto& line : lines)
    out += line;
  return out;
}

TEST(SafetensorsGolden, WhatPythonWroteIsReadAndOurWriterMakesTheSameBytes) {
  const Tensors wanted;
  const auto read = io::read_safetensors(golden);
  ASSERT_EQ(read.entries().size(), 48U);
  EXPECT_EQ(read.metadata().at("made by"), "safetensors");
  for (const auto& entry : wanted.entries) {
    const auto& got = read.at(entry.name);
    EXPECT_EQ(got.dtype, entry.dtype) << entry.name;
    EXPECT_EQ(got.shape, entry.shape) << entry.name;
    ASSERT_TRUE(
        std::equal(got.bytes.begin(), got.bytes.end(), entry.bytes.begin(), entry.bytes.end()));
  }
  const Folder folder;
  io::write_safetensors(folder / "ours", wanted.entries, {{"made by", "safetensors"}});
  EXPECT_TRUE(core::read_whole_file(folder / "ours") == core::read_whole_file(golden));
}

TEST(InteropSafetensors, PythonWritesTheGoldenFileStill) {
  if (!there_is_python())
    HALFSTEP_SKIP_OR_FAIL("no Python with safetensors; sh cmake/check.sh --interop installs it");
  const Folder folder;
  python("write", folder / "theirs");
  EXPECT_TRUE(core::read_whole_file(folder / "theirs") == core::read_whole_file(golden));
}

TEST(InteropSafetensors, PythonReadsOurFilesAndCheckpoints) {
  if (!there_is_python())
    HALFSTEP_SKIP_OR_FAIL("no Python with safetensors; sh cmake/check.sh --interop installs it");
  const Folder folder;
  Tensors tensors;
  io::write_safetensors(folder / "ours", tensors.entries,
                        {{"key", "v\xC3\xA4lue"}, {"a", "\"\\\n"}});
  const std::string wanted = listing(io::read_safetensors(golden));
  EXPECT_EQ(python("read", folder / "ours"), wanted);
  EXPECT_EQ(python("read", golden), wanted);

  Weights weights;
  io::write_checkpoint(folder / "checkpoint", {}, weights);
  const auto checkpoint = io::Checkpoint::open(folder / "checkpoint");
  EXPECT_EQ(python("read", folder / "checkpoint/weights.safetensors"),
            listing(checkpoint.weights()));
  EXPECT_EQ(python("read", folder / "checkpoint/weights.safetensors"),
            "layer.half BF16 [3] 000000000000\n"
            "layer.weight F32 [2,2] 0000803f000000bfe6b1617fc2160100\n");
  EXPECT_EQ(python("read", folder / "checkpoint/state.safetensors"), "");
}

// Files with a few bytes changed, cut or put in: what Python refuses we refuse, and what it reads
// we read, but for what the format forbids and it lets pass, or what has no format here.
TEST(InteropSafetensors, PythonAndWeRefuseTheSameFiles) {
  if (!there_is_python())
    HALFSTEP_SKIP_OR_FAIL("no Python with safetensors; sh cmake/check.sh --interop installs it");
  const Folder folder;
  std::string base;
  {
    const Tensors tensors;
    std::vector<io::TensorEntry> few(tensors.entries.begin(), tensors.entries.begin() + 8);
    io::write_safetensors(folder / "base", few, {{"k", "v"}});
    base = core::read_whole_file(folder / "base");
  }
  const std::size_t header =
      8 + static_cast<unsigned char>(base[0]) + 256U * static_cast<unsigned char>(base[1]);
  const std::string pieces[] = {
      "0", "1",       "9",    "-",        ".5",   "e1", ",",  "[",  "]",   "{",
      "}", "\"",      " ",    "\t",       "null", "[]", "{}", "U8", "F32", "18446744073709551616",
      ":", "\\u0041", "true", "\xC3\xA4", "\xFF"};
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t n) {
    return static_cast<std::size_t>(core::uniform_below(7, 1, drawn++, n));
  };
  std::vector<std::string> files;
  std::string all;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = base.substr(8, header - 8);
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text.erase(at, 1 + below(4));
          break;
        case 1:
          text.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(60)));
          break;
      }
      if (text.empty()) text = "{}";
    }
    std::string file;
    for (int b = 0; b < 8; ++b)
      file += static_cast<char>(text.size() >> (8 * b) & 0xFF);
    file += text + base.substr(header);
    for (int b = 0; b < 4; ++b)
      all += static_cast<char>(file.size() >> (8 * b) & 0xFF);
    all += file;
    files.push_back(std::move(file));
  }
  core::write_file_atomically(folder / "files", all);
  std::istringstream verdicts(python("judge", folder / "files"));
  int both = 0, neither = 0, stricter = 0;
  for (const std::string& file : files) {
    int theirs = -1;
    verdicts >> theirs;
    std::string why;
    try {
      static_cast<void>(io::SafeTensors::parse(file));
    } catch (const FileError& error) {
      why = error.what();
    }
    ASSERT_NE(theirs, -1);
    if (theirs == 1 && why.empty()) {
      ++both;
    } else if (theirs == 0 && !why.empty()) {
      ++neither;
    } else {
      const bool known =
          why.find("twice") != std::string::npos || why.find("unsupported") != std::string::npos;
      ASSERT_TRUE(theirs == 1 && known) << "they say " << theirs << ", we: " << why << "\n"
                                        << file.substr(8, header);
      ++stricter;
    }
  }
  std::printf(
      "%zu files: %d read by both, %d by neither, %d refused here for a name twice or a format\n",
      files.size(), both, neither, stricter);
  EXPECT_GT(both, 100);
  EXPECT_GT(neither, 1000);
}

}  // namespace
