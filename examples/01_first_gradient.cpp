// SPDX-License-Identifier: MIT
// A first gradient: one parameter, one loss, and what the library says its derivative is.
#include <array>
#include <cstdio>
#include <utility>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>

namespace hs = halfstep;

int main() {
  hs::Runtime runtime;                          // threads, memory account, seed: everything that is shared
  hs::Parameters<float> parameters(runtime);    // owns the weights; a Parameter is a handle into it
  const auto w = parameters.scope().add("w", {1}, hs::Role::weight, hs::Init::constant(2.0F));
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);

  const std::array<float, 1> x{3.0F}, wanted{5.0F};
  auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
  for (const auto micro : window) {             // a window is one update's micro-batches; here one
    tape.begin(micro);                          // forgets what was recorded before
    const auto y = hs::use(tape, w) * hs::constant<float>(tape, {1}, x);
    const auto loss = hs::squared_error(y, wanted);   // (w x - wanted)^2 = (6 - 5)^2
    std::printf("w x = %g, loss = %g\n", static_cast<double>(y.value()[0]), loss.sum);
    window.backward(tape, loss);
  }
  // The window ends where the optimizer would take over: the sum, and the factor that makes it a mean.
  const auto gradients = std::move(window).unscale();
  const double slope = static_cast<double>(gradients.sum(w.id)[0]) * gradients.factor();
  std::printf("d loss / d w = %g; by hand 2 (w x - wanted) x = %g\n", slope, 2.0 * (6.0 - 5.0) * 3.0);
  return slope == 6.0 ? 0 : 1;
}
