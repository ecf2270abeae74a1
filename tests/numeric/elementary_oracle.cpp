// SPDX-License-Identifier: MIT
// libquadmath as the judge of our elementary functions: errors in ulp of the exact result.
// links: quadmath
#include <cmath>
#include <limits>

#include <quadmath.h>

namespace {

__float128 exact(int function, __float128 x, __float128 y) {
  switch (function) {
    case 0:
      return expq(x);
    case 1:
      return tanhq(x);
    case 2:
      return erfq(x);
    case 3:
      return logq(x);
    case 4:
      return sinq(x);
    case 5:
      return cosq(x);
    case 6:
      return exp2q(x);
    case 7:
      return expm1q(x);
    case 8:
      return log1pq(x);
    case 9:
      return log2q(x);
    default:
      return powq(x, y);
  }
}

/// Infinite for a wrong special value. Results below the smallest normal must be zero.
template <class T>
double error_in_ulp(T got, __float128 want) {
  constexpr auto wrong = std::numeric_limits<double>::infinity();
  const auto smallest = static_cast<__float128>(std::numeric_limits<T>::min());
  if (std::isnan(got) || isnanq(want)) return std::isnan(got) && isnanq(want) ? 0 : wrong;
  if (want == 0) return got == 0 ? 0 : wrong;
  const T nearest = static_cast<T>(want);
  if (std::isinf(got) || std::isinf(nearest)) return got == nearest ? 0 : wrong;
  if (fabsq(want) < smallest)
    return got == 0 || fabsq(static_cast<__float128>(got)) == smallest ? 0 : wrong;
  int exponent = 0;
  (void)frexpq(want, &exponent);
  return static_cast<double>(fabsq(got - want) /
                             ldexpq(1, exponent - std::numeric_limits<T>::digits));
}

}  // namespace

double oracle_error_float(int function, float x, float y, float got) {
  return error_in_ulp(got, exact(function, x, y));
}
double oracle_error_double(int function, double x, double y, double got) {
  return error_in_ulp(got, exact(function, x, y));
}
