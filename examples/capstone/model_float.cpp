// SPDX-License-Identifier: MIT
#include "model_of.hpp"

namespace capstone {

CAPSTONE_FORMAT(float);

std::int64_t count_parameters(const Options& options, int vocabulary) {
  return halfstep::nn::count_parameters(gpt_options(options, vocabulary));
}

}  // namespace capstone
