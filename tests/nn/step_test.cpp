// SPDX-License-Identifier: MIT
// A whole training step, as a user's loop takes it, and what it asks of the system.
#include <cstdint>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <gtest/gtest.h>

#include <halfstep/halfstep.hpp>

#include "allocations.hpp"

namespace hs = halfstep;

namespace {

using halfstep_tests::allocations;

std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

struct Taken {
  std::int64_t allocations, faults;
};

/// Steps of two micro-batches of a small GPT of T, and what each of them took.
template <class T>
std::vector<Taken> steps(int count) {
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(
      parameters,
      {.vocabulary = 65, .context = 64, .layers = 2, .heads = 2, .width = 64, .dropout = 0.1F});
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{.weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  std::vector<std::int32_t> tokens(4 * 64);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(i * 7 % 65);
  std::vector<Taken> taken;
  taken.reserve(static_cast<std::size_t>(count));
  for (int step = 0; step < count; ++step) {
    const Taken before{allocations, minor_faults()};
    auto window =
        accumulator.begin(tape, step, {.micro_batches = 2, .rows = 4, .targets_per_row = 64});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, hs::cross_entropy(gpt(tape, tokens), tokens));
    }
    optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
    taken.push_back({allocations - before.allocations, minor_faults() - before.faults});
  }
  return taken;
}

template <class T>
class Step : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(Step, Formats);

TYPED_TEST(Step, AfterTheSecondNothingIsAllocatedAndNoPageIsTouchedForTheFirstTime) {
  // A fault may come from outside (a page that the kernel took back): the quietest of three runs.
  std::int64_t faults = 1;
  for (int run = 0; run < 3 && faults > 0; ++run) {
    const auto taken = steps<TypeParam>(8);
    EXPECT_GT(taken[0].allocations, 0) << "the counter does not count";
    EXPECT_GT(taken[0].faults, 0) << "the counter does not count";
    faults = 0;
    for (std::size_t i = 2; i < taken.size(); ++i) {
      EXPECT_EQ(taken[i].allocations, 0) << "step " << i;
      faults += taken[i].faults;
    }
  }
  EXPECT_EQ(faults, 0);
}

}  // namespace
