// SPDX-License-Identifier: MIT
#include <halfstep/kernels/accumulate.hpp>

#include <cmath>
#include <limits>

#include <halfstep/kernels/gemm.hpp>

#include "cases.hpp"

float oracle_fp16_dot(const std::uint16_t* a, const std::uint16_t* b, std::size_t n);
float oracle_fp16_chunked_sum(const std::uint16_t* x, std::size_t n, std::size_t length);

namespace {

using namespace cases;
using namespace halfstep::kernels;
using halfstep::ShapeError;
namespace core = halfstep::core;

template <class E>
std::vector<E> ones(std::size_t n) {
  return std::vector<E>(n, E(1.0F));
}
template <class Total, class E>
std::vector<double> counts() {
  std::vector<double> out;
  for (const std::size_t n : {512U, 4096U, 8192U}) {
    const auto x = ones<E>(n);
    const std::span<const E> span(x);
    const auto sum = sum_by<Total>(portable(), span);
    EXPECT_EQ(dot_by<Total>(portable(), span, span), sum);
    float product = -1.0F;
    const auto length = static_cast<std::int64_t>(n);
    product_by<Total>(portable(), core::row_major(x.data(), 1, length),
                      core::row_major(x.data(), length, 1), core::row_major(&product, 1, 1));
    EXPECT_EQ(product, static_cast<float>(sum));
    out.push_back(static_cast<double>(sum));
  }
  return out;
}
using Counts = std::vector<double>;

// Of 512, 4096 and 8192 ones.
TEST(RunningTotal, OfOnesSticksWhereItsFormatDoes) {
  EXPECT_EQ((counts<TotalIn<>, bf16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<TotalIn<float>, fp16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<TotalIn<double>, bf16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<TotalIn<bf16>, bf16>()), (Counts{256, 256, 256}));
  EXPECT_EQ((counts<TotalIn<fp16>, fp16>()), (Counts{512, 2048, 2048}));
  EXPECT_EQ((counts<TotalInChunks<fp16, 64>, fp16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<TotalInChunks<bf16, 64>, bf16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<TotalInChunks<bf16, 512>, bf16>()), (Counts{256, 2048, 4096}));
  EXPECT_EQ((counts<KahanTotal<bf16>, bf16>()), (Counts{512, 4096, 8192}));
  EXPECT_EQ((counts<KahanTotal<fp16>, fp16>()), (Counts{512, 4096, 8192}));
}
TEST(RunningTotal, OfSeventyThousandOnesIsTheirNearestNumberInFloat) {
  const auto x = ones<bf16>(70'000);
  const std::span<const bf16> span(x);
  EXPECT_EQ(sum_by<TotalIn<bf16>>(portable(), span), 256.0F);
  EXPECT_EQ(sum_by(portable(), span), 70'000.0F);
  EXPECT_EQ(bf16{sum_by(portable(), span)}, bf16{70'144});
  // What was lost is kept in 8 bits too, and 256 is where it sticks: half an ulp of 65536.
  EXPECT_EQ(sum_by<KahanTotal<bf16>>(portable(), span), 65'536.0F);
}
// cases.md, Numerics 34 and 69: small gradients beside a large one, a mean and a norm in fp16.
TEST(RunningTotal, InSixteenBitsLosesWhatTheReportsSay) {
  std::vector<bf16> addends(1001, bf16(0x1p-9F));
  addends[0] = bf16(1.0F);
  const std::span<const bf16> gradients(addends);
  EXPECT_EQ(sum_by<TotalIn<bf16>>(portable(), gradients), 1.0F);
  EXPECT_EQ(sum_by(portable(), gradients), 2.953125F);
  const std::vector<fp16> large(3, fp16(40'000.0F)), three_hundred(1, fp16(300.0F));
  EXPECT_EQ(sum_by<TotalIn<fp16>>(portable(), std::span<const fp16>(large)),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(sum_by(portable(), std::span<const fp16>(large)) / 3.0F, 40'000.0F);
  const std::span<const fp16> norm(three_hundred);
  EXPECT_EQ(dot_by<TotalIn<fp16>>(portable(), norm, norm), std::numeric_limits<float>::infinity());
  EXPECT_EQ(std::sqrt(dot_by(portable(), norm, norm)), 300.0F);
}
// cases.md, Numerics 81 and 82.
TEST(KahanTotal, OfInfinityAndZeroIsInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& x :
       {std::vector<float>{inf, 0.0F}, {1.0F, inf, 2.0F}, {3e38F, 3e38F, 1.0F}}) {
    EXPECT_EQ(sum_by<KahanTotal<float>>(portable(), std::span<const float>(x)), inf);
    EXPECT_EQ(sum_by<KahanTotal<fp16>>(portable(), std::span<const float>(x)), inf);
    const auto one = ones<float>(x.size());
    EXPECT_EQ(dot_by<KahanTotal<float>>(portable(), std::span<const float>(x), one), inf);
  }
  const std::vector<float> both{inf, -inf};
  EXPECT_TRUE(std::isnan(sum_by<KahanTotal<float>>(portable(), std::span<const float>(both))));
}
TEST(KahanTotal, KeepsWhatAFloatTotalLosesWithThisCompilersFlags) {
  std::vector<float> x(1001, 1.0F);
  x[0] = 0x1p24F;
  const std::span<const float> span(x);
  EXPECT_EQ(sum_by<TotalIn<float>>(portable(), span), 0x1p24F);
  EXPECT_EQ(sum_by<KahanTotal<float>>(portable(), span), 0x1p24F + 1000.0F);
  EXPECT_EQ(sum_by<TotalIn<double>>(portable(), span), 0x1p24 + 1000.0);
  const auto one = ones<float>(x.size());
  EXPECT_EQ(dot_by<KahanTotal<float>>(portable(), span, one), 0x1p24F + 1000.0F);
}
TEST(RunningTotal, InHalvesIsThatOfGxxsOwnHalf) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::int64_t n = 1 + static_cast<std::int64_t>(seed) * 37;
    const auto a = values<fp16>(n, seed), b = values<fp16>(n, seed + 100);
    std::vector<std::uint16_t> x, y;
    for (std::size_t i = 0; i < a.size(); ++i) {
      x.push_back(a[i].bits());
      y.push_back(b[i].bits());
    }
    const std::span<const fp16> span(a);
    EXPECT_EQ(dot_by<TotalIn<fp16>>(portable(), span, b),
              oracle_fp16_dot(x.data(), y.data(), x.size()));
    EXPECT_EQ((sum_by<TotalInChunks<fp16, 64>>(portable(), span)),
              oracle_fp16_chunked_sum(x.data(), x.size(), 64));
    EXPECT_EQ((sum_by<TotalInChunks<fp16, 7>>(portable(), span)),
              oracle_fp16_chunked_sum(x.data(), x.size(), 7));
  }
}

template <class E>
void is_the_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto a = values<E>(m * k, 1), b = values<E>(k * n, 2);
  const auto left = core::row_major(a.data(), m, k), right = core::row_major(b.data(), k, n);
  using A = accumulator_t<E>;
  std::vector<A> wanted(static_cast<std::size_t>(m * n));
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(gemm_workspace<E>(portable(), m, n, k)));
  gemm<E, A>(portable(), left, right, wanted.data(), n, {}, workspace);
  every_compute([&](const Compute& compute, const std::string& name) {
    std::vector<A> got(wanted.size());
    product_by<TotalIn<A>>(compute, left, right, core::row_major(got.data(), m, n));
    EXPECT_SAME_BITS(got, wanted) << name;
  });
  std::vector<A> narrow(wanted.size());
  product_by<TotalIn<bf16>>(portable(), left, right, core::row_major(narrow.data(), m, n));
  EXPECT_FALSE(difference(narrow, wanted).empty());
}
TEST(RunningTotal, InFloatIsTheLibrarysProductBitForBit) {
  for (const std::int64_t k : {33, 64, 301}) {
    is_the_product<float>(5, 7, k);
    is_the_product<fp16>(5, 7, k);
    is_the_product<bf16>(5, 7, k);
    is_the_product<double>(5, 7, k);
  }
}

// A total of one's own.
struct Largest {
  void add(float x) { largest = std::max(largest, x); }
  void add_product(float a, float b) { add(a * b); }
  float value() const { return largest; }
  float largest = 0.0F;
};
TEST(RunningTotal, MayBeOnesOwn) {
  const std::vector<float> x{1.0F, 5.0F, 2.0F};
  EXPECT_EQ(sum_by<Largest>(portable(), std::span<const float>(x)), 5.0F);
}
TEST(RunningTotalErrors, NameTheShapes) {
  const std::vector<float> two(2), three(3);
  float c = 0.0F;
  EXPECT_THROW((void)dot_by(portable(), std::span<const float>(two), three), ShapeError);
  EXPECT_EQ(message_of<ShapeError>([&] {
              product_by(portable(), core::row_major(two.data(), 1, 2),
                         core::row_major(three.data(), 3, 1), core::row_major(&c, 1, 1));
            }),
            "product_by: a is [1, 2], b [3, 1] and c [1, 1], wanted [m, k], [k, n] and [m, n]. Is "
            "one of them transposed?");
}

}  // namespace
