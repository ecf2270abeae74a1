// SPDX-License-Identifier: MIT
#define HALFSTEP_KERNELS template
#define HALFSTEP_KERNELS_ELEMENT bf16
#define HALFSTEP_KERNELS_ELEMENT_IS_16_BITS 1
#include "kernels.hpp"
