// SPDX-License-Identifier: MIT
#include "model_of.hpp"

namespace capstone {
CAPSTONE_FORMAT(halfstep::fp16);
}
