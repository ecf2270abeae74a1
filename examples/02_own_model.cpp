// SPDX-License-Identifier: MIT
// A model and a training loop of one's own, on a problem that is not text: two spirals that wind
// around each other, and a small net that learns on which of them a point lies.
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include <halfstep/autograd.hpp>
#include <halfstep/mixed.hpp>
#include <halfstep/nn.hpp>
#include <halfstep/optim.hpp>

namespace hs = halfstep;

template <class T>
struct Net {  // a model is a struct of layers, a template over the element type, built from a Scope
  hs::nn::Linear<T> in, middle, out;
  Net(const hs::Scope<T>& scope, int width)
      : in(scope / "in", 2, width), middle(scope / "middle", width, width), out(scope / "out", width, 1) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const { return out(hs::gelu(middle(hs::gelu(in(x))))); }
};

int main() {
  constexpr int points = 256;
  std::vector<float> positions, sides;
  for (int i = 0; i < points; ++i) {
    const float side = i % 2 == 0 ? 1.0F : -1.0F, turn = 0.4F + 0.03F * static_cast<float>(i);
    positions.push_back(side * 0.25F * turn * std::cos(turn));
    positions.push_back(side * 0.25F * turn * std::sin(turn));
    sides.push_back(side);
  }

  hs::Runtime runtime({.seed = 1});
  hs::Parameters<float> parameters(runtime);
  const Net<float> net(parameters, 48);
  hs::optim::AdamW optimizer(parameters, hs::optim::AdamWOptions{.weight_decay = 1e-4});
  hs::mixed::GradientAccumulator accumulator(parameters);
  const hs::optim::WarmupCosine lr{.peak = 1e-2F, .floor = 1e-4F, .warmup = 20, .steps = 600};
  hs::Tape tape(runtime);

  double loss = 0.0;
  int right = 0;
  for (int iteration = 0; iteration < 600; ++iteration) {
    auto window = accumulator.begin(tape, iteration, {.rows = points, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      const auto y = net(hs::constant<float>(tape, {points, 2}, positions));
      right = 0;
      for (std::size_t i = 0; i < points; ++i) right += y.value()[i] * sides[i] > 0.0F ? 1 : 0;
      window.backward(tape, hs::squared_error(y, sides));
    }
    loss = window.loss();
    (void)optimizer.step(std::move(window).unscale().clip_norm(1.0F), lr(optimizer.steps()));
    if (iteration % 100 == 99) std::printf("%d: loss %.4f, %d of %d right\n", iteration + 1, loss, right, points);
  }
  return right == points && loss < 0.05 ? 0 : 1;
}
