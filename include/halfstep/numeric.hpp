// SPDX-License-Identifier: MIT
// Everything of numeric/: the 16-bit formats, elementary functions, dual numbers.
// Not in it: numeric/eigen.hpp, which costs 0.6 s a file.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/binary_format.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary.hpp>
#include <halfstep/numeric/elementary_double.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/fp8_e5m2.hpp>
#include <halfstep/numeric/minifloat.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/numeric/round_to.hpp>
#include <halfstep/numeric/rounding.hpp>
#include <halfstep/numeric/small_float.hpp>
#include <halfstep/numeric/text.hpp>
