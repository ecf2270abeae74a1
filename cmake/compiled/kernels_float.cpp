// SPDX-License-Identifier: MIT
#define HALFSTEP_KERNELS template
#define HALFSTEP_KERNELS_ELEMENT float
#define HALFSTEP_KERNELS_ELEMENT_IS_16_BITS 0
#include "kernels.hpp"
