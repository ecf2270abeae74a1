// SPDX-License-Identifier: MIT
// What becomes of an op's output between the forward pass and the backward that reads it: saved,
// made again when it is read, or saved in bf16. Within a segment and outside of any. Not for whole
// layers (checkpoint.hpp, run_chain.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

enum class Keep : std::uint8_t {
  save,       ///< as it is
  recompute,  ///< forgotten once it has been read, and made again, bit for bit, when a backward
              ///< reads it
  as_bf16     ///< a float output rounded to bf16 once it has been read: lossy, so gradients are not
           ///< those of `save`, and differ between plans that round at different places
};

/// Says it for every op by its name. Outputs of ops that cannot run again (sources of data, ops of
/// a user's that do not declare `repeatable`) are saved whatever it says, and what no backward
/// reads is not kept in any case.
using KeepPolicy = Keep (*)(std::string_view op);

/// Every value that a backward reads is saved.
[[nodiscard]] constexpr Keep keep_values(std::string_view /*op*/) { return Keep::save; }

/// The default: norms and GELUs run again, which cost a few operations an element beside the
/// products' thousands, and are what a transformer would hold most of. A block of width C in a
/// 16-bit format then holds per token, in elements: the stream after attention C and after the MLP
/// C, queries, keys and values 3 C, attention's output C, GELU's input 4 C: 10 C elements, 20 C
/// bytes. And in float: mean and 1 / deviation of two norms, 16 bytes, and a log-sum-exp for each
/// of H heads, 4 H bytes. Not held: both norms' outputs, 2 C, GELU's output, 4 C, and what no
/// backward reads, the two projections' outputs, 2 C, before and after dropout. Attention's
/// probabilities are never stored.
[[nodiscard]] constexpr Keep keep_default(std::string_view op) {
  return op == "layer_norm" || op == "rms_norm" || op == "gelu" || op == "gelu_erf"
             ? Keep::recompute
             : Keep::save;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
