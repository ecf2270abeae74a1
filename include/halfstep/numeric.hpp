// SPDX-License-Identifier: MIT
// Everything of numeric/: the 16-bit formats, elementary functions, dual numbers.
// Not in it: numeric/eigen.hpp, which costs 0.6 s a file.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary.hpp>
#include <halfstep/numeric/elementary_double.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/numeric/small_float.hpp>
#include <halfstep/numeric/text.hpp>
