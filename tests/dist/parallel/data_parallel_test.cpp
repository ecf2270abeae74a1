// SPDX-License-Identifier: MIT
// with: dist/parallel/gpt_run.cpp
#include <halfstep/dist/parallel/data_parallel.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/optim/adamw.hpp>

#include "dist/parallel/given_store.hpp"
#include "dist/parallel/gpt_run.hpp"
#include "dist/ranks.hpp"
#include "mixed/given_tape.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using gpt_run::alone;
using gpt_run::expect_as_alone;
using gpt_run::Outcome;
using gpt_run::Settings;
using gpt_run::together;
using ranks::Over;

TEST(DataParallel, OfTwoFourAndEightRanksTrainsToTheBitsOfOneProcessInEveryFormat) {
  for (const int n : {1, 2, 4, 8}) {
    expect_as_alone<float>(n, Over::arena, {});
    expect_as_alone<hs::bf16>(n, Over::arena, {});
    expect_as_alone<hs::fp16>(n, Over::arena, {});
  }
}
TEST(DataParallel, OverPrivateMemoryAndSocketsIsTheSame) {
  expect_as_alone<hs::bf16>(4, Over::heap, {});
  expect_as_alone<hs::bf16>(4, Over::sockets, {});
}
TEST(DataParallel, SkipsTheSameStepsOnEveryRank) {
  const Outcome one = alone<hs::fp16>({});
  EXPECT_GT(one.skipped, 0);
  EXPECT_LT(one.skipped, 6);
  for (const Outcome& rank : together<hs::fp16>(2, Over::arena, {}))
    EXPECT_EQ(rank.skipped, one.skipped);
}
TEST(DataParallel, OfAnotherSeedTextShareOrClipIsAnotherRun) {
  const Outcome one = alone<float>({});
  EXPECT_NE(together<float>(2, Over::heap, {.seed = 2})[0].hash, one.hash);
  EXPECT_NE(together<float>(2, Over::heap, {.clip = 0.4F})[0].hash, one.hash);
  EXPECT_NE(together<float>(2, Over::heap, {.dropout = 0.2F})[0].hash, one.hash);
  EXPECT_NE(together<float>(2, Over::heap, {.wrong_share = true})[0].hash, one.hash);
}
TEST(DataParallel, ForEveryBucketSizeIsTheSame) {
  const Settings settings{.steps = 2, .micro_batches = 4};
  const Outcome one = alone<float>(settings);
  for (const std::int64_t elements : {7, 1000, 4096, 1'000'000}) {
    Settings cut = settings;
    cut.parallel.bucket_bytes = elements * 4;
    for (const Over over : {Over::arena, Over::sockets}) {
      for (const Outcome& rank : together<float>(2, over, cut))
        EXPECT_EQ(rank.hash, one.hash) << elements;
    }
  }
}
TEST(DataParallel, ByDirectExchangeInSharedMemoryAndByARingOfTwoIsTheSame) {
  const Outcome one = alone<hs::bf16>({});
  for (const dist::Algorithm algorithm : {dist::Algorithm::direct, dist::Algorithm::ring}) {
    Settings settings;
    settings.parallel.algorithm = algorithm;
    EXPECT_EQ(together<hs::bf16>(2, Over::heap, settings)[0].hash, one.hash);
  }
  Settings ring;
  ring.parallel.algorithm = dist::Algorithm::ring;
  EXPECT_NE(together<hs::bf16>(4, Over::heap, ring)[0].hash, one.hash)
      << "the ring of four rotates";
}

using Hand = halfstep_tests::GivenStore<float>;

TEST(DataParallel, SendsTwiceTheParametersTimesNMinusOneOverNHoweverOftenItAccumulates) {
  for (const int micro_batches : {4, 16}) {
    constexpr std::int64_t count = 4096;
    ranks::run(4, Over::sockets, [&](dist::Group& group) {
      Hand hand({count});
      dist::DataParallel together(group, hand.parameters, {.bucket_bytes = 4096});
      hs::mixed::GradientAccumulator<float> accumulator(hand.parameters, nullptr, together);
      const std::uint64_t before = group.traffic().bytes_sent;
      halfstep_tests::GivenTape tape;
      auto window = accumulator.begin(
          tape, 0, {.micro_batches = micro_batches, .rows = 1, .targets_per_row = 1});
      for (const auto micro : window) {
        tape.begin(micro);
        window.backward(
            tape, halfstep_tests::GivenLoss<float>{
                      .sum = 1.0, .leaves = {{hand.all[0].id, std::vector<float>(count, 1.0F)}}});
      }
      const auto gradients = std::move(window).unscale();
      EXPECT_EQ(gradients.count(), static_cast<double>(micro_batches));
      // And to each the loss and the count of every micro-batch.
      const auto losses = static_cast<std::uint64_t>(3 * 16 * micro_batches / 4);
      EXPECT_EQ(group.traffic().bytes_sent - before - losses, 2U * 3U * count * 4U / 4U);
    });
  }
}

TEST(DataParallel, KeepsEighteenBytesAParameterOnEveryRank) {
  for (int n = 1; n <= 8; ++n) {
    for (const Over over : {Over::sockets, Over::arena}) {
      ranks::run(n, over, [&](dist::Group& group) {
        hs::Runtime runtime({.threads = 1});
        hs::Parameters<hs::bf16> parameters(runtime);
        parameters.scope().add("a", {5000}, hs::Role::weight, hs::Init::normal(1.0F));
        dist::DataParallel<hs::bf16> together(group, parameters);
        const hs::mixed::MasterWeights<hs::optim::AdamW, hs::bf16> optimizer(parameters);
        hs::mixed::GradientAccumulator<hs::bf16> accumulator(parameters, nullptr, together);
        halfstep_tests::GivenTape tape;
        const auto window =
            accumulator.begin(tape, 0, {.micro_batches = n, .rows = 1, .targets_per_row = 1});
        const hs::core::Ledger& ledger = runtime.ledger();
        using hs::core::Category;
        EXPECT_EQ(ledger.live(Category::weights), 2 * 5000);
        EXPECT_EQ(ledger.live(Category::gradients), 4 * 5000);
        EXPECT_EQ(ledger.live(Category::master), 4 * 5000);
        EXPECT_EQ(ledger.live(Category::moments), 8 * 5000);
      });
    }
  }
}

TEST(DataParallel, TakesThePathOfRankZeroOnEveryRank) {
  using hs::core::Isa;
  ranks::run(3, Over::heap, [&](dist::Group& group) {
    const Isa best = hs::core::default_isa_choice().isa;
    EXPECT_EQ(dist::isa_of_rank_0(group.transport(), group.rank() == 0 ? Isa::portable : best),
              Isa::portable);
    EXPECT_EQ(dist::isa_of_rank_0(group.transport(), group.rank() == 0 ? best : Isa::portable),
              best);
  });
}

TEST(DataParallel, ClipsByTheNormOfTheWholeGradientNotOfARanksPart) {
  // Two ranks with gradients (3, 0) and (0, 4): norm 5, not 3 and 4.
  ranks::run(2, Over::heap, [&](dist::Group& group) {
    Hand hand({2});
    dist::DataParallel together(group, hand.parameters);
    hs::mixed::GradientAccumulator<float> accumulator(hand.parameters, nullptr, together);
    halfstep_tests::GivenTape tape;
    auto window = accumulator.begin(tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      std::vector<float> gradient(2, 0.0F);
      gradient[static_cast<std::size_t>(micro.number)] = micro.number == 0 ? 6.0F : 8.0F;
      window.backward(tape,
                      halfstep_tests::GivenLoss<float>{.leaves = {{hand.all[0].id, gradient}}});
    }
    EXPECT_EQ(std::move(window).unscale().norm(), 5.0F);
  });
}
TEST(DataParallel, WeighsLossesByTheTokensOfAllRanks) {
  // 100 tokens of mean loss 10 and 10 tokens of mean loss 1: 1010 / 110, not 5.5.
  ranks::run(2, Over::sockets, [&](dist::Group& group) {
    Hand hand({3});
    dist::DataParallel together(group, hand.parameters);
    hs::mixed::GradientAccumulator<float> accumulator(hand.parameters, nullptr, together);
    halfstep_tests::GivenTape tape;
    auto window =
        accumulator.begin(tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 128});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape,
                      halfstep_tests::GivenLoss<float>{.sum = micro.number == 0 ? 1000.0 : 10.0,
                                                       .count = micro.number == 0 ? 100.0 : 10.0,
                                                       .leaves = {}});
    }
    EXPECT_EQ(std::move(window).unscale().loss(), 1010.0 / 110.0);
  });
}
TEST(DataParallel, AParameterThatTookPartOnOneRankOnlyOrNowhereIsSummedAsZeroThere) {
  ranks::run(2, Over::arena, [&](dist::Group& group) {
    Hand hand({5, 3, 2000});
    dist::DataParallel together(group, hand.parameters, {.bucket_bytes = 40});
    hs::mixed::GradientAccumulator<float> accumulator(hand.parameters, nullptr, together);
    for (int iteration = 0; iteration < 2;
         ++iteration) {  // the second after sums that are not zero
      halfstep_tests::GivenTape tape;
      auto window =
          accumulator.begin(tape, iteration, {.micro_batches = 2, .rows = 1, .targets_per_row = 2});
      for (const auto micro : window) {
        tape.begin(micro);
        halfstep_tests::GivenLoss<float> loss{
            .count = 2.0, .leaves = {{hand.all[2].id, std::vector<float>(2000, 4.0F)}}};
        if (micro.number == 1) loss.leaves.push_back({hand.all[0].id, std::vector<float>(5, 4.0F)});
        window.backward(tape, loss);
      }
      const auto gradients = std::move(window).unscale();
      EXPECT_EQ(gradients.sum(hand.all[0].id)[4], 1.0F);
      EXPECT_EQ(gradients.sum(hand.all[1].id)[0], 0.0F);
      EXPECT_EQ(gradients.sum(hand.all[2].id)[1999], 2.0F);
    }
  });
}

TEST(DataParallel, RefusesRanksThatWereInitialisedDifferentlyNamingTheParameter) {
  std::atomic<int> named{0};
  ranks::run(3, Over::heap, [&](dist::Group& group) {
    Hand hand({5, 3, 7});
    if (group.rank() == 2) hand.parameters.write(hand.all[1].id)[1] += 1.0F;
    try {
      const dist::DataParallel together(group, hand.parameters);
    } catch (const hs::MismatchError& error) {
      const std::string text = error.what();
      named +=
          text.find("rank 2") != std::string::npos && text.find("'b'") != std::string::npos ? 1 : 0;
    }
  });
  EXPECT_EQ(named, 3);
}
TEST(DataParallel, RefusesRanksWithOtherParametersOrAnotherOrder) {
  std::atomic<int> refused{0};
  ranks::run(2, Over::heap, [&](dist::Group& group) {
    const Hand hand(group.rank() == 0 ? std::vector<std::int64_t>{5, 3}
                                      : std::vector<std::int64_t>{5, 3, 3});
    try {
      const dist::DataParallel together(group, const_cast<hs::Parameters<float>&>(hand.parameters));
    } catch (const hs::MismatchError&) {
      ++refused;
    }
  });
  ranks::run(2, Over::heap, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1});
    hs::Parameters<float> parameters(runtime);
    for (const char* const name : group.rank() == 0 ? std::array{"a", "b"} : std::array{"b", "a"})
      parameters.scope().add(name, {4}, hs::Role::weight, hs::Init::constant(1.0F));
    try {
      const dist::DataParallel together(group, parameters);
    } catch (const hs::MismatchError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, 4);
}
TEST(DataParallel, RefusesSharesThatAreNotWhole) {
  ranks::run(2, Over::heap, [&](dist::Group& group) {
    Hand hand({4});
    const dist::DataParallel together(group, hand.parameters);
    EXPECT_THROW(static_cast<void>(together.share({.micro_batches = 3})), hs::OptionError);
    EXPECT_THROW(dist::DataParallel(group, hand.parameters, {.bucket_bytes = 3}), hs::OptionError);
    EXPECT_EQ(together.share({.micro_batches = 8}).first, 4 * group.rank());
  });
}

}  // namespace
