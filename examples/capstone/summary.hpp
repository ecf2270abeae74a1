// SPDX-License-Identifier: MIT
// summary.json: what a run was and what came out, for programs.
#pragma once

#include <string>

#include "model.hpp"
#include "options.hpp"

namespace capstone {

/// The paths whose matrix products were counted, "avx512" or "avx2+portable"; "none" without any.
[[nodiscard]] std::string paths_that_ran(const halfstep::core::Counters& counters);

/// The file's text. `floor` is the entropy per character of a generated language, 0 for a file.
[[nodiscard]] std::string summary_json(const Options& options, const Trained& trained, int threads,
                                       int vocabulary, double ngram_bits_per_byte, double floor);

}  // namespace capstone
