// SPDX-License-Identifier: MIT
// The problem on which PyTorch's optimizers are tested: Linear(2, 3), sigmoid, Linear(3, 1),
// sigmoid in double; the loss is the sum of the outputs for three inputs. Shares no code with the
// library.
#pragma once

#include <array>
#include <cmath>
#include <vector>

/// 6 weights and 3 biases, 3 weights and 1 bias, in that order.
inline std::vector<double> torch_start() {
  return {-0.2108988568338871, -0.4975560466422629,  -0.14129216202471762, -0.3420288967865903,
          -0.2523635082803723, 0.6975570255493777,   -0.10853121966252377, -0.297948499687533,
          0.6892015099955717,  -0.05080313011597659, -0.39413518751058996, -0.28433759745928844,
          -0.07113812430174116};
}
inline std::vector<double> torch_gradient(const std::vector<double>& w) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<double> g(13, 0.0);
  for (const std::array<double, 2> x :
       {std::array{.1, .2}, std::array{.3, .4}, std::array{.5, .6}}) {
    std::array<double, 3> h;
    double z = w[12];
    for (std::size_t i = 0; i < 3; ++i) {
      h[i] = sigmoid(w[2 * i] * x[0] + w[2 * i + 1] * x[1] + w[6 + i]);
      z += w[9 + i] * h[i];
    }
    const double y = sigmoid(z), dz = y * (1 - y);
    g[12] += dz;
    for (std::size_t i = 0; i < 3; ++i) {
      g[9 + i] += dz * h[i];
      const double dh = dz * w[9 + i] * h[i] * (1 - h[i]);
      g[2 * i] += dh * x[0];
      g[2 * i + 1] += dh * x[1];
      g[6 + i] += dh;
    }
  }
  return g;
}
