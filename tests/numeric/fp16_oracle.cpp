// SPDX-License-Identifier: MIT
// g++'s own half-precision type, and __float128 for fma. Shares no code with the library.
// links: quadmath
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <quadmath.h>

namespace {
_Float16 half_of(std::uint16_t code) {
  _Float16 x;
  std::memcpy(&x, &code, 2);
  return x;
}
std::uint16_t code_of(_Float16 x) {
  std::uint16_t code = 0;
  std::memcpy(&code, &x, 2);
  return code;
}
}  // namespace

double oracle_fp16_value(std::uint16_t code) { return static_cast<double>(half_of(code)); }
void oracle_fp16_from_floats(const float* in, std::uint16_t* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = code_of(static_cast<_Float16>(in[i]));
}
std::uint16_t oracle_fp16_from_double(double x) { return code_of(static_cast<_Float16>(x)); }
std::uint16_t oracle_fp16_from_long_double(long double x) {
  return code_of(static_cast<_Float16>(x));
}
std::uint16_t oracle_fp16_from_i64(std::int64_t x) { return code_of(static_cast<_Float16>(x)); }
std::uint16_t oracle_fp16_sqrt(std::uint16_t a) {
  return code_of(static_cast<_Float16>(std::sqrt(static_cast<double>(half_of(a)))));
}

void oracle_fp16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n) {
  const _Float16 x = half_of(a);
  for (std::size_t i = 0; i < n; ++i) {
    const _Float16 y = half_of(b[i]);
    const _Float16 z = op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
    out[i] = code_of(z);
  }
}

// Product and sum span 2^-48 to 2^33: 81 bits, exact in the 113 of __float128.
std::uint16_t oracle_fp16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const __float128 s =
      static_cast<__float128>(static_cast<double>(half_of(a))) * static_cast<double>(half_of(b)) +
      static_cast<double>(half_of(c));
  return code_of(static_cast<_Float16>(s));
}
