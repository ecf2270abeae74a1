// SPDX-License-Identifier: MIT
#include <halfstep/optim/lamb.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/runtime.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/tensor/parameters.hpp>

#include "optim/given_gradients.hpp"

namespace {
namespace hs = halfstep;
namespace optim = halfstep::optim;
using halfstep_tests::GivenGradients;

static_assert(optim::optimizer<optim::Lamb<float>, GivenGradients<float>>);
static_assert(optim::Lamb<double>::grain == optim::Grain::tensor);

/// The paper's algorithm by plain loops, one tensor.
struct Paper {
  std::vector<double> w, m, v;
  double decay;
  void step(const std::vector<double>& g, int t, double lr) {
    m.resize(w.size());
    v.resize(w.size());
    std::vector<double> u(w.size());
    double of_w = 0, of_u = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-6) +
             decay * w[i];
      of_w += w[i] * w[i];
      of_u += u[i] * u[i];
    }
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] -= lr * std::sqrt(of_w / of_u) * u[i];
  }
};

template <class T>
void expect_the_paper(double tolerance) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<T> parameters(runtime);
  const auto a = parameters.scope().add("a", {3000}, hs::Role::weight, hs::Init::normal(0.1F));
  const auto b = parameters.scope().add("b", {5}, hs::Role::bias, hs::Init::normal(2.0F));
  optim::Lamb optimizer(parameters, optim::LambOptions{.weight_decay = 0.3});
  const auto values = [&](hs::Parameter<T> p) {
    return std::vector<double>(parameters.values(p).begin(), parameters.values(p).end());
  };
  std::vector<Paper> papers{{values(a), {}, {}, 0.3}, {values(b), {}, {}, 0.0}};
  for (int t = 1; t <= 4; ++t) {
    std::vector<T> gradient;
    std::vector<std::vector<double>> halves(2);
    for (int i = 0; i < 3005; ++i) {
      gradient.push_back(static_cast<T>(0.5 * ((i * 7 + t) % 11 - 5)));
      halves[i < 3000 ? 0 : 1].push_back(2.0 * static_cast<double>(gradient.back()));
    }
    EXPECT_TRUE(optimizer.step(GivenGradients<T>(parameters, gradient, 2.0), 0.01F).applied);
    for (std::size_t p = 0; p < 2; ++p) {
      papers[p].step(halves[p], t, static_cast<double>(0.01F));
      const auto now = values(p == 0 ? a : b);
      for (std::size_t i = 0; i < now.size(); ++i)
        ASSERT_NEAR(now[i], papers[p].w[i], tolerance) << "step " << t << ", element " << i;
    }
  }
  EXPECT_EQ(optimizer.steps(), 4);
}
TEST(Lamb, IsThePapersAlgorithm) {
  expect_the_paper<float>(2e-6);
  expect_the_paper<double>(1e-13);
}
TEST(Lamb, MovesATensorByTheLearningRateTimesItsOwnLength) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const auto p = parameters.scope().add("p", {4}, hs::Role::weight, hs::Init::constant(3.0F));
  optim::Lamb optimizer(parameters);
  optimizer.step(GivenGradients<float>(parameters, {1.0F, -1.0F, 1.0F, -1.0F}), 0.1F);
  // Adam's first direction is the gradient's sign: both norms are of four equal numbers, 3 and 1.
  EXPECT_NEAR(parameters.values(p)[0], 2.7F, 1e-5F);
  EXPECT_NEAR(parameters.values(p)[1], 3.3F, 1e-5F);
}
TEST(Lamb, OfAZeroTensorTakesAdamsStep) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const auto p = parameters.scope().add("p", {2}, hs::Role::bias, hs::Init::constant(0.0F));
  optim::Lamb optimizer(parameters);
  optimizer.step(GivenGradients<float>(parameters, {1.0F, 0.0F}), 0.1F);
  EXPECT_NEAR(parameters.values(p)[0], -0.1F, 1e-6F);
  EXPECT_EQ(parameters.values(p)[1], 0.0F);
}
TEST(Lamb, RunsOnFloatMastersOfSixteenBitWeights) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> floats(runtime);
  hs::Parameters<hs::bf16> halves(runtime);
  const auto f = floats.scope().add("p", {100}, hs::Role::weight, hs::Init::normal(1.0F));
  const auto h = halves.scope().add("p", {100}, hs::Role::weight, hs::Init::normal(1.0F));
  optim::Lamb one(floats);
  hs::mixed::MasterWeights<optim::Lamb, hs::bf16> other(halves);
  for (int t = 0; t < 3; ++t) {
    const std::vector<float> gradient(100, 1.0F + static_cast<float>(t));
    one.step(GivenGradients<float>(floats, gradient), 1e-3F);
    other.step(GivenGradients<float>(halves, gradient), 1e-3F);
  }
  EXPECT_EQ(one.weights_hash(), other.weights_hash());
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_EQ(halves.values(h)[i].bits(), static_cast<hs::bf16>(floats.values(f)[i]).bits());
}
TEST(Lamb, RefusesAPartOfATensorAndOptionsOutOfRange) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const auto p = parameters.scope().add("p", {3000}, hs::Role::weight, {});
  EXPECT_THROW(optim::LambRule<float>(parameters, {}, {{p.id, 0, 1024}}), hs::OptionError);
  EXPECT_THROW(optim::Lamb(parameters, optim::LambOptions{.beta1 = 1.0}), hs::OptionError);
  EXPECT_THROW(optim::Lamb(parameters, optim::LambOptions{.eps = 0.0}), hs::OptionError);
}

}  // namespace
