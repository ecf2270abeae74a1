// SPDX-License-Identifier: MIT
// The update rules against PyTorch's trajectories and Keras' one-step table.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>

#include <optim/given_gradients.hpp>
#include <optim/pytorch_vectors.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenGradients;
using halfstep_tests::Network;

// The gradient of the sum of sigmoid(W2 sigmoid(W1 x + b1) + b2) over three inputs.
std::vector<double> gradient_of(const Network& p) {
  constexpr double inputs[3][2] = {{0.1, 0.2}, {0.3, 0.4}, {0.5, 0.6}};
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  std::vector<double> g(13, 0.0);
  for (const auto& x : inputs) {
    double hidden[3];
    double z = p[12];
    for (std::size_t j = 0; j < 3; ++j) {
      hidden[j] = sigmoid(p[2 * j] * x[0] + p[2 * j + 1] * x[1] + p[6 + j]);
      z += p[9 + j] * hidden[j];
    }
    const double y = sigmoid(z), dz = y * (1.0 - y);
    g[12] += dz;
    for (std::size_t j = 0; j < 3; ++j) {
      g[9 + j] += dz * hidden[j];
      const double dh = dz * p[9 + j] * hidden[j] * (1.0 - hidden[j]);
      g[2 * j] += dh * x[0];
      g[2 * j + 1] += dh * x[1];
      g[6 + j] += dh;
    }
  }
  return g;
}

// The rate is a float, so 0.1F stands for PyTorch's 0.1 and is off by 1.5e-8 of it; 1 is 1.
constexpr double rate_is_off = 1e-6, rate_is_exact = 1e-11;

template <class Optimizer>
void follows(const halfstep_tests::Trajectory& expected, const typename Optimizer::Options& options,
             float lr, double tolerance) {
  Runtime runtime({.threads = 1});
  Parameters<double> parameters(runtime);
  const auto scope = parameters.scope();
  // All decay in PyTorch: so all are weights here.
  scope.add("w1", {3, 2}, Role::weight, {});
  scope.add("b1", {3}, Role::weight, {});
  scope.add("w2", {1, 3}, Role::weight, {});
  scope.add("b2", {1}, Role::weight, {});
  Optimizer optimizer(parameters, options);
  const auto weights = parameters.write_all();
  for (std::size_t i = 0; i < 13; ++i)
    weights[i] = halfstep_tests::start[i];

  for (int update = 1; update <= 1001; ++update) {
    Network now{};
    for (std::size_t i = 0; i < 13; ++i)
      now[i] = weights[i];
    ASSERT_TRUE(optimizer.step(GivenGradients<double>(parameters, gradient_of(now)), lr));
    const Network* wanted = update == 1      ? &expected.after_first
                            : update == 101  ? &expected.after_101
                            : update == 1001 ? &expected.after_1001
                                             : nullptr;
    if (wanted == nullptr) continue;
    for (std::size_t i = 0; i < 13; ++i) {
      EXPECT_NEAR(weights[i], (*wanted)[i], tolerance * std::max(1.0, std::abs((*wanted)[i])))
          << "parameter " << i << " after " << update << " updates";
    }
  }
  EXPECT_EQ(optimizer.steps(), 1001);
}

TEST(OptimizerVectors, SgdFollowsPyTorch) {
  follows<optim::Sgd<double>>(halfstep_tests::sgd, {}, 0.1F, rate_is_off);
}
TEST(OptimizerVectors, SgdWithCoupledDecayFollowsPyTorch) {
  follows<optim::Sgd<double>>(halfstep_tests::sgd_l2, {.weight_decay = 1e-2}, 0.1F, rate_is_off);
}
TEST(OptimizerVectors, SgdWithMomentumFollowsPyTorch) {
  follows<optim::Sgd<double>>(halfstep_tests::sgd_momentum, {.momentum = 0.9, .weight_decay = 1e-2},
                              0.1F, rate_is_off);
}
TEST(OptimizerVectors, SgdWithNesterovMomentumFollowsPyTorch) {
  follows<optim::Sgd<double>>(halfstep_tests::sgd_nesterov,
                              {.momentum = 0.9, .nesterov = true, .weight_decay = 1e-6}, 0.1F,
                              rate_is_off);
}
TEST(OptimizerVectors, AdamWWithoutDecayFollowsPyTorchsAdam) {
  follows<optim::AdamW<double>>(halfstep_tests::adam, {}, 1.0F, rate_is_exact);
}
TEST(OptimizerVectors, AdamWFollowsPyTorch) {
  follows<optim::AdamW<double>>(halfstep_tests::adamw, {.weight_decay = 1e-2}, 1.0F, rate_is_exact);
}

// One update with lr 0.5 of p = 1, 2, 3, 4 by g = 1, 6, 7, 2.
template <class Optimizer>
std::vector<float> keras_step(const typename Optimizer::Options& options) {
  Runtime runtime({.threads = 1});
  Parameters<float> parameters(runtime);
  parameters.scope().add("p", {4}, Role::weight, {});
  Optimizer optimizer(parameters, options);
  const auto p = parameters.write_all();
  for (std::size_t i = 0; i < 4; ++i)
    p[i] = static_cast<float>(i + 1);
  static_cast<void>(optimizer.step(GivenGradients<float>(parameters, {1, 6, 7, 2}), 0.5F));
  return {p.begin(), p.end()};
}

TEST(OptimizerVectors, OneStepIsAsInKerasTable) {
  EXPECT_EQ(keras_step<optim::Sgd<float>>({}), (std::vector<float>{0.5F, -1.0F, -0.5F, 3.0F}));
  // Keras' eps of 1e-7 stands elsewhere, which at the first step moves nothing that four digits
  // show.
  const auto adam = keras_step<optim::AdamW<float>>({.eps = 1e-7});
  const auto adamw = keras_step<optim::AdamW<float>>({.eps = 1e-7, .weight_decay = 0.004});
  const float with_decay[] = {0.498F, 1.496F, 2.494F, 3.492F};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(adam[i], static_cast<float>(i) + 0.5F, 1e-5F);
    EXPECT_NEAR(adamw[i], with_decay[i], 1e-5F);
  }
}
TEST(OptimizerVectors, ThreeStepsWithoutGradientDecayAsInKerasTable) {
  Runtime runtime({.threads = 1});
  Parameters<float> parameters(runtime);
  parameters.scope().add("p", {1}, Role::weight, Init::constant(2.0F));
  optim::AdamW<float> optimizer(parameters, {.weight_decay = 0.004});
  for (int i = 0; i < 3; ++i)
    static_cast<void>(optimizer.step(GivenGradients<float>(parameters, {0}), 1.0F));
  EXPECT_NEAR(parameters.values(ParameterId{0})[0], 1.9760959F, 3e-7F);
}

}  // namespace
