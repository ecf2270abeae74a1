// SPDX-License-Identifier: MIT
// fp16 is g++'s own half-precision type, with __float128 for fma. bf16 is of our own: values as
// double, rounding to an integer number of units in double, and what double does not hold is first
// rounded to it to odd. Shares no code with the library.
// links: quadmath
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <quadmath.h>

namespace {

double value_of_code(std::uint16_t code) {
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

struct Values {
  double of[65536];
  Values() {
    for (int code = 0; code < 65536; ++code)
      of[code] = value_of_code(static_cast<std::uint16_t>(code));
  }
};
const double* values() {
  static const Values values;
  return values.of;
}
double value_of(std::uint16_t code) { return values()[code]; }

/// 2^exponent
double power(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double x = 0;
  std::memcpy(&x, &bits, 8);
  return x;
}

/// To the nearest integer, a tie to the even one: sums beyond 2^52 hold no fractions.
double to_integer(double x) { return (x + 0x1p52) - 0x1p52; }

std::uint16_t code_of(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7FC0;
  const double size = std::fabs(x);
  if (size < 0x1p-126)
    return static_cast<std::uint16_t>(
        sign | static_cast<int>(size < 0x1p-200 ? 0.0 : to_integer(size * 0x1p133)));
  if (size >= 0x1p128) return static_cast<std::uint16_t>(sign | 0x7F80);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &size, 8);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  const double units = to_integer(size * power(7 - exponent));  // 128 to 256: 256 carries
  return static_cast<std::uint16_t>(sign |
                                    (((exponent + 127) << 7) + static_cast<int>(units) - 128));
}

/// To double by rounding to odd: then a second rounding, to fewer bits, is as if it were the first.
double odd_double(__float128 x) {
  auto d = static_cast<double>(x);
  if (!std::isfinite(d) || static_cast<__float128>(d) == x) return d;
  std::uint64_t bits = 0;
  std::memcpy(&bits, &d, 8);
  if ((bits & 1) != 0) return d;
  return std::nextafter(d, static_cast<__float128>(d) < x ? HUGE_VAL : -HUGE_VAL);
}

/// Whether a sum's double, the nearest to it, rounds to 16 bits as the sum itself, given what it
/// rounds to. The middles between 16-bit values have at most 12 significant bits, so they are
/// doubles, and a double is on the same side of each as the sum, or on it: one with more bits than
/// that is on none, nor is a 16-bit value. Others are left to __float128, whose 500 ns no test of
/// so many triples has for each.
bool settles(double near, double rounded) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &near, 8);
  return (bits & ((std::uint64_t{1} << 41) - 1)) != 0 || rounded == near || std::isnan(near);
}

_Float16 half_of(std::uint16_t code) {
  _Float16 x;
  std::memcpy(&x, &code, 2);
  return x;
}
std::uint16_t code_of_half(_Float16 x) {
  std::uint16_t code = 0;
  std::memcpy(&code, &x, 2);
  return code;
}

}  // namespace

/// A NaN keeps its sign and the upper half of its payload, and is quiet.
void oracle_bf16_from_floats(const float* in, std::uint16_t* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, in + i, 4);
    out[i] = std::isnan(in[i]) ? static_cast<std::uint16_t>(bits >> 16 | 0x40) : code_of(in[i]);
  }
}

double oracle_bf16_value(std::uint16_t code) { return value_of(code); }
std::uint16_t oracle_bf16_from_double(double x) { return code_of(x); }
std::uint16_t oracle_bf16_from_long_double(long double x) { return code_of(odd_double(x)); }
std::uint16_t oracle_bf16_sqrt(std::uint16_t a) { return code_of(std::sqrt(value_of(a))); }

// A double operation and then a rounding is one correct rounding: 53 >= 2 * 8 + 2.
void oracle_bf16_binary(char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out,
                        std::size_t n) {
  const double* const value = values();
  const double x = value[a];
  const auto row = [&](auto operation) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = code_of(operation(value[b[i]]));
  };
  if (op == '+') row([x](double y) { return x + y; });
  if (op == '-') row([x](double y) { return x - y; });
  if (op == '*') row([x](double y) { return x * y; });
  if (op == '/') row([x](double y) { return x / y; });
}

// The product is exact; the sum is made odd where it is not, so that the second rounding is
// harmless.
std::uint16_t oracle_bf16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const double near = value_of(a) * value_of(b) + value_of(c);
  const std::uint16_t code = code_of(near);
  if (settles(near, value_of(code))) return code;
  const __float128 p = static_cast<__float128>(value_of(a)) * value_of(b);
  const __float128 z = value_of(c);
  __float128 s = p + z;
  const __float128 back = s - p;
  const __float128 error = (p - (s - back)) + (z - back);
  if (error != 0) {
    unsigned char bytes[16];
    std::memcpy(bytes, &s, 16);
    if ((bytes[0] & 1) == 0) s = nextafterq(s, error > 0 ? HUGE_VALQ : -HUGE_VALQ);
  }
  return code_of(odd_double(s));
}

double oracle_fp16_value(std::uint16_t code) { return static_cast<double>(half_of(code)); }
void oracle_fp16_from_floats(const float* in, std::uint16_t* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = code_of_half(static_cast<_Float16>(in[i]));
}
std::uint16_t oracle_fp16_from_double(double x) { return code_of_half(static_cast<_Float16>(x)); }
std::uint16_t oracle_fp16_from_long_double(long double x) {
  return code_of_half(static_cast<_Float16>(x));
}
std::uint16_t oracle_fp16_sqrt(std::uint16_t a) {
  return code_of_half(static_cast<_Float16>(std::sqrt(static_cast<double>(half_of(a)))));
}

// The same type with the instructions that convert it, where there are some, and a loop for each
// operation, or g++ makes each element wait for the last: 1 ns a pair instead of 30 or 7.
__attribute__((target_clones("arch=x86-64-v3", "default"))) void oracle_fp16_binary(
    char op, std::uint16_t a, const std::uint16_t* b, std::uint16_t* out, std::size_t n) {
  const _Float16 x = half_of(a);
  const auto row = [&](auto operation) {
    for (std::size_t i = 0; i < n; ++i)
      out[i] = code_of_half(operation(half_of(b[i])));
  };
  if (op == '+') row([x](_Float16 y) { return x + y; });
  if (op == '-') row([x](_Float16 y) { return x - y; });
  if (op == '*') row([x](_Float16 y) { return x * y; });
  if (op == '/') row([x](_Float16 y) { return x / y; });
}

// Product and sum span 2^-48 to 2^33: 81 bits, exact in the 113 of __float128.
std::uint16_t oracle_fp16_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  const auto x = static_cast<double>(half_of(a)), y = static_cast<double>(half_of(b)),
             z = static_cast<double>(half_of(c));
  const double near = x * y + z;
  const auto rounded = static_cast<_Float16>(near);
  if (settles(near, static_cast<double>(rounded))) return code_of_half(rounded);
  return code_of_half(static_cast<_Float16>(static_cast<__float128>(x) * y + z));
}
