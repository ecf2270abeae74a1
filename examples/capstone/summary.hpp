// SPDX-License-Identifier: MIT
// summary.json: what a run was and what came out, for programs.
#pragma once

#include <cstdint>
#include <string>

#include "model.hpp"
#include "options.hpp"

namespace capstone {

/// The paths whose matrix products were counted, "avx512" or "avx2+portable"; "none" without any.
[[nodiscard]] std::string paths_that_ran(const halfstep::core::Counters& counters);

/// The file's text. `data_hash` is that of the text, see data::Text::hash; `floor` is the entropy
/// per character of a generated language, 0 for a file.
[[nodiscard]] std::string summary_json(const Options& options, const Trained& trained, int threads,
                                       int vocabulary, std::uint64_t data_hash,
                                       double ngram_bits_per_byte, double floor);

/// Sixteen hexadecimal digits.
[[nodiscard]] std::string hash_text(std::uint64_t hash);
/// "data_hash" of a summary, or nothing if it has none.
/// @throws halfstep::FileError naming `source` if that is no summary.
[[nodiscard]] std::string data_hash_of(const std::string& json, const std::string& source);

}  // namespace capstone
