// SPDX-License-Identifier: MIT
#include <halfstep/kernels/adamw.hpp>

#include <cmath>
#include <limits>

#include <halfstep/core/float_environment.hpp>

#include "cases.hpp"
#include "torch_problem.hpp"

namespace {

using namespace cases;
using halfstep::OptionError;
using halfstep::ShapeError;
using halfstep::kernels::adamw_step;
using halfstep::kernels::AdamWOptions;

template <class P, class Copy>
struct State {
  std::vector<P> w, m, v;
  std::vector<Copy> copy;
};

// Three steps from values, each with its gradient.
template <class P, class Copy>
State<P, Copy> three_steps(const Compute& compute, std::int64_t n, const AdamWOptions& options,
                           double factor = 0.37, unsigned mxcsr = 0x1F80) {
  Guarded<P> w(values<P>(n, 1)), m(n), v(n);
  Guarded<Copy> copy(n);
  for (int step = 1; step <= 3; ++step) {
    Guarded<P> g(values<P>(n, 10 + static_cast<std::uint64_t>(step), 0.01));
    const unsigned saved = halfstep::core::read_mxcsr();
    halfstep::core::write_mxcsr(mxcsr);
    adamw_step<P, Copy>(compute, options, step, factor, w, g, m, v, copy);
    halfstep::core::write_mxcsr(saved);
  }
  return {w.copy(), m.copy(), v.copy(), copy.copy()};
}

template <class P>
State<P, P> reference(std::int64_t n, const AdamWOptions& o, double factor) {
  State<P, P> s{values<P>(n, 1),
                std::vector<P>(static_cast<std::size_t>(n)),
                std::vector<P>(static_cast<std::size_t>(n)),
                {}};
  for (int step = 1; step <= 3; ++step) {
    const auto gradient = values<P>(n, 10 + static_cast<std::uint64_t>(step), 0.01);
    const P rate = static_cast<P>(o.lr / (1 - std::pow(o.beta1, step)));
    const P root = static_cast<P>(1 / std::sqrt(1 - std::pow(o.beta2, step)));
    const P decay = static_cast<P>(1 - times(o.lr, o.weight_decay));
    for (std::size_t i = 0; i < s.w.size(); ++i) {
      const P g = gradient[i] * static_cast<P>(factor);
      s.m[i] = std::fma(static_cast<P>(1 - o.beta1), g - s.m[i], s.m[i]);
      s.v[i] = std::fma(static_cast<P>(1 - o.beta2) * g, g, times(static_cast<P>(o.beta2), s.v[i]));
      const P under = std::fma(std::sqrt(s.v[i]), root, static_cast<P>(o.eps));
      s.w[i] = std::fma(-rate, s.m[i] / under, times(s.w[i], decay));
    }
  }
  return s;
}

constexpr AdamWOptions options{
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1};

template <class P, class Copy>
void check(std::int64_t n) {
  const auto expected = reference<P>(n, options, 0.37);
  std::vector<Copy> rounded;
  for (const P w : expected.w)
    rounded.push_back(static_cast<Copy>(w));
  every_compute([&](const Compute& compute, const std::string& name) {
    const auto got = three_steps<P, Copy>(compute, n, options);
    ASSERT_SAME_BITS(got.w, expected.w) << name << ", " << n;
    ASSERT_SAME_BITS(got.m, expected.m) << name << ", " << n;
    ASSERT_SAME_BITS(got.v, expected.v) << name << ", " << n;
    ASSERT_SAME_BITS(got.copy, rounded) << name << ", " << n;
  });
}

TEST(AdamW, EveryPathAndThreadCountTakesTheWrittenStepsAtEveryLength) {
  for (std::int64_t n = 0; n <= 70; ++n)
    check<float, float>(n);
  for (const std::int64_t n : {1, 13, 16, 33, 1025, 40'003}) {
    check<float, halfstep::bf16>(n);
    check<float, halfstep::fp16>(n);
    check<double, double>(n);
  }
}

TEST(AdamW, EachOptionShows) {
  const auto w = [](const AdamWOptions& o, double factor) {
    return three_steps<float, float>(portable(), 100, o, factor).w;
  };
  const auto base = w(options, 0.37);
  for (int which = 0; which < 5; ++which) {
    AdamWOptions other = options;
    (which == 0   ? other.lr
     : which == 1 ? other.beta1
     : which == 2 ? other.beta2
     : which == 3 ? other.eps
                  : other.weight_decay) *= 0.9;
    EXPECT_FALSE(difference(base, w(other, 0.37)).empty()) << which;
  }
  EXPECT_FALSE(difference(three_steps<float, float>(portable(), 100, options, 0.37).m,
                          three_steps<float, float>(portable(), 100, options, 0.38).m)
                   .empty());
}

// Against PyTorch: W1[0] and b2 after update i, counted from 0. (training.md's table, made by the
// harness that its SGD and Adam lines check against PyTorch's own numbers.)
struct Line {
  int update;
  double w, b;
};
void against_torch(const AdamWOptions& o, const std::vector<Line>& lines) {
  auto w = torch_start();
  std::vector<double> m(13), v(13);
  std::size_t next = 0;
  for (int update = 0; update <= 1000; ++update) {
    adamw_step<double>(widest(), o, update + 1, 1.0, w, torch_gradient(w), m, v);
    if (update != lines[next].update) continue;
    EXPECT_NEAR(w[0], lines[next].w, 1e-11 * std::abs(lines[next].w)) << update;
    EXPECT_NEAR(w[12], lines[next].b, 1e-11 * std::abs(lines[next].b)) << update;
    if (++next == lines.size()) return;
  }
}
TEST(AdamW, AgreesWithPyTorchOnItsOwnProblem) {
  against_torch({.lr = 1.0}, {{0, 0.7890972864438472, -1.071138110298716},
                              {2, 2.549010169952225, -2.3425524027902385},
                              {100, 8.233039313231828, -6.435639096011218},
                              {1000, 8.233424610733326, -6.43591674438434}});
  against_torch({.lr = 1.0, .weight_decay = 1e-2},
                {{0, 0.7912062750121861, -1.0704267290556986},
                 {2, 2.5262117280229925, -2.3139095357110735},
                 {100, 3.3165329599188507, -2.575239255076019},
                 {1000, 2.057678483682529, -1.3517884775416527}});
}

TEST(AdamW, TheCallersRoundingModeDoesNotShow) {
  const auto base = three_steps<float, float>(portable(), 50, options);
  const auto other = three_steps<float, float>(portable(), 50, options, 0.37, 0x5F80);  // upwards
  EXPECT_SAME_BITS(base.w, other.w);
}

TEST(AdamW, ANonFiniteGradientStaysInTheMoments) {
  std::vector<float> w(2, 1.0F), g{std::numeric_limits<float>::infinity(), 0.1F}, m(2), v(2);
  adamw_step<float>(portable(), options, 1, 1.0, w, g, m, v);
  EXPECT_FALSE(std::isfinite(m[0]));
  EXPECT_TRUE(std::isfinite(w[1]));
}

TEST(AdamWErrors, NameTheLengthsAndTheStep) {
  std::vector<float> three(3), four(4);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { adamw_step<float>(portable(), options, 1, 1.0, three, three, three, four); }),
            "adamw_step: weights has 3 elements, but gradient has 3, m 3 and v 4. Was the "
            "optimizer built before a layer was resized?");
  EXPECT_EQ(
      message_of<OptionError>(
          [&] { adamw_step<float>(portable(), options, 0, 1.0, three, three, three, three); }),
      "adamw_step: step is 0; the first is 1. Is a count of applied steps passed before it was "
      "raised?");
}

}  // namespace
