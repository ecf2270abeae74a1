// SPDX-License-Identifier: MIT
#include <halfstep/kernels/attention.hpp>

#include <limits>
#include <utility>

#include <gmock/gmock.h>

#include <halfstep/core/counters.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/numeric/elementary.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::OptionError;
using halfstep::ShapeError;
using halfstep::kernels::AttentionDropout;
using halfstep::kernels::AttentionShape;
namespace kernels = halfstep::kernels;
namespace numeric = halfstep::numeric;

std::size_t z(std::int64_t i) { return static_cast<std::size_t>(i); }
std::string text(const AttentionShape& s) {
  return "batch " + std::to_string(s.batch) + ", tokens " + std::to_string(s.tokens) + ", heads " +
         std::to_string(s.heads) + ", width " + std::to_string(s.width);
}

/// Continues a chain over k in [begin, end): one by one, or for bf16 in pairs of absolute even k
/// and its neighbour, the odd one first, absent ones as zeros.
template <class E, class A, class Left, class Right>
A chain(A acc, std::int64_t begin, std::int64_t end, Left left, Right right) {
  if constexpr (std::is_same_v<E, bf16>) {
    const auto product = [&](std::int64_t k) {
      const bool inside = k >= begin && k < end;
      acc = inside ? std::fma(left(k), right(k), acc) : std::fma(A{0}, A{0}, acc);
    };
    for (std::int64_t k = begin - begin % 2; k < end; k += 2) {
      product(k + 1);
      product(k);
    }
  } else {
    for (std::int64_t k = begin; k < end; ++k)
      acc = std::fma(left(k), right(k), acc);
  }
  return acc;
}

/// Whether the mask keeps key j for query i of sequence b's head h.
bool keeps(const AttentionDropout& drop, const AttentionShape& s, std::int64_t b, std::int64_t h,
           std::int64_t i, std::int64_t j) {
  const std::uint64_t head = (drop.first_sample + z(b)) * z(s.heads) + z(h);
  const std::uint64_t element = head * z(s.tokens) * z(s.tokens) + z(i * s.tokens + j);
  return static_cast<double>(halfstep::core::random_bits(drop.seed, drop.stream, element)) >=
         static_cast<double>(drop.probability) * 0x1p32;
}

/// What attention.hpp defines, in plain loops.
template <class E>
struct Reference {
  using A = accumulator_t<E>;
  std::vector<E> out, dqkv;
  std::vector<A> lse;

  Reference(const AttentionShape& s, const std::vector<E>& qkv, const std::vector<E>& dout,
            const AttentionDropout& drop = {})
      : out(z(s.rows() * s.channels())), dqkv(qkv.size()), lse(z(s.rows() * s.heads)) {
    const std::int64_t T = s.tokens, W = s.width, C = s.channels();
    const A scale = A{1} / std::sqrt(static_cast<A>(W));
    const auto rounded = [](A a) { return static_cast<A>(static_cast<E>(a)); };
    const A factor = static_cast<A>(1 / (1 - static_cast<double>(drop.probability)));
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const auto in = [&](int third, std::int64_t t, std::int64_t d) {
          return static_cast<A>(qkv[z((b * T + t) * 3 * C + third * C + h * W + d)]);
        };
        const auto at_out = [&](std::int64_t t, std::int64_t d) {
          return z((b * T + t) * C + h * W + d);
        };
        const auto score = [&](std::int64_t i, std::int64_t j) {
          return times(chain<E>(
                           A{0}, 0, W, [&](std::int64_t d) { return in(0, i, d); },
                           [&](std::int64_t d) { return in(1, j, d); }),
                       scale);
        };
        const auto dropped = [&](std::int64_t i, std::int64_t j, A a) {
          return keeps(drop, s, b, h, i, j) ? times(a, factor) : A{0};
        };
        std::vector<std::vector<A>> p(z(T)), ds(z(T));  // [query][key], rounded to E
        for (std::int64_t i = 0; i < T; ++i) {
          std::vector<A> o(z(W));
          A m = -std::numeric_limits<A>::infinity(), sum = 0;
          for (std::int64_t first = 0; first <= i; first += 64) {
            const std::int64_t last = std::min(i + 1, first + 64);
            std::vector<A> weight(z(last - first));
            A next = m;
            for (std::int64_t j = first; j < last; ++j) {
              weight[z(j - first)] = score(i, j);
              next = std::max(next, weight[z(j - first)]);
            }
            Lanes<A> lanes;
            for (std::int64_t j = first; j < last; ++j) {
              A& w = weight[z(j - first)];
              w = numeric::exp(w - next);
              lanes.add(j - first, w);
              w = rounded(dropped(i, j, w));
            }
            const A shrink = first == 0 ? A{0} : numeric::exp(m - next);
            sum = first == 0 ? lanes.sum() : std::fma(sum, shrink, lanes.sum());
            for (std::int64_t d = 0; d < W; ++d) {
              o[z(d)] = chain<E>(
                  times(o[z(d)], shrink), 0, last - first,
                  [&](std::int64_t j) { return weight[z(j)]; },
                  [&](std::int64_t j) { return in(2, first + j, d); });
            }
            m = next;
          }
          for (std::int64_t d = 0; d < W; ++d)
            out[at_out(i, d)] = static_cast<E>(o[z(d)] / sum);
          const A saved = m + log_of_sum(sum);
          lse[z((b * s.heads + h) * T + i)] = saved;
          Lanes<A> along;
          for (std::int64_t d = 0; d < W; ++d) {
            along.set_fma(d, static_cast<A>(dout[at_out(i, d)]), static_cast<A>(out[at_out(i, d)]));
          }
          const A row_term = along.sum();
          for (std::int64_t j = 0; j <= i; ++j) {
            const A weight = numeric::exp(score(i, j) - saved);
            const A dp = chain<E>(
                A{0}, 0, W, [&](std::int64_t d) { return static_cast<A>(dout[at_out(i, d)]); },
                [&](std::int64_t d) { return in(2, j, d); });
            p[z(i)].push_back(rounded(dropped(i, j, weight)));
            ds[z(i)].push_back(
                rounded(times(times(weight, dropped(i, j, dp) - row_term), scale)));
          }
        }
        for (std::int64_t t = 0; t < T; ++t) {
          for (std::int64_t d = 0; d < W; ++d) {
            E* to = dqkv.data() + (b * T + t) * 3 * C + h * W + d;
            to[0] = static_cast<E>(chain<E>(
                A{0}, 0, t + 1, [&](std::int64_t j) { return ds[z(t)][z(j)]; },
                [&](std::int64_t j) { return in(1, j, d); }));
            to[C] = static_cast<E>(chain<E>(
                A{0}, t, T, [&](std::int64_t i) { return ds[z(i)][z(t)]; },
                [&](std::int64_t i) { return in(0, i, d); }));
            to[2 * C] = static_cast<E>(chain<E>(
                A{0}, t, T, [&](std::int64_t i) { return p[z(i)][z(t)]; },
                [&](std::int64_t i) { return static_cast<A>(dout[at_out(i, d)]); }));
          }
        }
      }
    }
  }
};

template <class E>
struct Result {
  using A = accumulator_t<E>;
  std::vector<E> out, dqkv;
  std::vector<A> lse;

  Result(const Compute& compute, const AttentionShape& s, const std::vector<E>& qkv,
         const std::vector<E>& dout, const AttentionDropout& drop = {}) {
    Guarded<E> gqkv(qkv), gdout(dout), gout(s.rows() * s.channels()),
        gd(s.rows() * 3 * s.channels());
    Guarded<A> glse(s.rows() * s.heads);
    // Full of NaN: nothing may be read that was not written.
    Guarded<std::byte> forward(kernels::attention_workspace<E>(s, compute.threads()),
                               std::byte{0xFF});
    Guarded<std::byte> backward(kernels::attention_backward_workspace<E>(s, compute.threads()),
                                std::byte{0xFF});
    kernels::attention<E>(compute, s, gqkv, gout, glse, forward, drop);
    kernels::attention_backward<E>(compute, s, gdout, gout, gqkv, glse, gd, backward, drop);
    out = gout.copy();
    dqkv = gd.copy();
    lse = glse.copy();
  }
};

template <class E>
class Attention : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Attention, Elements);

TYPED_TEST(Attention, EveryPathAndThreadCountGivesTheBitsOfThePlainLoop) {
  using E = TypeParam;
  std::vector<AttentionShape> shapes{
      {1, 200, 1, 8}, {2, 70, 3, 5}, {1, 130, 2, 33}, {1, 65, 1, 80}, {3, 64, 2, 16}};
  for (std::int64_t tokens = 1; tokens <= 70; tokens += tokens < 20 ? 1 : 7)
    shapes.push_back({1, tokens, 2, 7});
  for (std::int64_t width : {1, 2, 3, 15, 16, 17, 31, 32, 48, 63, 64, 65, 100})
    shapes.push_back({1, 19, 1, width});
  for (const AttentionShape& s : shapes) {
    const auto qkv = values<E>(s.rows() * 3 * s.channels(), 1, 1.5);
    const auto dout = values<E>(s.rows() * s.channels(), 2);
    const Reference<E> wanted(s, qkv, dout);
    every_compute([&](const Compute& compute, const std::string& name) {
      SCOPED_TRACE(name + ", " + text(s));
      const Result<E> run(compute, s, qkv, dout);
      ASSERT_SAME_BITS(run.out, wanted.out);
      ASSERT_SAME_BITS(run.lse, wanted.lse);
      ASSERT_SAME_BITS(run.dqkv, wanted.dqkv);
    });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(Attention, OfTheLastTokensIsThatOfThePlainLoopHoweverManyTheyAre) {
  using E = TypeParam;
  for (const AttentionShape& s : {AttentionShape{1, 1, 1, 1}, AttentionShape{2, 67, 3, 5},
                                  AttentionShape{1, 131, 2, 17}, AttentionShape{1, 64, 1, 33},
                                  AttentionShape{1, 193, 1, 16}}) {
    const std::int64_t C = s.channels();
    const auto qkv = values<E>(s.rows() * 3 * C, 1, 1.5);
    const Reference<E> wanted(s, qkv, std::vector<E>(z(s.rows() * C)));
    std::vector<E> kept;
    for (std::int64_t t = 0; t < s.rows(); ++t)
      kept.insert(kept.end(), qkv.begin() + t * 3 * C + C, qkv.begin() + (t + 1) * 3 * C);
    for (const std::int64_t last : {std::int64_t{1}, std::int64_t{2}, std::int64_t{66}, s.tokens}) {
      if (last > s.tokens) continue;
      std::vector<E> queries, out;
      for (std::int64_t t = 0; t < s.rows(); ++t) {
        if (t % s.tokens < s.tokens - last) continue;
        queries.insert(queries.end(), qkv.begin() + t * 3 * C, qkv.begin() + t * 3 * C + C);
        out.insert(out.end(), wanted.out.begin() + t * C, wanted.out.begin() + (t + 1) * C);
      }
      every_compute([&](const Compute& compute, const std::string& name) {
        SCOPED_TRACE(name + ", " + text(s) + ", last " + std::to_string(last));
        Guarded<E> gq(queries), gkept(kept), gout(std::ssize(out));
        Guarded<std::byte> work(kernels::attention_workspace<E>(s, compute.threads()),
                                std::byte{0xFF});
        halfstep::core::Counters counters;
        Compute counted = compute;
        counted.counters = &counters;
        kernels::attention_of_last<E>(counted, s, gq, gkept, gout, work);
        ASSERT_SAME_BITS(gout.copy(), out);
        std::int64_t pairs = 0;
        for (std::int64_t t = s.tokens - last; t < s.tokens; ++t) pairs += t + 1;
        ASSERT_EQ(counters.flops, static_cast<std::uint64_t>(4 * s.batch * C * pairs));
        kernels::attention_of_last<E>(compute, s, gq, gkept, gq, work);  // in place
        ASSERT_SAME_BITS(gq.copy(), out);
      });
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Attention, IsTheSoftmaxOfTheTextbook) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  const double unit = std::is_same_v<E, bf16>    ? 0x1p-8
                      : std::is_same_v<E, fp16>  ? 0x1p-11
                      : std::is_same_v<E, float> ? 0x1p-22
                                                 : 0x1p-50;
  for (const AttentionShape& s : {AttentionShape{2, 150, 2, 24}, AttentionShape{1, 65, 3, 9}}) {
    const auto qkv = values<E>(s.rows() * 3 * s.channels(), 3, 3.0);
    std::vector<E> out(z(s.rows() * s.channels()));
    std::vector<A> lse(z(s.rows() * s.heads));
    std::vector<std::byte> workspace(z(kernels::attention_workspace<E>(s, 1)));
    kernels::attention<E>(widest(), s, qkv, out, lse, workspace);
    const std::int64_t C = s.channels();
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t i = 0; i < s.tokens; ++i) {
          const auto in = [&](int third, std::int64_t t, std::int64_t d) {
            return static_cast<double>(
                qkv[z((b * s.tokens + t) * 3 * C + third * C + h * s.width + d)]);
          };
          std::vector<double> p;
          double sum = 0;
          for (std::int64_t j = 0; j <= i; ++j) {
            double dot = 0;
            for (std::int64_t d = 0; d < s.width; ++d)
              dot += in(0, i, d) * in(1, j, d);
            p.push_back(std::exp(dot / std::sqrt(static_cast<double>(s.width))));
            sum += p.back();
          }
          ASSERT_NEAR(static_cast<double>(lse[z((b * s.heads + h) * s.tokens + i)]), std::log(sum),
                      sizeof(E) == 8 ? 1e-13 : 2e-5);
          for (std::int64_t d = 0; d < s.width; ++d) {
            double value = 0;
            for (std::int64_t j = 0; j <= i; ++j)
              value += p[z(j)] / sum * in(2, j, d);
            ASSERT_NEAR(static_cast<double>(out[z((b * s.tokens + i) * C + h * s.width + d)]),
                        value, 12 * unit);
          }
        }
      }
    }
  }
}

TEST(AttentionKernel, TheDoubleBackwardIsTheSlopeOfItsForward) {
  const AttentionShape s{1, 67, 2, 3};
  auto qkv = values<double>(s.rows() * 3 * s.channels(), 1, 1.5);
  const auto dout = values<double>(s.rows() * s.channels(), 2);
  std::vector<double> out(dout.size()), lse(z(s.rows() * s.heads)), dqkv(qkv.size());
  std::vector<std::byte> workspace(z(kernels::attention_backward_workspace<double>(s, 1)));
  const Compute c = widest();
  const auto loss = [&] {
    kernels::attention<double>(c, s, qkv, out, lse, workspace);
    double total = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      total += out[i] * dout[i];
    return total;
  };
  loss();
  kernels::attention_backward<double>(c, s, dout, out, qkv, lse, dqkv, workspace);
  for (std::size_t i = 0; i < qkv.size(); i += 5) {
    const double old = qkv[i];
    qkv[i] = old + 1e-6;
    const double up = loss();
    qkv[i] = old - 1e-6;
    const double down = loss();
    qkv[i] = old;
    ASSERT_NEAR(dqkv[i], (up - down) / 2e-6, 2e-8) << i;
  }
}

TEST(AttentionKernel, ATokenReachesNoRowBeforeIt) {
  const AttentionShape s{1, 90, 1, 6};
  const auto qkv = values<bf16>(s.rows() * 3 * s.channels(), 1);
  std::vector<bf16> out(z(s.rows() * s.channels())), changed(out);
  std::vector<float> lse(z(s.rows()));
  std::vector<std::byte> workspace(z(kernels::attention_workspace<bf16>(s, 1)));
  kernels::attention<bf16>(widest(), s, qkv, out, lse, workspace);
  for (const std::int64_t t : {0, 1, 3, 4, 17, 63, 64, 89}) {
    auto other = qkv;
    for (std::int64_t j = 0; j < 18; ++j)
      other[z(t * 18 + j)] = std::numeric_limits<bf16>::quiet_NaN();
    kernels::attention<bf16>(widest(), s, other, changed, lse, workspace);
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      for (std::int64_t d = 0; d < 6; ++d) {
        const float before = static_cast<float>(out[z(i * 6 + d)]),
                    after = static_cast<float>(changed[z(i * 6 + d)]);
        if (i < t) {
          ASSERT_EQ(before, after) << "row " << i << " saw token " << t;
        } else {
          ASSERT_TRUE(std::isnan(after)) << "row " << i << " did not see token " << t;
        }
      }
    }
  }
}

TEST(AttentionKernel, LargeScoresDoNotOverflowAndTheLargestKeyWins) {
  // Scores up to 1e4 in both directions over three tiles; the running maximum rises and stays.
  const AttentionShape s{1, 180, 1, 1};
  std::vector<float> qkv(z(s.rows() * 3));
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    qkv[z(3 * t)] = 100;
    qkv[z(3 * t + 1)] = static_cast<float>((t * 37) % 180) - 90;
    qkv[z(3 * t + 2)] = static_cast<float>(t);
  }
  std::vector<float> out(z(s.rows())), lse(z(s.rows()));
  std::vector<std::byte> workspace(z(kernels::attention_workspace<float>(s, 1)));
  kernels::attention<float>(widest(), s, qkv, out, lse, workspace);
  std::int64_t best = 0;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    if (qkv[z(3 * t + 1)] > qkv[z(3 * best + 1)]) best = t;
    EXPECT_EQ(out[z(t)], static_cast<float>(best));
    EXPECT_EQ(lse[z(t)], 100 * qkv[z(3 * best + 1)]);
  }
}

TEST(AttentionKernel, GradientsMayOverwriteTheirInput) {
  const AttentionShape s{2, 75, 3, 10};
  auto qkv = values<bf16>(s.rows() * 3 * s.channels(), 1);
  const auto dout = values<bf16>(s.rows() * s.channels(), 2);
  const Result<bf16> apart(widest(), s, qkv, dout);
  std::vector<std::byte> workspace(z(kernels::attention_backward_workspace<bf16>(s, 1)));
  kernels::attention_backward<bf16>(widest(), s, dout, apart.out, qkv, apart.lse, qkv, workspace);
  EXPECT_SAME_BITS(qkv, apart.dqkv);
}

TEST(AttentionKernel, QueriesKeysValuesAndHeadsAreNotInterchangeable) {
  const AttentionShape s{1, 20, 2, 4};
  const auto qkv = values<float>(s.rows() * 24, 1);
  const auto dout = values<float>(s.rows() * 8, 2);
  auto swapped = qkv;
  for (std::int64_t t = 0; t < 20; ++t)
    std::swap_ranges(&swapped[z(t * 24)], &swapped[z(t * 24 + 8)], &swapped[z(t * 24 + 8)]);
  const Result<float> a(widest(), s, qkv, dout), b(widest(), s, swapped, dout);
  EXPECT_NE(a.out, b.out);
  const Result<float> c(widest(), {1, 20, 1, 8}, qkv, dout);
  EXPECT_NE(a.out, c.out);
  const Result<float> d(widest(), {2, 10, 2, 4}, qkv, dout);
  EXPECT_NE(a.out, d.out);
}

TEST(AttentionKernel, WorkspaceGrowsLinearlyAndFlopsAreCounted) {
  for (const std::int64_t tokens : {1, 33, 64, 100, 1024}) {
    const AttentionShape one{4, tokens, 3, 20}, two{4, 2 * tokens, 3, 20}, batch{8, tokens, 3, 20};
    EXPECT_LE(kernels::attention_workspace<bf16>(two, 2) * 10,
              kernels::attention_workspace<bf16>(one, 2) * 21);
    EXPECT_LE(kernels::attention_backward_workspace<bf16>(two, 2) * 10,
              kernels::attention_backward_workspace<bf16>(one, 2) * 21);
    EXPECT_EQ(kernels::attention_workspace<bf16>(batch, 2),
              kernels::attention_workspace<bf16>(one, 2));
  }
  // 2 products x 2 x width 4 x (1 + 2 + 3) pairs x 2 sequences x 5 heads.
  const AttentionShape s{2, 3, 5, 4};
  EXPECT_EQ(kernels::attention_flops(s), 2 * 2 * 4 * 6 * 2 * 5);
  EXPECT_EQ(kernels::attention_backward_flops(s), 5 * 2 * 4 * 6 * 2 * 5);
  halfstep::core::Counters counters;
  Compute c = widest();
  c.counters = &counters;
  const auto qkv = values<float>(s.rows() * 60, 1), dout = values<float>(s.rows() * 20, 1);
  const Result<float> run(c, s, qkv, dout);
  EXPECT_EQ(counters.flops, 7U * 2 * 4 * 6 * 2 * 5);
}

TEST(AttentionKernel, ErrorsNameTheSizes) {
  const AttentionShape s{1, 3, 2, 4};
  const std::vector<float> qkv(72);
  std::vector<float> out(24), lse(6);
  std::vector<std::byte> workspace(z(kernels::attention_workspace<float>(s, 1)));
  EXPECT_EQ(message_of<ShapeError>([&] {
              kernels::attention<float>(portable(), s, std::span(qkv).first(48), out, lse,
                                        workspace);
            }),
            "attention: qkv has 48 elements, out 24 and lse 6; batch 1 x tokens 3 x heads 2 x "
            "width 4 wants 72, 24 "
            "and 6. Does the projection in front make three times the channels?");
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::attention<float>(portable(), {1, 3, 0, 4}, qkv, out, lse, workspace);
            }).find("attention: batch 1, tokens 3, heads 0, width of a head 4"),
            std::string::npos);
  const auto small = std::span(workspace).first(workspace.size() - 1);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::attention<float>(portable(), s, qkv, out, lse, small);
            }).find("bytes; 1 threads and 3 tokens want " + std::to_string(workspace.size())),
            std::string::npos);
  for (const auto& sizes : {std::pair{7, 48}, {8, 47}, {0, 48}, {32, 48}}) {
    std::vector<float> q(z(sizes.first));
    const auto kept = std::span(qkv).first(z(sizes.second));
    EXPECT_THAT(message_of<ShapeError>([&] {
                  kernels::attention_of_last<float>(portable(), s, q, kept, q, workspace);
                }),
                testing::HasSubstr("wants keys_values of 48, and queries and out of 8 for each"));
  }
  std::vector<float> dqkv(71);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::attention_backward<float>(portable(), s, out, out, qkv, lse, dqkv,
                                                 workspace);
            }).find("attention_backward: qkv has 71 elements"),
            std::string::npos);
}

TYPED_TEST(Attention, DroppedProbabilitiesHaveTheBitsOfThePlainLoopOnEveryPath) {
  using E = TypeParam;
  std::vector<AttentionShape> shapes{
      {1, 1, 1, 1}, {1, 2, 3, 5}, {3, 17, 2, 7}, {2, 63, 1, 16}, {2, 65, 3, 5}, {1, 150, 2, 19}};
  for (const AttentionShape& s : shapes) {
    const auto qkv = values<E>(s.rows() * 3 * s.channels(), 1, 1.5);
    const auto dout = values<E>(s.rows() * s.channels(), 2);
    for (const AttentionDropout& drop :
         {AttentionDropout{.probability = 0.3F, .seed = 5, .stream = 6, .first_sample = 3},
          AttentionDropout{.probability = 0.9F, .seed = std::uint64_t{7} << 40,
                           .stream = ~std::uint64_t{8}, .first_sample = std::uint64_t{1} << 35}}) {
      const Reference<E> wanted(s, qkv, dout, drop);
      every_compute([&](const Compute& compute, const std::string& name) {
        SCOPED_TRACE(name + ", " + text(s) + ", p " + std::to_string(drop.probability));
        const Result<E> run(compute, s, qkv, dout, drop);
        ASSERT_SAME_BITS(run.out, wanted.out);
        ASSERT_SAME_BITS(run.lse, wanted.lse);
        ASSERT_SAME_BITS(run.dqkv, wanted.dqkv);
      });
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(AttentionKernel, TheDoubleBackwardWithDropoutIsTheSlopeOfItsForward) {
  const AttentionShape s{2, 67, 2, 3};
  const AttentionDropout drop{.probability = 0.4F, .seed = 1, .stream = 2, .first_sample = 9};
  auto qkv = values<double>(s.rows() * 3 * s.channels(), 1, 1.5);
  const auto dout = values<double>(s.rows() * s.channels(), 2);
  std::vector<double> out(dout.size()), lse(z(s.rows() * s.heads));
  std::vector<std::byte> workspace(z(kernels::attention_workspace<double>(s, 1)));
  const auto loss = [&] {
    kernels::attention<double>(widest(), s, qkv, out, lse, workspace, drop);
    double total = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      total += out[i] * dout[i];
    return total;
  };
  const Result<double> at(widest(), s, qkv, dout, drop);
  for (std::size_t i = 0; i < qkv.size(); i += 5) {
    const double old = qkv[i];
    qkv[i] = old + 1e-6;
    const double up = loss();
    qkv[i] = old - 1e-6;
    const double down = loss();
    qkv[i] = old;
    ASSERT_NEAR(at.dqkv[i], (up - down) / 2e-6, 4e-8) << i;
  }
}

/// Queries and keys of zero, so that query i gives each key 1 / (i + 1), and values by which one
/// sees in out[i] which keys were kept: key j in column j.
std::vector<float> uniform_attention(const AttentionShape& s) {
  std::vector<float> qkv(z(s.rows() * 3 * s.channels()));
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    for (std::int64_t h = 0; h < s.heads; ++h)
      qkv[z(row * 3 * s.channels() + 2 * s.channels() + h * s.width + row % s.tokens)] = 1;
  }
  return qkv;
}

TEST(AttentionKernel, TheWantedShareIsDroppedAndTheRestIsDividedByOneLessThat) {
  const AttentionShape s{2, 200, 3, 200};
  const auto qkv = uniform_attention(s);
  const std::vector<float> dout(z(s.rows() * s.channels()), 1.0F);
  for (const float p : {0.0F, 0.1F, 0.5F, 0.8F}) {
    const Result<float> run(widest(), s, qkv, dout, {.probability = p, .seed = 3});
    std::int64_t dropped = 0, pairs = 0;
    for (std::int64_t row = 0; row < s.rows(); ++row) {
      const std::int64_t i = row % s.tokens;
      for (std::int64_t c = 0; c < s.channels(); ++c) {
        const std::int64_t j = c % s.width;
        const float o = run.out[z(row * s.channels() + c)];
        if (j > i || o == 0) {
          ASSERT_EQ(o, 0);
          dropped += j <= i;
        } else {
          ASSERT_NEAR(o * static_cast<float>(i + 1), 1 / (1 - p), 1e-5);
        }
        pairs += j <= i;
      }
      ASSERT_NEAR(run.lse[z(row / s.tokens * s.heads * s.tokens + i)],
                  std::log(static_cast<float>(i + 1)), 1e-6);
    }
    const double share = static_cast<double>(dropped) / static_cast<double>(pairs);
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(pairs));
    EXPECT_NEAR(share, p, 4 * deviation) << "of " << pairs;
    EXPECT_EQ(dropped == 0, p == 0.0F);
  }
}

TEST(AttentionKernel, TheMaskIsAFunctionOfSeedStreamSampleHeadQueryAndKey) {
  const AttentionShape s{3, 70, 2, 70};
  const auto qkv = uniform_attention(s);
  const auto dout = values<float>(s.rows() * s.channels(), 2);
  const auto run = [&](const AttentionDropout& drop) {
    return Result<float>(widest(), s, qkv, dout, drop);
  };
  const AttentionDropout drop{.probability = 0.5F, .seed = 3, .stream = 4, .first_sample = 5};
  const auto base = run(drop);
  EXPECT_SAME_BITS(run(drop).dqkv, base.dqkv);
  auto seed = drop, stream = drop, sample = drop, share = drop, none = drop;
  seed.seed = 4;
  stream.stream = 5;
  sample.first_sample = 6;
  share.probability = 0.6F;
  none.probability = 0;
  for (const AttentionDropout& other : {seed, stream, sample, share, none}) {
    const auto changed = run(other);
    EXPECT_NE(changed.out, base.out);
    EXPECT_NE(changed.dqkv, base.dqkv);
    EXPECT_SAME_BITS(changed.lse, base.lse);
  }
  // Without dropout the other options are nothing.
  auto none_either = seed;
  none_either.probability = 0;
  EXPECT_SAME_BITS(run(none_either).dqkv, run(none).dqkv);

  // Samples 6 and 7 alone have what they had as the second and third of three from sample 5 on.
  const AttentionShape two{2, s.tokens, s.heads, s.width};
  const auto skip = s.tokens * s.channels();
  const Result<float> part(widest(), two, {qkv.begin() + 3 * skip, qkv.end()},
                           {dout.begin() + skip, dout.end()}, sample);
  EXPECT_SAME_BITS(part.out, (std::vector<float>(base.out.begin() + skip, base.out.end())));
  EXPECT_SAME_BITS(part.dqkv, (std::vector<float>(base.dqkv.begin() + 3 * skip, base.dqkv.end())));

  // Sequences, heads, queries and keys draw apart: no two rows of 64 keys agree.
  std::vector<std::vector<bool>> rows;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    for (std::int64_t h = 0; h < s.heads && row % s.tokens >= 63; ++h) {
      std::vector<bool> kept;
      for (std::int64_t j = 0; j < 64; ++j)
        kept.push_back(base.out[z(row * s.channels() + h * s.width + j)] != 0);
      EXPECT_EQ(std::count(rows.begin(), rows.end(), kept), 0) << row << ", " << h;
      rows.push_back(kept);
    }
  }
}

TEST(AttentionKernel, ADroppedKeysValueReachesNothing) {
  const AttentionShape s{1, 90, 1, 6};
  const AttentionDropout drop{.probability = 0.5F, .seed = 11, .stream = 12, .first_sample = 13};
  const auto qkv = values<bf16>(s.rows() * 18, 1);
  const auto dout = values<bf16>(s.rows() * 6, 2);
  const Result<bf16> base(widest(), s, qkv, dout, drop);
  for (const std::int64_t key : {0, 17, 64, 88}) {
    auto other = qkv;
    for (std::int64_t d = 0; d < 6; ++d) {
      auto& value = other[z(key * 18 + 12 + d)];
      value = static_cast<bf16>(static_cast<float>(value) + 1);
    }
    const Result<bf16> changed(widest(), s, other, dout, drop);
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      const auto row = [&](const std::vector<bf16>& all, std::int64_t width) {
        return std::vector<bf16>(all.begin() + i * width, all.begin() + i * width + 6);
      };
      const bool reached = i >= key && keeps(drop, s, 0, 0, i, key);
      EXPECT_EQ(!difference(row(base.out, 6), row(changed.out, 6)).empty(), reached) << i;
      // The query's gradient takes the key's value by dp and out: neither does where it is dropped.
      if (reached) continue;
      EXPECT_SAME_BITS(row(base.dqkv, 18), row(changed.dqkv, 18)) << i;
    }
  }
}

TEST(AttentionKernel, AProbabilityOutsideItsRangeIsNamed) {
  const AttentionShape s{1, 3, 2, 4};
  const std::vector<float> qkv(72);
  std::vector<float> out(24), lse(6), dqkv(72);
  std::vector<std::byte> workspace(z(kernels::attention_backward_workspace<float>(s, 1)));
  for (const float p : {1.0F, -0.1F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_NE(message_of<OptionError>([&] {
                kernels::attention<float>(portable(), s, qkv, out, lse, workspace,
                                          {.probability = p});
              }).find("attention: p is " + halfstep::core::text(p) + "; wanted at least 0"),
              std::string::npos);
    EXPECT_NE(message_of<OptionError>([&] {
                kernels::attention_backward<float>(portable(), s, out, out, qkv, lse, dqkv,
                                                   workspace, {.probability = p});
              }).find("attention_backward: p is "),
              std::string::npos);
  }
}

}  // namespace
