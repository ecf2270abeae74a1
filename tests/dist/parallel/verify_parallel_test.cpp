// SPDX-License-Identifier: MIT
// with: dist/parallel/gpt_run.cpp
#include <halfstep/dist/parallel/verify_parallel.hpp>

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/nn/gpt.hpp>

#include "dist/parallel/gpt_run.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;

constexpr int length = 17;

template <class T>
auto build(hs::Parameters<T>& parameters) {
  return hs::nn::Gpt<T>(parameters, {.vocabulary = gpt_run::text().vocabulary(),
                                     .context = length,
                                     .layers = 1,
                                     .heads = 2,
                                     .width = 16,
                                     .dropout = 0.1F});
}
const auto loss = [](const auto& model, hs::Tape& tape, const hs::MicroBatch& micro) {
  const auto batch = gpt_run::text().batch(micro, length);
  return hs::cross_entropy(model(tape, batch.inputs), batch.targets);
};

dist::VerifyOptions options(int ranks) {
  return {.ranks = ranks, .shape = {.micro_batches = 4, .rows = 2, .targets_per_row = length}};
}

TEST(VerifyParallel, FindsAGptIdenticalInEveryLayout) {
  const dist::Verified verified =
      dist::verify_parallel<hs::bf16>(build<hs::bf16>, loss, options(4));
  EXPECT_TRUE(verified) << verified.text();
  EXPECT_EQ(verified.text(),
            "data parallel: identical\nZeRO 1: identical\nZeRO 2: identical\nZeRO 3: identical\n"
            "one host: identical\n");
}
TEST(VerifyParallel, NamesTheFirstTensorOfAModelWhoseGradientDependsOnTheRank) {
  // A loss that looks at something that is no function of the micro-batch: how often this thread
  // has been here.
  const auto impure = [](const auto& model, hs::Tape& tape, const hs::MicroBatch& micro) {
    thread_local std::int64_t calls = 0;
    hs::MicroBatch other = micro;
    other.first_sample += calls++;
    const auto batch = gpt_run::text().batch(other, length);
    return hs::cross_entropy(model(tape, batch.inputs), batch.targets);
  };
  const dist::Verified verified = dist::verify_parallel<float>(build<float>, impure, options(2));
  EXPECT_FALSE(verified);
  ASSERT_EQ(verified.layouts.size(), 5U);
  for (const auto& one : verified.layouts)
    EXPECT_NE(one.first_difference, "") << one.name;
  EXPECT_NE(verified.text().find("data parallel: first difference in '" +
                                 verified.layouts[0].first_difference + "'"),
            std::string::npos);
}
TEST(VerifyParallel, RefusesRanksThatDoNotDivideTheStep) {
  EXPECT_THROW(static_cast<void>(dist::verify_parallel<float>(build<float>, loss, options(3))),
               hs::OptionError);
}

}  // namespace
