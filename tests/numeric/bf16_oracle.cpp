// SPDX-License-Identifier: MIT
// An independent bf16: values as double, rounding by rint of a scaled double, fma in __float128
// made odd. Shares no code with the library.
// links: quadmath
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <quadmath.h>

namespace {

double value_of(std::uint16_t code) {
  const int field = (code >> 7) & 0xFF;
  const int fraction = code & 0x7F;
  double size = 0;
  if (field == 255) {
    size = fraction != 0 ? std::nan("") : HUGE_VAL;
  } else {
    size = field == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, field - 134);
  }
  return (code & 0x8000) != 0 ? -size : size;
}

std::uint16_t code_of(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7FC0;
  const double size = std::fabs(x);
  if (size == 0) return sign;
  if (std::isinf(size)) return static_cast<std::uint16_t>(sign | 0x7F80);
  int exponent = 0;
  (void)std::frexp(size, &exponent);  // size = m 2^exponent, 1/2 <= m < 1
  const int quantum = exponent - 8 < -133 ? -133 : exponent - 8;
  const double units = std::rint(std::ldexp(size, -quantum));  // nearest even; at most 256
  const double rounded = std::ldexp(units, quantum);
  if (rounded >= 0x1p128) return static_cast<std::uint16_t>(sign | 0x7F80);
  if (rounded == 0) return sign;
  (void)std::frexp(rounded, &exponent);
  const int field = exponent + 126 < 1 ? 0 : exponent + 126;
  const double fraction =
      field == 0 ? std::ldexp(rounded, 133) : std::ldexp(rounded, 134 - field) - 128;
  return static_cast<std::uint16_t>(sign | (field << 7) | static_cast<int>(fraction));
}

}  // namespace

double oracle_bf16_value(std::uint16_t code) { return value_of(code); }
std::uint16_t oracle_bf16_from_double(double x) { return code_of(x); }
std::uint16_t oracle_bf16_sqrt(std::uint16_t a) { return code_of(std::sqrt(value_of(a))); }

// A double operation and then a rounding is one correct rounding: 53 >= 2 * 8 + 2.
void oracle_bf16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n) {
  const double x = value_of(a);
  for (std::size_t i = 0; i < n; ++i) {
    const double y = value_of(b[i]);
    out[i] = code_of(op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y);
  }
}

// The product is exact; the sum is made odd where it is not, so that the second rounding is
// harmless.
std::uint16_t oracle_bf16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const __float128 p = static_cast<__float128>(value_of(a)) * value_of(b);
  const __float128 z = value_of(c);
  if (!finiteq(p) || !finiteq(z)) return code_of(static_cast<double>(p + z));
  __float128 s = p + z;
  const __float128 back = s - p;
  const __float128 error = (p - (s - back)) + (z - back);
  if (error != 0) {
    unsigned char bytes[16];
    std::memcpy(bytes, &s, 16);
    if ((bytes[0] & 1) == 0) s = nextafterq(s, error > 0 ? HUGE_VALQ : -HUGE_VALQ);
  }
  if (s == 0) return std::signbit(static_cast<double>(s)) ? 0x8000 : 0;
  // To double by rounding to odd again, then to bf16.
  auto d = static_cast<double>(s);
  if (std::isfinite(d) && static_cast<__float128>(d) != s) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &d, 8);
    if ((bits & 1) == 0)
      d = std::nextafter(d, static_cast<__float128>(d) < s ? HUGE_VAL : -HUGE_VAL);
  }
  return code_of(d);
}
