// SPDX-License-Identifier: MIT
// The three things the program does. Each returns when it has succeeded, and throws otherwise.
#pragma once

#include <stdexcept>

#include "options.hpp"

namespace capstone {

/// The run itself went wrong, after its input was found to be good: exit code 1, not 2.
struct RunFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void train(const Options& options);
void evaluate(const ReadOptions& options);
void sample(const ReadOptions& options);

}  // namespace capstone
