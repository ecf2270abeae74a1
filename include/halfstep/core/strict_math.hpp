// SPDX-License-Identifier: MIT
// Included by every header that trains: refuses -ffast-math, under which comparisons with NaN are
// folded away and sums are reordered. Not by numeric/, which is integer code where it counts.
#pragma once

#include <halfstep/core/config.hpp>

static_assert(
    !HALFSTEP_FAST_MATH,
    "halfstep: training needs IEEE arithmetic, but this unit is compiled with -ffast-math "
    "(or -Ofast, -ffinite-math-only). NaN checks would be folded away and sums reordered. "
    "Remove the flag; the kernels are vectorised without it. numeric/ alone works under it.");
