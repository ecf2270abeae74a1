// SPDX-License-Identifier: MIT
// Any bytes at all as a safetensors file and as a manifest: refused by a FileError, or read, and
// then what was read can be written and is read back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/io/manifest.hpp>
#include <halfstep/io/safetensors.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace io = halfstep::io;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const io::SafeTensors file = io::SafeTensors::parse(bytes);
    std::vector<io::TensorEntry> entries(file.entries().begin(), file.entries().end());
    std::string again = io::safetensors_header(entries, file.metadata());
    for (const auto& entry : entries)
      again.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    const io::SafeTensors second = io::SafeTensors::parse(again);
    if (second.entries().size() != entries.size() || second.metadata() != file.metadata())
      std::abort();
    for (const auto& entry : entries) {
      const auto& other = second.at(entry.name);
      const std::string_view a(reinterpret_cast<const char*>(entry.bytes.data()),
                               entry.bytes.size());
      const std::string_view b(reinterpret_cast<const char*>(other.bytes.data()),
                               other.bytes.size());
      if (other.dtype != entry.dtype || other.shape != entry.shape || a != b) std::abort();
    }
  } catch (const halfstep::FileError&) {
  }
  try {
    // With a seal of its own, or next to nothing would come past it.
    const std::size_t n = bytes.find('\0');
    const std::string body = bytes.substr(0, n);
    io::ByteHash seal;
    seal.add(std::string_view(body));
    const std::string text =
        body + ",\n  \"seal\": \"" + io::detail::hash_text(seal.value()) + "\"\n}\n";
    const io::Manifest manifest = io::parse_manifest(text, "fuzz");
    if (io::manifest_text(io::parse_manifest(io::manifest_text(manifest), "again")) !=
        io::manifest_text(manifest)) {
      std::abort();
    }
  } catch (const halfstep::FileError&) {
  } catch (const halfstep::OptionError&) {  // a config that is no object cannot be written
  }
  return 0;
}
