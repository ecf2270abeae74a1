// SPDX-License-Identifier: MIT
#include <halfstep/kernels/attention.hpp>

#include <limits>

#include <halfstep/core/counters.hpp>
#include <halfstep/numeric/elementary.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
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

/// What attention.hpp defines, in plain loops.
template <class E>
struct Reference {
  using A = accumulator_t<E>;
  std::vector<E> out, dqkv;
  std::vector<A> lse;

  Reference(const AttentionShape& s, const std::vector<E>& qkv, const std::vector<E>& dout)
      : out(z(s.rows() * s.channels())), dqkv(qkv.size()), lse(z(s.rows() * s.heads)) {
    const std::int64_t T = s.tokens, W = s.width, C = s.channels();
    const A scale = A{1} / std::sqrt(static_cast<A>(W));
    const auto rounded = [](A a) { return static_cast<A>(static_cast<E>(a)); };
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
              w = rounded(w);
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
            p[z(i)].push_back(rounded(weight));
            ds[z(i)].push_back(rounded(times(times(weight, dp - row_term), scale)));
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
         const std::vector<E>& dout) {
    Guarded<E> gqkv(qkv), gdout(dout), gout(s.rows() * s.channels()),
        gd(s.rows() * 3 * s.channels());
    Guarded<A> glse(s.rows() * s.heads);
    // Full of NaN: nothing may be read that was not written.
    Guarded<std::byte> forward(kernels::attention_workspace<E>(s, compute.threads()),
                               std::byte{0xFF});
    Guarded<std::byte> backward(kernels::attention_backward_workspace<E>(s, compute.threads()),
                                std::byte{0xFF});
    kernels::attention<E>(compute, s, gqkv, gout, glse, forward);
    kernels::attention_backward<E>(compute, s, gdout, gout, gqkv, glse, gd, backward);
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
  std::vector<float> dqkv(71);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::attention_backward<float>(portable(), s, out, out, qkv, lse, dqkv,
                                                 workspace);
            }).find("attention_backward: qkv has 71 elements"),
            std::string::npos);
}

}  // namespace
