// SPDX-License-Identifier: MIT
// The two ways in which a test may decline to run. Everything else that stops a test is a failure,
// and GTEST_SKIP is used nowhere but here (contract.house looks).
#pragma once

#include <cstdlib>
#include <string_view>

#include <gtest/gtest.h>

namespace halfstep_tests {

/// Whether HALFSTEP_REQUIRE_ALL=1 is set, as in .ci/run.
[[nodiscard]] inline bool require_all() {
  const char* value = std::getenv("HALFSTEP_REQUIRE_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

/// Takes the reason that is streamed into the macros below.
struct Decline {
  const char* file;
  int line;
  bool hardware;

  void operator=(const testing::Message& reason) const {
    if (require_all() && !hardware) {
      ADD_FAILURE_AT(file, line) << "HALFSTEP_REQUIRE_ALL=1, and this test cannot run: " << reason;
    } else {
      GTEST_SKIP() << "halfstep skip" << (hardware ? " (hardware): " : ": ") << reason;
    }
  }
};

}  // namespace halfstep_tests

/// For what could be installed or fetched: a tool, a Python package, a file beside the clone. Skips
/// for a user; fails under HALFSTEP_REQUIRE_ALL=1. Leaves the test's function either way.
#define HALFSTEP_SKIP_OR_FAIL(reason) \
  return halfstep_tests::Decline{__FILE__, __LINE__, false} = testing::Message() << reason

/// For what this machine cannot have: an instruction set that its CPU does not list. Skips always.
#define HALFSTEP_SKIP_HARDWARE(reason) \
  return halfstep_tests::Decline{__FILE__, __LINE__, true} = testing::Message() << reason
