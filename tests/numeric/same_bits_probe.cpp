// SPDX-License-Identifier: MIT
// Prints a hash of the results of every public inline numeric function over some 100,000 inputs
// each. Built by both compilers at -O0 and at -O3 -march=native, the output must be the same.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <halfstep/core/fma.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/elementary.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/numeric/text.hpp>

namespace {

namespace numeric = halfstep::numeric;
using halfstep::bf16;
using halfstep::dual;
using halfstep::fp16;

struct Hash {
  std::uint64_t value = 0xCBF29CE484222325;
  void add(std::uint64_t x) {
    value = (value ^ x) * 0x100000001B3;
    value ^= value >> 29;
  }
  // All NaNs count as one: which operand's payload survives is the compiler's choice.
  void add(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    add(std::uint64_t{(bits & 0x7FFF'FFFF) > 0x7F80'0000 ? 0x7FC0'0000 : bits});
  }
  void add(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    add((bits & 0x7FFF'FFFF'FFFF'FFFF) > 0x7FF0'0000'0000'0000 ? 0x7FF8'0000'0000'0000 : bits);
  }
  template <class F>
  void add(halfstep::small_float<F> x) {
    add(std::uint64_t{isnan(x) ? 0xFFFFU : x.bits()});
  }
  template <class T>
  void add(dual<T> x) {
    add(x.value);
    add(x.tangent);
  }
};

/// A cheap generator with all bit patterns; every second value of ordinary size.
struct Inputs {
  std::uint64_t state = 1;
  std::uint64_t next() {
    state += 0x9E3779B97F4A7C15;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  double ordinary(double size) {
    return (static_cast<double>(next() >> 11) * 0x1p-53 - 0.5) * 2 * size;
  }
  float any_float(int i) {
    const auto bits = static_cast<std::uint32_t>(next());
    return i % 2 == 0 ? std::bit_cast<float>(bits)
                      : static_cast<float>(ordinary(i % 4 == 1 ? 2 : 100));
  }
  double any_double(int i) {
    const std::uint64_t bits = next();
    return i % 2 == 0 ? std::bit_cast<double>(bits) : ordinary(i % 4 == 1 ? 2 : 800);
  }
};

template <class Body>
void report(const char* name, int count, Body body) {
  Hash hash;
  Inputs inputs;
  for (int i = 0; i < count; ++i)
    body(hash, inputs, i);
  std::printf("%-24s %016llx\n", name, static_cast<unsigned long long>(hash.value));
}

template <class T>
T input(Inputs& in, int i) {
  if constexpr (sizeof(T) == 4)
    return in.any_float(i);
  else
    return in.any_double(i);
}

template <class T>
void elementary(const char* type) {
  const auto one = [type](const char* name, auto function) {
    report((std::string(name) + ' ' + type).c_str(), 100000,
           [&](Hash& h, Inputs& in, int i) { h.add(function(input<T>(in, i))); });
  };
  one("exp", [](T x) { return numeric::exp(x); });
  one("exp2", [](T x) { return numeric::exp2(x); });
  one("expm1", [](T x) { return numeric::expm1(x); });
  one("log", [](T x) { return numeric::log(x); });
  one("log2", [](T x) { return numeric::log2(x); });
  one("log1p", [](T x) { return numeric::log1p(x); });
  one("sin", [](T x) { return numeric::sin(x); });
  one("cos", [](T x) { return numeric::cos(x); });
  one("tanh", [](T x) { return numeric::tanh(x); });
  one("erf", [](T x) { return numeric::erf(x); });
  report((std::string("pow ") + type).c_str(), 100000, [](Hash& h, Inputs& in, int i) {
    const T x = input<T>(in, i);
    h.add(numeric::pow(x < 0 && i % 3 != 0 ? -x : x, input<T>(in, i + 1)));
  });
  // A caller who lets the result feed a sum with a product: the compiler must not fuse into ours.
  report((std::string("in expressions ") + type).c_str(), 50000, [](Hash& h, Inputs& in, int i) {
    const T x = static_cast<T>(in.ordinary(3)), y = static_cast<T>(in.ordinary(3));
    h.add(halfstep::core::rounded(x * numeric::tanh(y)) + numeric::exp(x));
    h.add(halfstep::core::fma(x, y, numeric::erf(y)));
    const dual<T> a(x, y), b(y, static_cast<T>(i));
    h.add(a * b + b / (a + dual<T>(4)) - exp(a) * tanh(b));
    h.add(log(a * a + dual<T>(1)) + sqrt(b * b + dual<T>(1)) * erf(a) + sin(a) * cos(b));
    h.add(log1p(a * a) + expm1(b) + pow(a * a + dual<T>(1), T{0.75}) + abs(a) + max(a, b) -
          min(a, b));
  });
}

template <class F>
void scalars(const char* type) {
  const auto name = [type](const char* what) { return std::string(what) + ' ' + type; };
  report(name("from float").c_str(), 300000,
         [](Hash& h, Inputs& in, int i) { h.add(F{in.any_float(i)}); });
  report(name("from double").c_str(), 300000,
         [](Hash& h, Inputs& in, int i) { h.add(F{in.any_double(i)}); });
  report(name("from long double").c_str(), 100000, [](Hash& h, Inputs& in, int i) {
    h.add(F{static_cast<long double>(in.any_double(i)) * 1.0000000001L});
  });
  report(name("from integers").c_str(), 100000, [](Hash& h, Inputs& in, int i) {
    h.add(F{static_cast<std::int64_t>(in.next()) >> (i % 64)});
    h.add(F{in.next() >> (i % 64)});
  });
  report(name("arithmetic").c_str(), 300000, [](Hash& h, Inputs& in, int) {
    const std::uint64_t r = in.next();
    const F a = F::from_bits(static_cast<std::uint16_t>(r)),
            b = F::from_bits(static_cast<std::uint16_t>(r >> 16));
    const F c = F::from_bits(static_cast<std::uint16_t>(r >> 32));
    h.add(a + b);
    h.add(a - b);
    h.add(a * b);
    h.add(a / b);
    h.add(a * b + c);
    h.add(fma(a, b, c));
    h.add(sqrt(a));
    h.add(nextafter(a, b));
    h.add(static_cast<float>(a));
    h.add(static_cast<double>(b));
    h.add(std::uint64_t{a < b} + std::uint64_t{a == b} * 2);
  });
  report(name("text").c_str(), 65536, [](Hash& h, Inputs&, int i) {
    const std::string text = to_string(F::from_bits(static_cast<std::uint16_t>(i)));
    for (const char c : text)
      h.add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
    F back{};
    (void)from_chars(text.data(), text.data() + text.size(), back);
    h.add(back);
  });
  for (const auto isa : halfstep::core::available_isas()) {
    Inputs in;
    Hash h;
    std::vector<float> floats(100003);
    for (std::size_t i = 0; i < floats.size(); ++i)
      floats[i] = in.any_float(static_cast<int>(i));
    std::vector<F> out(floats.size());
    numeric::convert({.isa = isa}, std::span<const float>(floats), std::span<F>(out));
    numeric::convert({.isa = isa}, std::span<const F>(out), std::span<float>(floats));
    for (std::size_t i = 0; i < floats.size(); ++i) {
      h.add(out[i]);
      h.add(floats[i]);
    }
    std::printf("%-24s %016llx\n", name("convert").c_str(),
                static_cast<unsigned long long>(h.value));
  }
}

}  // namespace

int main() {
  elementary<float>("float");
  elementary<double>("double");
  scalars<bf16>("bf16");
  scalars<fp16>("fp16");
  report("normal", 100000, [](Hash& h, Inputs& in, int i) {
    const std::uint64_t seed = in.next();
    const std::uint64_t stream = in.next();
    h.add(numeric::normal(seed, stream, static_cast<std::uint64_t>(i)));
  });
}
