// SPDX-License-Identifier: MIT
// The numbers of one micro-batch, which key its data and its random draws. Made by the window of
// mixed/gradient_accumulator.hpp alone; everything else only reads them. Not for: the batch itself.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// Which micro-batch of the whole run this is, all ranks together.
///
/// With V micro-batches a step and R rows each, first_sample = (iteration x V + number) x R; row i
/// is sample first_sample + i, whatever rank and accumulation step it falls to.
struct MicroBatch {
  std::int64_t iteration = 0;     ///< windows begun before this one, skipped updates included
  std::int64_t number = 0;        ///< 0 to V - 1 within the iteration
  std::int64_t first_sample = 0;  ///< global number of row 0
  int rows = 0;                   ///< R, samples in it
};

}  // namespace halfstep::inline HALFSTEP_CONFIG
