// SPDX-License-Identifier: MIT
// Comparisons of a 16-bit format's operations with an oracle, over whole spaces or samples of them.
// Each takes the operation as a function, so that a test can hand it a wrong one and see it caught.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include <numeric/formats.hpp>

namespace halfstep_tests {

struct Count {
  std::int64_t inputs = 0;
  std::int64_t mismatches = 0;
  Count& operator+=(const Count& other) {
    inputs += other.inputs;
    mismatches += other.mismatches;
    return *this;
  }
};

template <class T>
void print(const char* what, Count count) {
  std::printf("%s %s: %lld inputs, %lld mismatches, path scalar\n", name_of<T>, what,
              static_cast<long long>(count.inputs), static_cast<long long>(count.mismatches));
}

/// Prints the count, and fails unless it is that of the whole space without a mismatch.
template <class T>
void expect_none_wrong(const char* what, Count count, std::int64_t space) {
  print<T>(what, count);
  EXPECT_EQ(count.mismatches, 0) << what;
  EXPECT_EQ(count.inputs, space) << what;
}

/// body(0) and body(1) at a time, for what takes minutes.
inline Count on_two_threads(const std::function<Count(int)>& body) {
  Count first, second;
  std::thread other([&] { second = body(1); });
  first = body(0);
  other.join();
  return first += second;
}

/// Whether two codes agree where all NaNs count as one.
template <class T>
[[nodiscard]] bool agree(T x, std::uint16_t expected) {
  return isnan(x) ? T::format::is_nan(expected) : x.bits() == expected;
}

/// Every `stride`-th float from `from` to `end`, NaNs to the bit.
template <class T, class Convert>
[[nodiscard]] Count compare_floats(Convert convert,
                                   void (*oracle)(const float*, std::uint16_t*, std::size_t),
                                   std::uint64_t from, std::uint64_t end, std::uint64_t stride) {
  constexpr std::size_t block = 4096;
  std::vector<float> in(block);
  std::vector<std::uint16_t> expected(block);
  Count count;
  for (std::uint64_t bits = from; bits < end;) {
    std::size_t filled = 0;
    for (; filled < block && bits < end; ++filled, bits += stride)
      in[filled] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    oracle(in.data(), expected.data(), filled);
    for (std::size_t i = 0; i < filled; ++i)
      count.mismatches += T{convert(in[i])}.bits() == expected[i] ? 0 : 1;
    count.inputs += static_cast<std::int64_t>(filled);
  }
  return count;
}

/// All floats of a magnitude from `least` on. The oracle is asked where its codes change, and a
/// rounding does not change between: so a float costs a conversion and a compare. NaNs one by one,
/// to the bit.
template <class T, class Convert>
[[nodiscard]] Count compare_all_floats(Convert convert,
                                       void (*oracle)(const float*, std::uint16_t*, std::size_t),
                                       std::uint32_t least = 0) {
  const auto expected = [oracle](std::uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    std::uint16_t code = 0;
    oracle(&x, &code, 1);
    return code;
  };
  Count count;
  for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
    constexpr std::uint32_t end = 0x7F80'0001;  // of the numbers and infinity
    for (std::uint32_t from = least; from < end;) {
      const std::uint16_t code = expected(sign | from);
      std::uint32_t same = from, other = end;  // code there; another code, or the end, there
      for (std::uint32_t step = 1; same + step < end; step *= 2) {
        if (expected(sign | (same + step)) != code) {
          other = same + step;
          break;
        }
        same += step;
      }
      while (other - same > 1) {
        const std::uint32_t middle = same + (other - same) / 2;
        (middle < end && expected(sign | middle) == code ? same : other) = middle;
      }
      std::int64_t wrong = 0;
      for (std::uint32_t bits = from; bits < other; ++bits)
        wrong += T{convert(std::bit_cast<float>(sign | bits))}.bits() == code ? 0 : 1;
      count.mismatches += wrong;
      count.inputs += other - from;
      from = other;
    }
    count += compare_floats<T>(convert, oracle, sign | end, sign + std::uint64_t{0x8000'0000}, 1);
  }
  return count;
}

/// Every code as a float or double; NaNs count as one.
template <class T, class Real, class Widen>
[[nodiscard]] Count compare_codes(Widen widen, double (*oracle)(std::uint16_t)) {
  Count count;
  for (std::uint32_t bits = 0; bits < codes<T>; ++bits, ++count.inputs) {
    const double expected = oracle(static_cast<std::uint16_t>(bits));
    const Real found = widen(code<T>(bits));
    const bool same = expected != expected
                          ? found != found
                          : std::bit_cast<std::uint64_t>(static_cast<double>(found)) ==
                                std::bit_cast<std::uint64_t>(expected);
    count.mismatches += same ? 0 : 1;
  }
  return count;
}

/// Every code to a wider type and back, `there_and_back`: the same, but NaNs quiet.
template <class T, class Through>
[[nodiscard]] Count compare_round_trips(Through there_and_back) {
  Count count;
  for (std::uint32_t bits = 0; bits < codes<T>; ++bits, ++count.inputs) {
    const T x = code<T>(bits);
    const std::uint32_t expected = isnan(x) ? bits | T::format::quiet_bit : bits;
    count.mismatches += T{there_and_back(x)}.bits() == expected ? 0 : 1;
  }
  return count;
}

using Row = void (*)(char, std::uint16_t, const std::uint16_t*, std::uint16_t*, std::size_t);

/// `operation(x, y)`, which `op` names, for x = every `stride`-th code from `from` and all y.
template <class T, class Operation>
[[nodiscard]] Count compare_pairs(char op, Operation operation, Row oracle, std::uint32_t from,
                                  std::uint32_t stride) {
  std::vector<std::uint16_t> all(codes<T>), expected(codes<T>);
  for (std::uint32_t b = 0; b < codes<T>; ++b)
    all[b] = static_cast<std::uint16_t>(b);
  Count count;
  for (std::uint32_t a = from; a < codes<T>; a += stride) {
    oracle(op, static_cast<std::uint16_t>(a), all.data(), expected.data(), all.size());
    for (std::uint32_t b = 0; b < codes<T>; ++b)
      count.mismatches += agree(T{operation(code<T>(a), code<T>(b))}, expected[b]) ? 0 : 1;
    count.inputs += codes<T>;
  }
  return count;
}

template <class T, class Operation>
[[nodiscard]] Count compare_sqrt(Operation operation, std::uint16_t (*oracle)(std::uint16_t)) {
  Count count;
  for (std::uint32_t a = 0; a < codes<T>; ++a, ++count.inputs)
    count.mismatches +=
        agree(T{operation(code<T>(a))}, oracle(static_cast<std::uint16_t>(a))) ? 0 : 1;
  return count;
}

/// Triples where fma goes wrong if it can: sums that cancel, ties broken far below, results among
/// the subnormals and at the end of the range, specials, and any bits at all.
template <class T>
struct Triples {
  std::uint64_t state;
  std::uint64_t index = 0;

  struct Codes {
    std::uint16_t a, b, c;
  };
  std::uint64_t random() {
    state += 0x9E3779B97F4A7C15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  Codes next() {
    using F = typename T::format;
    constexpr int m = F::mantissa_bits;
    constexpr int fields = 1 << F::exponent_bits;
    const std::uint64_t r = random(), s = random();
    const auto make = [](std::uint64_t sign, int field, std::uint64_t fraction) {
      field = field < 0 ? 0 : field > fields - 2 ? fields - 2 : field;
      return static_cast<std::uint16_t>((sign & 1) * F::sign_code |
                                        static_cast<std::uint32_t>(field) << m |
                                        (fraction & ((1U << m) - 1)));
    };
    auto a = static_cast<std::uint16_t>(r), b = static_cast<std::uint16_t>(r >> 16),
         c = static_cast<std::uint16_t>(r >> 32);
    const int ea = (a & F::magnitude_mask) >> m;
    const int far = static_cast<int>(s % 64);
    switch (index++ % 8) {
      case 1: {  // c is almost -ab
        const T product = -(T::from_bits(a) * T::from_bits(b));
        c = static_cast<std::uint16_t>(product.bits() ^ (s & 3));
        break;
      }
      case 2:  // few bits in the product, so that it may be a tie, and anything below it
        a &= static_cast<std::uint16_t>(~((1U << (m / 2)) - 1));
        b &= static_cast<std::uint16_t>(~((1U << (m - m / 2 - 1)) - 1));
        break;
      case 3:  // a product among the subnormals
        b = make(s, F::bias - ea - static_cast<int>(s >> 8 & 15) + 2, s >> 16);
        c = make(s >> 1, static_cast<int>(s >> 12 & 3), s >> 32);
        break;
      case 4:  // one at the end of the range
        b = make(s, fields - 1 + F::bias - ea - static_cast<int>(s >> 8 & 3), s >> 16);
        c = make(s >> 1, fields - 2 - static_cast<int>(s >> 12 & 3), s >> 32);
        break;
      case 5:  // c around the product's last places
      case 6: {
        const int eb = (b & F::magnitude_mask) >> m;
        c = make(s, ea + eb - F::bias + 2 - far % (2 * m + 4), index % 2 == 0 ? s >> 16 : 0);
        break;
      }
      case 7: {  // specials and their neighbours
        constexpr std::uint32_t ends[] = {
            0, 1, 1U << m, F::max_code, F::infinity_code, F::nan_code, (1U << m) - 1, F::bias << m};
        a = static_cast<std::uint16_t>(ends[s & 7] | ((s >> 3 & 1) * F::sign_code));
        b = s & 0x10 ? b : static_cast<std::uint16_t>(ends[s >> 5 & 7]);
        c = s & 0x100 ? c : static_cast<std::uint16_t>(ends[s >> 9 & 7] ^ (s & 0x8000));
        break;
      }
      default:
        break;
    }
    return {a, b, c};
  }
};

template <class T, class Operation>
[[nodiscard]] Count compare_fma(Operation operation,
                                std::uint16_t (*oracle)(std::uint16_t, std::uint16_t,
                                                        std::uint16_t),
                                std::uint64_t seed, std::int64_t n) {
  Triples<T> triples{seed};
  Count count;
  for (; count.inputs < n; ++count.inputs) {
    const auto [a, b, c] = triples.next();
    const T found = operation(T::from_bits(a), T::from_bits(b), T::from_bits(c));
    count.mismatches += agree(found, oracle(a, b, c)) ? 0 : 1;
  }
  return count;
}

}  // namespace halfstep_tests
