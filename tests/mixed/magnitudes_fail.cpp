// SPDX-License-Identifier: MIT
// What must not compile; each case is one macro away from a program that does.
// CASE 0: advised_scale: a format without infinity and NaN overflows at no scale
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/numeric/fp8_e4m3.hpp>
#include <halfstep/numeric/minifloat.hpp>

namespace hs = halfstep;

int main() {
  hs::mixed::Magnitudes magnitudes;
  magnitudes.add(1.0);
#if !defined(CASE)
  return magnitudes.advised_scale<hs::fp8_e4m3>().scale > 0.0 ? 0 : 1;
#else
  return magnitudes.advised_scale<hs::fp4_e2m1>().scale > 0.0 ? 0 : 1;
#endif
}
