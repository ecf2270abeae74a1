// SPDX-License-Identifier: MIT
// The three things the program does. Each returns when it has succeeded, and throws otherwise.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "options.hpp"

namespace capstone {

/// The run itself went wrong, after its input was found to be good: exit code 1, not 2.
struct RunFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A signal asked the run to stop, and its checkpoint is written: exit code 128 and the signal's
/// number.
struct Interrupted : std::runtime_error {
  Interrupted(const std::string& what, int number) : std::runtime_error(what), signal(number) {}
  int signal;
};

/// Calls `body`, which gives the program's exit code, and turns what it throws into a code and a
/// line on standard error. Another rank's failure passes through.
[[nodiscard]] int exit_code_of(const std::function<int()>& body);

/// With `resume` on from the newest checkpoint in options.out. Gives the exit code, having said
/// why; in a process that is one of several ranks it does not return.
[[nodiscard]] int train(const Options& options, bool resume);
void evaluate(const ReadOptions& options);
void sample(const ReadOptions& options);

}  // namespace capstone
