// SPDX-License-Identifier: MIT
#include <halfstep/kernels/gemm.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include <halfstep/core/counters.hpp>
#include <halfstep/core/float_environment.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
using halfstep::core::MatrixView;

struct Case {
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
};

// The definition, element by element, in plain loops.
template <class E, class C>
void reference(MatrixView<const E> a, MatrixView<const E> b, const E* bias, C* c, std::int64_t ldc,
               bool accumulate) {
  using A = accumulator_t<E>;
  const auto at = [](MatrixView<const E> x, std::int64_t i, std::int64_t j) {
    return i < x.rows && j < x.cols ? static_cast<A>(x(i, j)) : A{0};
  };
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.cols; ++j) {
      A sum{0};
      if constexpr (std::is_same_v<E, bf16>) {
        for (std::int64_t p = 0; p < a.cols; p += 2) {
          sum = std::fma(at(a, i, p + 1), at(b, p + 1, j), sum);
          sum = std::fma(at(a, i, p), at(b, p, j), sum);
        }
      } else {
        for (std::int64_t p = 0; p < a.cols; ++p)
          sum = std::fma(at(a, i, p), at(b, p, j), sum);
      }
      C& out = c[i * ldc + j];
      if (bias != nullptr) sum = sum + static_cast<A>(bias[j]);
      if (accumulate) sum = static_cast<A>(out) + sum;
      out = static_cast<C>(sum);
    }
  }
}

// As the kernels' environment has it: subnormals flushed.
template <class Body>
void in_kernel_environment(Body body) {
  Compute{}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) { body(); });
}

template <class E>
MatrixView<const E> view(const E* data, std::int64_t rows, std::int64_t cols, bool transposed) {
  return transposed ? MatrixView<const E>{data, rows, cols, 1, rows}
                    : MatrixView<const E>{data, rows, cols, cols, 1};
}

template <class E, class C>
void check(const Case& s, const Compute& compute, const std::string& name) {
  Guarded<E> a(values<E>(s.m * s.k, 1)), b(values<E>(s.k * s.n, 2)), bias(values<E>(s.n, 3));
  const std::int64_t ldc = s.n + 3;
  Guarded<C> c(values<C>(s.m > 0 ? (s.m - 1) * ldc + s.n : 0, 4));
  std::vector<C> expected = c.copy();
  const auto va = view<E>(a.data(), s.m, s.k, s.a_transposed);
  const auto vb = view<E>(b.data(), s.k, s.n, s.b_transposed);
  const E* const added = s.bias ? bias.data() : nullptr;
  in_kernel_environment([&] { reference(va, vb, added, expected.data(), ldc, s.accumulate); });
  Guarded<std::byte> workspace(halfstep::kernels::gemm_workspace<E>(compute, s.m, s.n, s.k));
  halfstep::kernels::gemm(compute, va, vb, c.data(), ldc,
                          {.bias = added, .accumulate = s.accumulate}, workspace);
  ASSERT_SAME_BITS(c.copy(), expected)
      << name << ": " << s.m << " x " << s.n << " x " << s.k << (s.a_transposed ? " A^T" : "")
      << (s.b_transposed ? " B^T" : "") << (s.bias ? " bias" : "") << (s.accumulate ? " +=" : "");
}

template <class E>
class Gemm : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Gemm, Elements);

TYPED_TEST(Gemm, EveryPathAndThreadCountGivesTheDefinedBitsAtEverySmallSize) {
  std::mt19937 random(1);
  every_compute([&](const Compute& compute, const std::string& name) {
    for (std::int64_t size = 1; size <= 70; ++size) {
      const auto draw = [&](unsigned below) {
        return static_cast<std::int64_t>(random() % below) + 1;
      };
      Case s{size, draw(75), draw(40)};
      s.a_transposed = random() % 2 == 0;
      s.b_transposed = random() % 2 == 0;
      s.bias = random() % 2 == 0;
      s.accumulate = random() % 2 == 0;
      check<TypeParam, accumulator_t<TypeParam>>(s, compute, name);
      check<TypeParam, TypeParam>({draw(40), size, draw(40), s.b_transposed, s.bias}, compute,
                                  name);
      check<TypeParam, TypeParam>({draw(20), draw(40), size, s.bias, s.a_transposed, true, true},
                                  compute, name);
    }
  });
}

TYPED_TEST(Gemm, ChainsContinueWhereKIsCut) {
  every_compute([](const Compute& compute, const std::string& name) {
    check<TypeParam, accumulator_t<TypeParam>>({5, 7, 513}, compute, name);
    check<TypeParam, accumulator_t<TypeParam>>({14, 33, 2049, false, true, true, true}, compute,
                                               name);
    check<TypeParam, TypeParam>({3, 35, 4099, true, false, true, true}, compute, name);
  });
}

TYPED_TEST(Gemm, AProductThatResumesHasTheBitsOfTheWhole) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  every_compute([](const Compute& compute, const std::string& name) {
    for (const std::int64_t m : {1, 5, 12, 13, 30}) {
      for (const std::int64_t n : {1, 15, 32, 37}) {
        const std::int64_t k = 75, first = 22;
        Guarded<E> a(values<E>(m * k, 1)), b(values<E>(k * n, 2));
        Guarded<A> whole(m * n), parts(m * n), from_zero(m * n);
        Guarded<std::byte> workspace(halfstep::kernels::gemm_workspace<E>(compute, m, n, k));
        const auto va = view<E>(a.data(), m, k, true), vb = view<E>(b.data(), k, n, false);
        const auto multiply = [&](std::int64_t begin, std::int64_t end, Guarded<A>& c, bool resume) {
          halfstep::kernels::gemm(compute, va.block(0, begin, m, end - begin),
                                  vb.block(begin, 0, end - begin, n), c.data(), n,
                                  {.resume = resume}, workspace);
        };
        multiply(0, k, whole, false);
        multiply(0, first, parts, false);
        multiply(first, k, parts, true);
        multiply(first, k, from_zero, false);
        ASSERT_SAME_BITS(parts.copy(), whole.copy()) << name << ": " << m << " x " << n;
        ASSERT_NE(cases::difference(from_zero.copy(), whole.copy()), "") << name;
      }
    }
  });
}

TYPED_TEST(Gemm, ColumnsAreCutIntoBlocks) {
  check<TypeParam, accumulator_t<TypeParam>>({3, 2100, 1025, false, true, true}, widest(),
                                             "widest");
  every_compute([](const Compute& compute, const std::string& name) {
    check<TypeParam, accumulator_t<TypeParam>>({1, 9, 0, false, false, true}, compute, name);
    check<TypeParam, accumulator_t<TypeParam>>({0, 9, 4}, compute, name);
    check<TypeParam, accumulator_t<TypeParam>>({4, 0, 4}, compute, name);
  });
}

TYPED_TEST(Gemm, AnyStridesWillDoNegativeOnesToo) {
  const std::int64_t m = 19, n = 37, k = 23;
  const auto a = values<TypeParam>(m * k * 6, 1), b = values<TypeParam>(n * k * 6, 2);
  const MatrixView<const TypeParam> va{a.data() + a.size() - 1, m, k, -2 * k, -2};
  const MatrixView<const TypeParam> vb{b.data(), k, n, 3, 3 * k};
  std::vector<accumulator_t<TypeParam>> expected(static_cast<std::size_t>(m * n));
  in_kernel_environment([&] { reference<TypeParam>(va, vb, nullptr, expected.data(), n, false); });
  every_compute([&](const Compute& compute, const std::string& name) {
    std::vector<std::byte> workspace(
        static_cast<std::size_t>(halfstep::kernels::gemm_workspace<TypeParam>(compute, m, n, k)));
    std::vector<accumulator_t<TypeParam>> c(expected.size());
    halfstep::kernels::gemm(compute, va, vb, c.data(), n, {}, workspace);
    EXPECT_SAME_BITS(c, expected) << name;
  });
}

// The counterpart of the equalities: what must show in the bits does.
TEST(GemmDefinition, TheOrderOfKAndTheSwapOfPairsShow) {
  const std::int64_t m = 16, n = 16, k = 64;
  const auto different = [&]<class E>(E) {
    const auto a = values<E>(m * k, 1), b = values<E>(n * k, 2);
    const auto run = [&](MatrixView<const E> va, MatrixView<const E> vb) {
      std::vector<float> c(static_cast<std::size_t>(m * n));
      std::vector<std::byte> workspace(
          static_cast<std::size_t>(halfstep::kernels::gemm_workspace<E>(portable(), m, n, k)));
      halfstep::kernels::gemm(portable(), va, vb, c.data(), n, {}, workspace);
      return c;
    };
    const auto forward = run({a.data(), m, k, k, 1}, {b.data(), k, n, n, 1});
    const auto backward =
        run({a.data() + k - 1, m, k, k, -1}, {b.data() + (k - 1) * n, k, n, -n, 1});
    return !difference(forward, backward).empty();
  };
  EXPECT_TRUE(different(0.0F));
  EXPECT_TRUE(different(bf16{}));
  EXPECT_TRUE(different(fp16{}));
  // bf16 differs from float on the same numbers, by the pairs' order alone.
  const auto a = values<bf16>(m * k, 1), b = values<bf16>(n * k, 2);
  std::vector<float> af(a.size()), bf(b.size()), c(m * n), cf(m * n);
  for (std::size_t i = 0; i < a.size(); ++i)
    af[i] = static_cast<float>(a[i]);
  for (std::size_t i = 0; i < b.size(); ++i)
    bf[i] = static_cast<float>(b[i]);
  reference<bf16>(view(a.data(), m, k, false), view(b.data(), k, n, false), nullptr, c.data(), n,
                  false);
  reference<float>(view(af.data(), m, k, false), view(bf.data(), k, n, false), nullptr, cf.data(),
                   n, false);
  EXPECT_FALSE(difference(c, cf).empty());
}

// Any code of bf16, subnormals, infinities and NaNs among them; of the size of weights; and so that
// products fall around 2^-126.
bf16 any_bf16(std::mt19937_64& random, int kind) {
  auto code = static_cast<std::uint16_t>(random());
  if (kind == 1) code = static_cast<std::uint16_t>((code & 0x80FFU) | ((110U + code % 32U) << 7));
  if (kind == 2) code = static_cast<std::uint16_t>((code & 0x80FFU) | ((60U + code % 8U) << 7));
  return bf16::from_bits(code);
}

TEST(GemmDefinition, TenMillionDotProductsOfAnyBf16AreTheDefinedOnes) {
  std::mt19937_64 random(7);
  const std::int64_t m = 230, n = 230, k = 4;
  std::int64_t inputs = 0, not_finite = 0, flushed = 0;
  std::vector<std::int64_t> mismatches(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<bf16> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
    for (auto& x : a)
      x = any_bf16(random, round % 3);
    for (auto& x : b)
      x = any_bf16(random, round % 3);
    const auto va = view(a.data(), m, k, false), vb = view(b.data(), k, n, false);
    std::vector<float> expected(static_cast<std::size_t>(m * n));
    in_kernel_environment([&] { reference<bf16>(va, vb, nullptr, expected.data(), n, false); });
    inputs += m * n;
    for (const float x : expected) {
      not_finite += !std::isfinite(x);
      flushed += x == 0.0F;
    }
    for (const Isa isa : halfstep::core::available_isas()) {
      const Compute compute{.isa = isa};
      std::vector<std::byte> workspace(
          static_cast<std::size_t>(halfstep::kernels::gemm_workspace<bf16>(compute, m, n, k)));
      std::vector<float> c(expected.size());
      halfstep::kernels::gemm(compute, va, vb, c.data(), n, {}, workspace);
      for (std::size_t i = 0; i < c.size(); ++i) {
        const bool both_nan = std::isnan(c[i]) && std::isnan(expected[i]);
        mismatches[static_cast<std::size_t>(isa)] +=
            !both_nan && std::memcmp(&c[i], &expected[i], 4) != 0;
      }
    }
  }
  EXPECT_GE(inputs, 10'000'000);
  EXPECT_GT(not_finite, 100'000);
  EXPECT_GT(flushed, 10'000);
  for (const Isa isa : halfstep::core::available_isas()) {
    std::printf("%lld inputs, %lld mismatches, path %s\n", static_cast<long long>(inputs),
                static_cast<long long>(mismatches[static_cast<std::size_t>(isa)]),
                std::string(halfstep::core::to_string(isa)).c_str());
    EXPECT_EQ(mismatches[static_cast<std::size_t>(isa)], 0);
  }
}

TEST(GemmDefinition, TheCallersRoundingModeDoesNotShowAndIsRestored) {
  const auto a = values<float>(20 * 30, 1), b = values<float>(30 * 20, 2);
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(halfstep::kernels::gemm_workspace<float>(portable(), 20, 20, 30)));
  std::vector<float> first(400), second(400);
  halfstep::kernels::gemm(portable(), view(a.data(), 20, 30, false), view(b.data(), 30, 20, false),
                          first.data(), 20, {}, workspace);
  const unsigned saved = halfstep::core::read_mxcsr();
  halfstep::core::write_mxcsr(0x7F80);  // towards zero
  halfstep::kernels::gemm(portable(), view(a.data(), 20, 30, false), view(b.data(), 30, 20, false),
                          second.data(), 20, {}, workspace);
  const unsigned after = halfstep::core::read_mxcsr();
  halfstep::core::write_mxcsr(saved);
  EXPECT_EQ(after & ~0x3FU, 0x7F80U);
  EXPECT_SAME_BITS(first, second);
}

TEST(GemmCounters, TheTakenPathAndTheOperationsAreCounted) {
  for (const Isa isa : halfstep::core::available_isas()) {
    halfstep::core::Counters counters;
    const Compute compute{.isa = isa, .counters = &counters};
    const auto run = [&]<class E>(E) {
      const auto a = values<E>(6, 1);
      std::vector<float> c(4);
      std::vector<std::byte> workspace(
          static_cast<std::size_t>(halfstep::kernels::gemm_workspace<E>(compute, 2, 2, 3)));
      halfstep::kernels::gemm(compute, view(a.data(), 2, 3, false), view(a.data(), 3, 2, false),
                              c.data(), 2, {}, workspace);
    };
    run(0.0F);
    run(bf16{});
    std::array<std::uint64_t, 4> expected{};
    // Only bf16 has products of its own on AVX-512-BF16.
    ++expected[static_cast<std::size_t>(std::min(isa, Isa::avx512))];
    ++expected[static_cast<std::size_t>(isa)];
    EXPECT_EQ(counters.products, expected) << halfstep::core::to_string(isa);
    EXPECT_EQ(counters.flops, 2U * 2 * 2 * 2 * 3);
  }
}

// Who multiplies pieces of a matrix asks for the largest. Sizes around those where blocks are cut.
TEST(GemmWorkspace, ServesEveryProductOfNoLargerSizes) {
  namespace detail = halfstep::kernels::detail;
  std::vector<std::int64_t> sizes;
  for (const std::int64_t near : {1, 16, 64, 544, 1024, 1904, 2048, 2112, 4096, 6000})
    sizes.insert(sizes.end(), {near, near + 1});
  for (const detail::GemmTile tile : {detail::GemmTile{6, 16}, {12, 32}, {14, 32}, {4, 16}}) {
    for (const int threads : {1, 2}) {
      const auto wanted = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        const std::int64_t numbers = detail::gemm_numbers(tile, threads, m, n, k);
        EXPECT_LE(detail::plan_gemm(tile, threads, m, n, k).numbers(), numbers);
        return numbers;
      };
      for (std::size_t i = 1; i < sizes.size(); ++i) {
        for (const std::int64_t a : sizes) {
          for (const std::int64_t b : sizes) {
            ASSERT_LE(wanted(sizes[i - 1], a, b), wanted(sizes[i], a, b)) << sizes[i];
            ASSERT_LE(wanted(a, sizes[i - 1], b), wanted(a, sizes[i], b)) << sizes[i];
            ASSERT_LE(wanted(a, b, sizes[i - 1]), wanted(a, b, sizes[i])) << sizes[i];
          }
        }
      }
    }
  }
}

TEST(GemmErrors, NameTheSizesAndTheLikelyCause) {
  std::vector<float> x(100);
  std::vector<std::byte> workspace(1 << 20);
  const auto multiply = [&](std::int64_t k, std::int64_t ldc, std::span<std::byte> space) {
    halfstep::kernels::gemm(portable(), view(x.data(), 2, 3, false), view(x.data(), k, 5, false),
                            x.data(), ldc, {}, space);
  };
  EXPECT_EQ(message_of<ShapeError>([&] { multiply(4, 5, workspace); }),
            "gemm: a is 2 x 3 and b is 4 x 5; a's columns and b's rows must be as many. Is a "
            "transpose missing?");
  EXPECT_EQ(message_of<ShapeError>([&] { multiply(3, 4, workspace); }),
            "gemm: rows of c are 4 elements apart, but have 5.");
  const auto text = message_of<ShapeError>([&] { multiply(3, 5, std::span(workspace).first(8)); });
  EXPECT_NE(text.find("the workspace has 8 bytes; wanted "), std::string::npos) << text;
  const std::vector<bf16> h(100);
  std::vector<bf16> c(100);
  EXPECT_EQ(message_of<halfstep::OptionError>([&] {
              halfstep::kernels::gemm(portable(), view(h.data(), 2, 3, false),
                                      view(h.data(), 3, 5, false), c.data(), 5, {.resume = true},
                                      workspace);
            }),
            "gemm: resume wants C in the accumulator's type, whose chains go on, and no "
            "accumulate. Is C a gradient in 16 bits?");
}

}  // namespace
