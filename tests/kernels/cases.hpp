// SPDX-License-Identifier: MIT
// What the tests of kernels share: arrays that end at a page nobody may touch, data to fill them
// with, comparison of bits, and every combination of path and threads. Not part of the library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/numeric/element.hpp>

namespace cases {

using halfstep::bf16;
using halfstep::fp16;
using halfstep::core::Compute;
using halfstep::core::Isa;
using halfstep::numeric::accumulator_t;

/// n elements that end where an unreadable page begins and start behind one: a kernel that reads or
/// writes past either end stops the test. The start has no alignment beyond T's.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n, T value = T{}) : n_(static_cast<std::size_t>(n)) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (n_ * sizeof(T) + page - 1) / page * page;
    bytes_ = inside + 2 * page;
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(at);
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + page + inside, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(base_ + page + inside) - n_;
    for (std::size_t i = 0; i < n_; ++i)
      data_[i] = value;
  }
  explicit Guarded(const std::vector<T>& values)
      : Guarded(static_cast<std::int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), data_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, bytes_); }

  T* data() { return data_; }
  std::size_t size() const { return n_; }
  T& operator[](std::int64_t i) { return data_[i]; }
  std::vector<T> copy() const { return {data_, data_ + n_}; }
  operator std::span<T>() { return {data_, n_}; }
  operator std::span<const T>() const { return {data_, n_}; }

 private:
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  T* data_ = nullptr;
  std::size_t n_ = 0;
};

/// Value i of a sequence: in [-1, 1), multiples of 2^-23. (A multiplicative hash.)
inline double value_at(std::uint64_t seed, std::int64_t i) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(i) + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  x ^= x >> 31;
  return static_cast<double>(static_cast<std::int64_t>(x >> 40)) * 0x1p-23 - 1.0;
}
template <class T>
std::vector<T> values(std::int64_t n, std::uint64_t seed, double scale = 1.0, double offset = 0.0) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    out[static_cast<std::size_t>(i)] = static_cast<T>(value_at(seed, i) * scale + offset);
  }
  return out;
}

/// The first place where two arrays differ in a bit, or an empty text.
template <class T>
std::string difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return "lengths differ";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) == 0) continue;
    return "element " + std::to_string(i) + ": " + std::to_string(static_cast<double>(a[i])) +
           " and " + std::to_string(static_cast<double>(b[i]));
  }
  return {};
}
#define EXPECT_SAME_BITS(a, b) EXPECT_EQ(cases::difference(a, b), std::string{})
#define ASSERT_SAME_BITS(a, b) ASSERT_EQ(cases::difference(a, b), std::string{})

/// Calls visit(compute, name) for every path that this CPU has, with 1, 2 and 3 threads.
template <class Visit>
void every_compute(Visit visit) {
  for (const Isa isa : halfstep::core::available_isas()) {
    for (int threads = 1; threads <= 3; ++threads) {
      halfstep::core::ThreadPool pool(threads);
      const Compute compute{.isa = isa, .pool = &pool, .counters = nullptr};
      visit(compute, std::string(halfstep::core::to_string(isa)) + ", " + std::to_string(threads) +
                         " threads");
    }
  }
}
inline Compute portable() { return {.isa = Isa::portable, .pool = nullptr, .counters = nullptr}; }
/// The widest path that this CPU has, on the calling thread.
inline Compute widest() {
  return {.isa = halfstep::core::available_isas().back(), .pool = nullptr, .counters = nullptr};
}

/// The message of the error that a call throws; fails the test if it throws none of that kind.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error of the expected kind";
  return {};
}

/// Sums of the library's reductions, in plain loops: element j in lane j mod 16, folded.
template <class A>
class Lanes {
 public:
  void set_fma(std::int64_t j, A a, A b) { lane(j) = std::fma(a, b, lane(j)); }
  void add(std::int64_t j, A a) { lane(j) = lane(j) + a; }
  A sum() {
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i)
        lanes_[i] = lanes_[i] + lanes_[i + step];
    }
    return lanes_[0];
  }

 private:
  A& lane(std::int64_t j) { return lanes_[j % 16]; }
  A lanes_[16] = {};
};

/// A product that no compiler fuses into a sum.
template <class A>
A times(A a, A b) {
  volatile A product = a * b;
  return product;
}

/// The steps of log_of_sum on one number.
template <class A>
A log_of_sum(A x) {
  constexpr bool wide = sizeof(A) == 8;
  A n = 0;
  for (int step = 16; step > 0; step /= 2) {
    if (x >= static_cast<A>(std::int64_t{1} << step)) {
      x = x / static_cast<A>(std::int64_t{1} << step);
      n = n + static_cast<A>(step);
    }
  }
  if (x > static_cast<A>(1.4142135623730951)) {
    x = x / 2;
    n = n + 1;
  }
  const A s = (x - 1) / (x + 1), z = times(s, s);
  A series = 0;
  for (int k = wide ? 12 : 7; k > 0; --k)
    series = std::fma(series, z, A{1} / static_cast<A>(2 * k + 1));
  const A upper = wide ? static_cast<A>(0x1.62e42fefap-1) : static_cast<A>(0x1.63p-1);
  const A lower = static_cast<A>(wide ? 0x1.cf79abc9e3b3ap-40 : -0x1.bd0105c610ca8p-13);
  const A tail = std::fma(n, lower, times(s + s, times(z, series)));
  return std::fma(n, upper, (s + s) + tail);
}

}  // namespace cases
