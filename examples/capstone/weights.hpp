// SPDX-License-Identifier: MIT
// Weights to a safetensors file and back, as two visitors of state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/error.hpp>
#include <halfstep/io/safetensors.hpp>
#include <halfstep/tensor/state.hpp>

namespace capstone {

[[nodiscard]] inline std::vector<std::int64_t> sizes_of(const halfstep::Shape& shape) {
  std::vector<std::int64_t> sizes;
  for (int d = 0; d < shape.rank(); ++d) sizes.push_back(shape[d]);
  return sizes;
}

class WeightsWriter {
 public:
  void tensor(const halfstep::tensor::StateTensor& t) {
    entries_.push_back({std::string(t.name), t.dtype, sizes_of(t.shape), t.bytes});
  }
  void scalar(std::string_view, std::int64_t&) {}
  void scalar(std::string_view, double&) {}
  void write(const std::string& path, const halfstep::io::Metadata& metadata) {
    halfstep::io::write_safetensors(path, entries_, metadata);
  }

 private:
  std::vector<halfstep::io::TensorEntry> entries_;
};

class WeightsReader {
 public:
  explicit WeightsReader(const std::string& path)
      : path_(path), file_(halfstep::io::read_safetensors(path)) {}
  void tensor(const halfstep::tensor::StateTensor& t) {
    const auto& entry = file_.at(t.name);
    if (entry.dtype != t.dtype || entry.shape != sizes_of(t.shape)) {
      halfstep::core::fail<halfstep::FileError>(
          "'", path_, "': '", t.name, "' is ", halfstep::numeric::to_string(entry.dtype), " ",
          text_of(entry.shape), ", but tokenizer and config.json describe ",
          halfstep::numeric::to_string(t.dtype), " ", text_of(sizes_of(t.shape)),
          ". Are all three of the same run?");
    }
    std::memcpy(t.bytes.data(), entry.bytes.data(), t.bytes.size());
    ++read_;
  }
  /// After the visit. @throws FileError if the file holds more than was asked for.
  void finish() const {
    if (read_ == file_.entries().size()) return;
    halfstep::core::fail<halfstep::FileError>(
        "'", path_, "' holds ", file_.entries().size(), " tensors, but tokenizer and config.json describe ",
        read_, ". Are all three of the same run?");
  }
  void scalar(std::string_view, std::int64_t&) {}
  void scalar(std::string_view, double&) {}

 private:
  [[nodiscard]] static std::string text_of(const std::vector<std::int64_t>& sizes) {
    std::string out;
    for (const std::int64_t size : sizes) out += halfstep::core::text(out.empty() ? "[" : ", ", size);
    return out + "]";
  }

  std::string path_;
  halfstep::io::SafeTensors file_;
  std::size_t read_ = 0;
};

}  // namespace capstone
