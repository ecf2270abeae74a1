// SPDX-License-Identifier: MIT
// What must not compile; each case is one macro away from a program that does.
// CASE 0: shadow_step: takes optimizers with the default state formats
#include <cstdint>
#include <vector>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/shadow.hpp>

namespace hs = halfstep;

int main() {
  hs::Runtime runtime;
  hs::Parameters<hs::bf16> parameters(runtime);
  const hs::nn::GptOptions sizes{.vocabulary = 4, .context = 2, .layers = 1, .heads = 1, .width = 4};
  const hs::nn::Gpt<hs::bf16> gpt(parameters, sizes);
  const auto loss_of = []<class U>(const hs::nn::Gpt<U>& model, hs::Tape& tape,
                                   const hs::MicroBatch&) {
    const std::vector<std::int32_t> tokens{0, 1};
    return hs::cross_entropy(model(tape, tokens), tokens);
  };
#if !defined(CASE)
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{});
#else
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{},
                                     hs::mixed::SplitMaster<>{});
#endif
  (void)hs::train::shadow_step<hs::nn::Gpt>(parameters, optimizer, {}, loss_of, sizes);
}
