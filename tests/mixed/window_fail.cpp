// SPDX-License-Identifier: MIT
// Orders of calls that must not compile. Without CASE all of this does.
#include <utility>

#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/optim/adamw.hpp>

namespace hs = halfstep;
using Optimizer = hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16>;
using Window = hs::mixed::Window<hs::fp16>;

#ifndef CASE
#define CASE 0
#endif

void f(Window w, Optimizer& o) {
#if CASE == 0
  (void)o.step(std::move(w).unscale().clip_norm(1.0F), 1e-3F);
  Window w2 = std::move(w);
  auto u = std::move(w2).unscale();
  (void)o.step(std::move(u), 1e-3F);
#elif CASE == 1
  // CASE 1: no member named
  (void)o.step(std::move(w).clip_norm(1.0F).unscale(), 1e-3F);  // clipped before it is unscaled
#elif CASE == 2
  // CASE 2: no member named
  (void)o.step(std::move(w).unscale().unscale(), 1e-3F);  // unscaled twice
#elif CASE == 3
  // CASE 3: optimizer.step takes unscaled gradients, once
  (void)o.step(std::move(w), 1e-3F);  // not unscaled
#elif CASE == 4
  // CASE 4: optimizer.step takes unscaled gradients, once
  auto u = std::move(w).unscale();
  (void)o.step(u, 1e-3F);  // u would live on, used up
#elif CASE == 5
  // CASE 5: deleted
  (void)o.step(w.unscale(), 1e-3F);  // w would live on
#elif CASE == 6
  // CASE 6: deleted
  auto u = std::move(w).unscale();
  (void)o.step(u.clip_norm(1.0F), 1e-3F);
#elif CASE == 7
  // CASE 7: deleted
  Window copy = w;
#elif CASE == 8
  // CASE 8: private
  hs::mixed::GradientAccumulator<hs::fp16>* owner = nullptr;
  Window forged(*owner);
#elif CASE == 11
  // CASE 11: no member named
  if (w.finite()) return;  // read before all processes have decided
#elif CASE == 12
  // CASE 12: no member named
  (void)w.norm();
#endif
}

#if CASE == 9
// CASE 9: weights of 16 bits lose updates below half an ulp: wrap the optimizer
void g(hs::Parameters<hs::bf16>& parameters) { hs::optim::AdamW<hs::bf16> optimizer(parameters); }
#elif CASE == 10
// CASE 10: gradients of duals go to a sink of their own
void g(hs::Parameters<hs::dual<float>>& p) { hs::mixed::GradientAccumulator accumulator(p); }
#endif

#if CASE == 0
void loop_of_floats(hs::Parameters<float>& parameters) {
  hs::optim::AdamW optimizer(parameters, {.beta2 = 0.99F});
  hs::mixed::MasterWeights generic(parameters, hs::optim::AdamWOptions{.beta2 = 0.99});
}
#endif
