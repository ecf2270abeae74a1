// SPDX-License-Identifier: MIT
// The formats of at most 8 bits as tables: a code's value from the format's description, and the
// code of a value by search among the middles between neighbours, which double holds exactly.
// Shares no code with the library.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

struct Table {
  const char* name;
  int bits;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  std::uint8_t nan;        ///< what a positive NaN becomes
  std::uint8_t nan_minus;  ///< what a negative NaN becomes
  std::uint8_t beyond;     ///< what +infinity becomes, and what rounds beyond the largest
  std::uint8_t beyond_minus;
  std::uint8_t largest;  ///< code of the largest finite value

  std::vector<double> values{};   ///< of the non-negative finite codes, in order
  std::vector<double> middles{};  ///< [i] between values i and i + 1; the last above the largest
};

/// From the tables of OCP, ONNX and ml_dtypes' README.
std::vector<Table> make_tables() {
  std::vector<Table> all{{"fp8_e4m3", 8, 4, 3, 7, 0x7F, 0xFF, 0x7F, 0xFF, 0x7E},
                         {"fp8_e5m2", 8, 5, 2, 15, 0x7E, 0xFE, 0x7C, 0xFC, 0x7B},
                         {"fp8_e4m3fnuz", 8, 4, 3, 8, 0x80, 0x80, 0x80, 0x80, 0x7F},
                         {"fp8_e5m2fnuz", 8, 5, 2, 16, 0x80, 0x80, 0x80, 0x80, 0x7F},
                         {"fp8_e4m3b11fnuz", 8, 4, 3, 11, 0x80, 0x80, 0x80, 0x80, 0x7F},
                         {"fp8_e4m3_ieee", 8, 4, 3, 7, 0x7C, 0xFC, 0x78, 0xF8, 0x77},
                         {"fp8_e3m4", 8, 3, 4, 3, 0x78, 0xF8, 0x70, 0xF0, 0x6F},
                         {"fp6_e2m3", 6, 2, 3, 1, 0x20, 0x00, 0x1F, 0x3F, 0x1F},
                         {"fp6_e3m2", 6, 3, 2, 3, 0x20, 0x00, 0x1F, 0x3F, 0x1F},
                         {"fp4_e2m1", 4, 2, 1, 1, 0x08, 0x00, 0x07, 0x0F, 0x07},
                         {"fp8_e8m0", 8, 8, 0, 127, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE}};
  for (Table& t : all) {
    const bool scale = t.mantissa_bits == 0;
    for (int code = 0; code <= t.largest + 1; ++code) {  // one more: where the next would be
      const int field = code >> t.mantissa_bits;
      const int fraction = code & ((1 << t.mantissa_bits) - 1);
      const double value = scale        ? std::ldexp(1, code - t.bias)
                           : field == 0 ? std::ldexp(fraction, 1 - t.bias - t.mantissa_bits)
                                        : std::ldexp((1 << t.mantissa_bits) + fraction,
                                                     field - t.bias - t.mantissa_bits);
      if (!t.values.empty()) t.middles.push_back((t.values.back() + value) / 2);
      if (code <= t.largest) t.values.push_back(value);
    }
  }
  return all;
}

const Table& table(const std::string& name) {
  static const std::vector<Table> all = make_tables();
  return *std::find_if(all.begin(), all.end(), [&](const Table& t) { return name == t.name; });
}

/// Whether the exact middle above value i belongs to i + 1: to the even code, and upward among the
/// powers of two, whose significand 1 is odd.
bool tie_goes_up(const Table& t, std::size_t i) { return t.mantissa_bits == 0 || i % 2 == 1; }

}  // namespace

/// A finite code's value; NaN and infinities for the rest.
double oracle_minifloat_value(const char* name, std::uint8_t code) {
  const Table& t = table(name);
  if (t.mantissa_bits == 0) return code == 0xFF ? std::nan("") : t.values[code];
  const int sign_bit = 1 << (t.bits - 1);
  const int size = code & (sign_bit - 1);
  const bool negative = (code & sign_bit) != 0;
  if (t.nan == 0x80 && code == 0x80) return std::nan("");
  if (size > t.largest) {
    const double special = size == t.beyond && t.beyond != t.nan ? HUGE_VAL : std::nan("");
    return negative ? -special : special;
  }
  const double value = t.values[static_cast<std::size_t>(size)];
  return negative ? -value : value;
}

/// Nearest, ties to even; `saturate`: infinities and what is too large become the largest.
std::uint8_t oracle_minifloat_code(const char* name, double x, bool saturate) {
  const Table& t = table(name);
  const bool negative = std::signbit(x);
  const int sign_bit = 1 << (t.bits - 1);
  if (std::isnan(x)) return negative ? t.nan_minus : t.nan;
  if (t.mantissa_bits == 0 && !(x > 0)) return t.nan;
  const double size = std::fabs(x);
  const auto above = std::lower_bound(t.middles.begin(), t.middles.end(), size);
  auto i = static_cast<std::size_t>(above - t.middles.begin());
  if (above != t.middles.end() && *above == size && tie_goes_up(t, i)) ++i;
  if (i > t.largest) {
    if (!saturate) return negative ? t.beyond_minus : t.beyond;
    i = t.largest;
  }
  if (i == 0 && t.nan == 0x80) return 0;  // no -0
  return static_cast<std::uint8_t>(i | (negative ? static_cast<unsigned>(sign_bit) : 0U));
}

/// For each magnitude, the bits of the first float that rounds to it or beyond; the last entry is
/// where the codes end and `beyond` begins.
std::vector<std::uint32_t> oracle_minifloat_first_floats(const char* name) {
  const Table& t = table(name);
  std::vector<std::uint32_t> first{0};
  for (std::size_t i = 0; i < t.middles.size(); ++i) {
    // The middles have few bits: floats hold them, but for those below all floats (none) exactly.
    const auto middle = std::bit_cast<std::uint32_t>(static_cast<float>(t.middles[i]));
    first.push_back(tie_goes_up(t, i) ? middle : middle + 1);
  }
  return first;
}

/// Every float's code, given its sign and where it lies among the first floats: `index` is that of
/// the last one not above it.
std::uint8_t oracle_minifloat_code_at(const char* name, std::size_t index, bool negative) {
  const Table& t = table(name);
  if (index > t.largest) return negative ? t.beyond_minus : t.beyond;
  if (t.mantissa_bits == 0) return negative ? t.nan : static_cast<std::uint8_t>(index);
  if (index == 0 && t.nan == 0x80) return 0;
  return static_cast<std::uint8_t>(index | (negative ? 1U << (t.bits - 1) : 0U));
}

/// What a NaN of these float bits becomes: quiet, with its sign, and with the payload's top bits
/// where the format is laid out as IEEE 754 says.
std::uint8_t oracle_minifloat_nan(const char* name, std::uint32_t bits) {
  const Table& t = table(name);
  const std::uint8_t nan = (bits >> 31) != 0 ? t.nan_minus : t.nan;
  if (t.beyond == t.nan || t.bits < 8) return nan;
  return static_cast<std::uint8_t>(nan | ((bits & 0x7FFFFF) >> (23 - t.mantissa_bits)));
}

double oracle_binary(char op, double x, double y) {
  return op == '+' ? x + y : op == '-' ? x - y : op == '*' ? x * y : x / y;
}
/// Exact in double for numbers of these formats, but for the powers of two.
double oracle_fma(double x, double y, double z) { return x * y + z; }
double oracle_sqrt(double x) { return std::sqrt(x); }
