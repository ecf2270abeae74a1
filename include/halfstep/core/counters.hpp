// SPDX-License-Identifier: MIT
// What ran, counted where it ran: the evidence that an option was not ignored.
#pragma once

#include <array>
#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/isa.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// Counts since the Runtime was made. Written by the thread that trains, in the kernels' front.
struct Counters {
  std::array<std::uint64_t, 4> products{};  ///< matrix products by the path that computed them
  std::uint64_t flops = 0;                  ///< operations of matrix products and attention, replays included
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
