// SPDX-License-Identifier: MIT
// Totals in g++'s own half-precision type. Shares no code with the library.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {
_Float16 half_of(std::uint16_t code) {
  _Float16 x;
  std::memcpy(&x, &code, 2);
  return x;
}
}  // namespace

// A product of two halves and its sum with a third are exact in double, so one rounding is left.
float oracle_fp16_dot(const std::uint16_t* a, const std::uint16_t* b, std::size_t n) {
  _Float16 total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    total = static_cast<_Float16>(static_cast<double>(half_of(a[i])) *
                                      static_cast<double>(half_of(b[i])) +
                                  static_cast<double>(total));
  }
  return static_cast<float>(total);
}
float oracle_fp16_chunked_sum(const std::uint16_t* x, std::size_t n, std::size_t length) {
  float total = 0.0F;
  for (std::size_t from = 0; from < n; from += length) {
    _Float16 chunk = 0;
    for (std::size_t i = from; i < n && i < from + length; ++i)
      chunk = static_cast<_Float16>(static_cast<float>(chunk) + static_cast<float>(half_of(x[i])));
    total += static_cast<float>(chunk);
  }
  return total;
}
