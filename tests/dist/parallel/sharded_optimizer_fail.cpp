// SPDX-License-Identifier: MIT
// What must not compile; each case is one macro away from a program that does.
// CASE 0: ZeRO takes MasterWeights with FloatMaster
// CASE 1: ZeRO takes MasterWeights with FloatMaster
// CASE 2: ZeRO takes MasterWeights with FloatMaster
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/optim/adamw.hpp>

namespace hs = halfstep;

#if !defined(CASE)
using State = hs::mixed::FloatMaster<>;
#elif CASE == 0
using State = hs::mixed::SplitMaster<>;
#elif CASE == 1
using State = hs::mixed::Kahan<>;
#elif CASE == 2
using State = hs::mixed::Stochastic<>;
#endif

int main() {
  return sizeof(hs::dist::Zero1<hs::mixed::MasterWeights<hs::optim::AdamW, hs::bf16, State>>) == 0;
}
