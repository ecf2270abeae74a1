// SPDX-License-Identifier: MIT
// Whether a kernel overwrites its output or adds to it. Not for the order of such additions: that
// is the caller's, who calls one after the other.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// accumulate: the finished result is added to what the output holds, rounding once in the
/// accumulator's type and, if that is another, once to the output's.
enum class Write : std::uint8_t { overwrite, accumulate };

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
