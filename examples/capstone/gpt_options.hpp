// SPDX-License-Identifier: MIT
// From the program's options to the model's.
#pragma once

#include <halfstep/nn/gpt.hpp>

#include "options.hpp"

namespace capstone {

[[nodiscard]] inline halfstep::nn::GptOptions gpt_options(const Options& options, int vocabulary) {
  return {.vocabulary = vocabulary,
          .context = options.context,
          .layers = options.layers,
          .heads = options.heads,
          .width = options.width,
          .dropout = options.dropout,
          .bias = options.bias};
}

}  // namespace capstone
