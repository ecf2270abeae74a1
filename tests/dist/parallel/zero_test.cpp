// SPDX-License-Identifier: MIT
// with: dist/parallel/gpt_run.cpp
#include <halfstep/dist/parallel/zero3.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/lamb.hpp>

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
using halfstep_tests::GivenStore;
using hs::core::Category;
using ranks::Over;

TEST(Shards, AreContiguousCutAtBlocksAndDifferByOneBlockAtMost) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  for (const int elements : {1, 1024, 1025, 5000, 3, 2048}) {
    parameters.scope().add("p" + std::to_string(elements), {elements}, hs::Role::weight, {});
  }
  for (int n = 1; n <= 40; ++n) {
    const dist::Shards shards(parameters, n, hs::optim::Grain::element);
    std::int64_t next = 0;
    for (int rank = 0; rank < n; ++rank) {
      const auto own = shards.of(rank);
      EXPECT_EQ(own.begin, next);
      next = own.end;
      std::int64_t blocks = 0;
      for (const auto& info : parameters.infos()) {
        const std::int64_t at = own.begin - info.offset;
        if (at > 0 && at < info.elements) {
          EXPECT_EQ(at % 1024, 0);
        }
        for (std::int64_t b = 0; b < info.elements; b += 1024)
          blocks += info.offset + b >= own.begin && info.offset + b < own.end ? 1 : 0;
      }
      EXPECT_TRUE(blocks == 12 / n || blocks == 12 / n + 1) << blocks;
    }
    EXPECT_EQ(next, parameters.count());
  }
}
TEST(Shards, OfGrainTensorAreWholeParameters) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  for (const int elements : {7, 5000, 10, 4000, 3000})
    parameters.scope().add("p" + std::to_string(elements), {elements}, hs::Role::weight, {});
  for (int n = 1; n <= 8; ++n) {
    const dist::Shards shards(parameters, n, hs::optim::Grain::tensor);
    std::int64_t next = 0;
    for (int rank = 0; rank < n; ++rank) {
      const auto own = shards.of(rank);
      EXPECT_EQ(own.begin, next);
      next = own.end;
      bool at_a_parameter = own.begin == parameters.count();
      for (const auto& info : parameters.infos())
        at_a_parameter = at_a_parameter || info.offset == own.begin;
      EXPECT_TRUE(at_a_parameter);
    }
    EXPECT_EQ(next, parameters.count());
  }
}

TEST(PartOfAStore, HoldsTheSameWeightsUnderTheSameNamesWithTheirPlaceInTheWhole) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<hs::bf16> parameters(runtime);
  const auto a = parameters.scope().add("a", {3000}, hs::Role::weight, hs::Init::normal(1.0F));
  const auto b = parameters.scope().add("b", {2, 1000}, hs::Role::bias, hs::Init::normal(2.0F));
  hs::Parameters<hs::bf16> part = parameters.part({1024, 4000});
  ASSERT_EQ(part.size(), 2U);
  EXPECT_EQ(part.count(), 2976);
  EXPECT_EQ(part.infos()[0].first, 1024);
  EXPECT_EQ(part.infos()[1].elements, 1000);
  EXPECT_EQ(part.infos()[1].shape, b.shape());
  EXPECT_EQ(part.values(hs::ParameterId{0}).data(), parameters.values(a).data() + 1024);
  std::vector<float> whole(2000), cut(1000);
  parameters.initial_values(b.id, whole);
  part.initial_values({1}, cut);
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), whole.begin()));
  EXPECT_THROW(part.scope().add("c", {1}, hs::Role::bias, {}), hs::StateError);
  hs::Parameters<hs::bf16> none = parameters.part({5000, 5000});
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.size(), 1U);
}

Settings of_stage(int stage, Settings settings = {}) {
  settings.stage = stage;
  return settings;
}

class ZeroStage : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Zero, ZeroStage, testing::Values(1, 2, 3));

TEST_P(ZeroStage, TrainsToTheBitsOfOneProcessOnEveryNumberOfRanksInEveryFormat) {
  for (const int n : {1, 2, 4, 8}) {
    expect_as_alone<float>(n, Over::arena, of_stage(GetParam()));
    expect_as_alone<hs::bf16>(n, Over::heap, of_stage(GetParam()));
    expect_as_alone<hs::fp16>(n, Over::sockets, of_stage(GetParam()));
  }
}
TEST_P(ZeroStage, ForEveryBucketSizeIsTheSame) {
  Settings settings{.steps = 2, .micro_batches = 4};
  const Outcome one = alone<hs::bf16>(settings);
  for (const std::int64_t elements : {7, 1000, 1'000'000}) {
    settings.parallel.bucket_bytes = elements * 4;
    for (const Outcome& rank : together<hs::bf16>(2, Over::sockets, of_stage(GetParam(), settings)))
      EXPECT_EQ(rank.hash, one.hash) << elements;
  }
}
TEST_P(ZeroStage, OfAnotherSeedOrClipIsAnotherRun) {
  const Outcome one = alone<hs::bf16>({});
  EXPECT_NE(together<hs::bf16>(2, Over::heap, of_stage(GetParam(), {.seed = 2}))[0].hash, one.hash);
  EXPECT_NE(together<hs::bf16>(2, Over::heap, of_stage(GetParam(), {.clip = 0.4F}))[0].hash,
            one.hash);
}
TEST_P(ZeroStage, SkipsTheSameStepsOnEveryRank) {
  const Outcome one = alone<hs::fp16>({});
  EXPECT_GT(one.skipped, 0);
  EXPECT_LT(one.skipped, 6);
  for (const Outcome& rank : together<hs::fp16>(4, Over::heap, of_stage(GetParam())))
    EXPECT_EQ(rank.skipped, one.skipped);
}

template <class T>
using Masters = hs::mixed::MasterWeights<hs::optim::AdamW, T>;

/// One step of `rounds` micro-batches for each rank on parameters of these sizes, and what `look`
/// does with each rank's optimizer afterwards.
template <class Optimizer, class Look>
void step_once(int n, Over over, const std::vector<std::int64_t>& sizes, int rounds, Look look) {
  using T = typename Optimizer::Element;
  ranks::run(n, over, [&](dist::Group& group) {
    GivenStore<T> store(sizes);
    Optimizer optimizer(group, store.parameters, {}, {.bucket_bytes = 4096});
    hs::mixed::GradientAccumulator<T> accumulator(store.parameters, nullptr, optimizer.ranks());
    halfstep_tests::GivenTape tape;
    const std::uint64_t before = group.traffic().bytes_sent;
    auto window = halfstep_tests::given_window(tape, accumulator, 0, n * rounds,
                                               [](auto, auto) { return 1.0F; });
    EXPECT_TRUE(optimizer.step(std::move(window).unscale(), 1e-3F).applied);
    look(group, store.runtime, store.parameters, optimizer, group.traffic().bytes_sent - before);
  });
}

TEST(Zero1, KeepsSixBytesAParameterAndTwelveOfItsShard) {
  for (int n = 1; n <= 8; ++n) {
    step_once<dist::Zero1<Masters<hs::bf16>>>(
        n, Over::sockets, {10'000, 3, 4096, 1, 2500}, 1,
        [&](dist::Group& group, hs::Runtime& runtime, auto& parameters, auto& optimizer,
            std::uint64_t) {
          const auto own = optimizer.shards().of(group.rank());
          const std::int64_t shard = own.end - own.begin, all = parameters.count();
          const hs::core::Ledger& ledger = runtime.ledger();
          EXPECT_EQ(ledger.live(Category::weights), 2 * all);
          EXPECT_EQ(ledger.live(Category::gradients), 4 * all);
          EXPECT_EQ(ledger.live(Category::master), 4 * shard);
          EXPECT_EQ(ledger.live(Category::moments), 8 * shard);
          // By blocks: 10 + 1 + 4 + 1 + 3, of which the last of a parameter may be
          // short.
          EXPECT_LE(shard, (19 + n - 1) / n * 1024);
        });
  }
}
TEST(Zero1, SendsGradientsToTheirOwnersAndWeightsToAll) {
  for (const int n : {1, 2, 3, 4}) {
    step_once<dist::Zero1<Masters<hs::bf16>>>(
        n, Over::sockets, {10'000, 3, 4096, 1, 2500}, 1,
        [&](dist::Group& group, hs::Runtime&, auto& parameters, auto& optimizer,
            std::uint64_t sent) {
          const auto own = optimizer.shards().of(group.rank());
          const std::int64_t shard = own.end - own.begin, all = parameters.count();
          const std::int64_t others = n - 1;
          // And for the decision: the findings to each, and the sums of squares of
          // 19 blocks.
          const auto blocks = dist::slice_of(19, n, group.rank());
          const std::int64_t squares = blocks.end - blocks.begin;
          const std::int64_t decision =
              others * static_cast<std::int64_t>(sizeof(hs::mixed::Findings) + 16) +
              8 * (19 - squares + others * squares);
          EXPECT_EQ(static_cast<std::int64_t>(sent),
                    n == 1 ? 0 : 4 * (all - shard) + 2 * others * shard + decision);
        });
  }
}
TEST(Zero1, WithMoreRanksThanBlocksLeavesSomeWithNothingToKeep) {
  std::atomic<int> empty{0};
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {6}, {2000, 1}}) {
    step_once<dist::Zero1<Masters<float>>>(
        8, Over::heap, sizes, 1,
        [&](dist::Group& group, hs::Runtime&, auto& parameters, auto& optimizer, std::uint64_t) {
          const auto own = optimizer.shards().of(group.rank());
          empty += own.begin == own.end ? 1 : 0;
          // AdamW's first step moves every weight by the learning rate.
          std::vector<float> initial(static_cast<std::size_t>(sizes[0]));
          parameters.initial_values({0}, initial);
          EXPECT_NEAR(parameters.values(hs::ParameterId{0})[0], initial[0] - 1e-3F, 1e-6F);
          EXPECT_EQ(optimizer.steps(), 1);
        });
  }
  EXPECT_EQ(empty, 7 + 7 + 5);
}
TEST(Zero1, ShowsItsStateWithItsPlaceInTheWhole) {
  std::array<std::atomic<std::int64_t>, 3> covered{};
  step_once<dist::Zero1<Masters<hs::bf16>>>(
      3, Over::heap, {5000}, 1,
      [&](dist::Group& group, hs::Runtime&, auto&, auto& optimizer, std::uint64_t) {
        struct Visitor {
          dist::Group& group;
          std::array<std::atomic<std::int64_t>, 3>& covered;
          hs::core::Range own;
          void tensor(const hs::tensor::StateTensor& one) {
            EXPECT_EQ(one.shape, hs::Shape({5000}));
            EXPECT_EQ(one.first, own.begin);
            const std::size_t which = one.name == "adamw.m.a" ? 0 : one.name == "adamw.v.a" ? 1 : 2;
            covered[which] += std::ssize(one.bytes) / 4;
          }
          void scalar(std::string_view, std::int64_t& value) { EXPECT_EQ(value, 1); }
          void scalar(std::string_view, double&) {}
        } visitor{group, covered, optimizer.shards().of(group.rank())};
        optimizer.visit_state(visitor);
      });
  for (const auto& one : covered)
    EXPECT_EQ(one, 5000);
}

TEST(Zero2, KeepsTwoBytesAParameterAndSixteenOfItsShardAndItsTreesAndOneBucket) {
  for (int n = 1; n <= 8; ++n) {
    for (const int rounds : {1, 4}) {
      step_once<dist::Zero2<Masters<hs::bf16>>>(
          n, Over::sockets, {10'000, 3, 4096, 1, 2500}, rounds,
          [&](dist::Group& group, hs::Runtime& runtime, auto& parameters, auto& optimizer,
              std::uint64_t) {
            const auto own = optimizer.shards().of(group.rank());
            const std::int64_t shard = own.end - own.begin, all = parameters.count();
            const hs::core::Ledger& ledger = runtime.ledger();
            constexpr std::int64_t bucket = 4096;
            const std::int64_t trees = rounds == 4 ? 2 : 1;
            EXPECT_EQ(ledger.live(Category::weights), 2 * all);
            EXPECT_EQ(ledger.live(Category::gradients), 4 * shard * trees + bucket);
            EXPECT_EQ(ledger.live(Category::master), 4 * shard);
            EXPECT_EQ(ledger.live(Category::moments), 8 * shard);
            // While a sweep runs one leaf, and what of the one before it does not fill a bucket;
            // each takes whole lines of 64 bytes.
            EXPECT_LE(ledger.peak(Category::gradients),
                      4 * shard * trees + bucket + 4 * (10'000 + 16 + 4096));
          });
    }
  }
}
TEST(Zero2, SendsGradientsOfEveryRoundToTheirOwnersAndWeightsToAllOnce) {
  for (const int n : {1, 2, 3, 4}) {
    for (const int rounds : {1, 4}) {
      step_once<dist::Zero2<Masters<hs::bf16>>>(
          n, Over::sockets, {10'000, 3, 4096, 1, 2500}, rounds,
          [&](dist::Group& group, hs::Runtime&, auto& parameters, auto& optimizer,
              std::uint64_t sent) {
            const auto own = optimizer.shards().of(group.rank());
            const std::int64_t shard = own.end - own.begin, all = parameters.count(),
                               others = n - 1;
            const auto blocks = dist::slice_of(19, n, group.rank());
            const std::int64_t squares = blocks.end - blocks.begin;
            const std::int64_t decision =
                others * (static_cast<std::int64_t>(sizeof(hs::mixed::Findings)) + 16 * rounds) +
                8 * (19 - squares + others * squares);
            EXPECT_EQ(static_cast<std::int64_t>(sent),
                      n == 1 ? 0 : rounds * 4 * (all - shard) + 2 * others * shard + decision);
          });
    }
  }
}

TEST_P(ZeroStage, WithRecomputeSegmentsTrainsToTheBitsOfOneProcessWithoutThem) {
  const Outcome one = alone<hs::bf16>({.steps = 3});
  for (const Outcome& rank :
       together<hs::bf16>(2, Over::heap, {.steps = 3, .segments = 2, .stage = GetParam()})) {
    EXPECT_EQ(rank.hash, one.hash);
    EXPECT_EQ(rank.train_loss, one.train_loss);
  }
}
/// Three steps of four micro-batches by `optimizer`, which may be one of several ranks'.
template <class T>
std::uint64_t hash_of_three_steps(auto& optimizer,
                                  hs::mixed::GradientAccumulator<T>&& accumulator) {
  halfstep_tests::GivenTape tape;
  for (int step = 0; step < 3; ++step) {
    auto window = halfstep_tests::given_window(tape, accumulator, step, 4,
                                               halfstep_tests::gradients_of(step));
    optimizer.step(std::move(window).unscale().clip_norm(1.0F), 0.01F);
  }
  return optimizer.weights_hash();
}
template <class Zero>
void expect_lamb_as_alone() {
  using T = typename Zero::Element;
  using Accumulator = hs::mixed::GradientAccumulator<T>;
  static_assert(Zero::grain == hs::optim::Grain::tensor);
  const std::vector<std::int64_t> sizes{7, 5000, 10, 4000, 3000};
  GivenStore<T> store(sizes);
  hs::mixed::MasterWeights<hs::optim::Lamb, T> optimizer(store.parameters);
  const std::uint64_t one = hash_of_three_steps(optimizer, Accumulator(store.parameters));
  for (const int n : {1, 2, 4}) {
    ranks::run(n, Over::sockets, [&](dist::Group& group) {
      GivenStore<T> shared(sizes);
      Zero zero(group, shared.parameters);
      EXPECT_EQ(hash_of_three_steps(zero, Accumulator(shared.parameters, nullptr, zero.ranks())),
                one)
          << n;
      for (const auto& info : shared.parameters.infos()) {
        const auto own = zero.shards().of(group.rank());
        EXPECT_TRUE(own.begin <= info.offset || own.begin >= info.offset + info.elements);
      }
    });
  }
}
TEST(ZeroOfTensors, RunsARuleThatNeedsWholeTensorsToTheBitsOfOneProcess) {
  expect_lamb_as_alone<dist::Zero1<hs::mixed::MasterWeights<hs::optim::Lamb, hs::bf16>>>();
  expect_lamb_as_alone<dist::Zero2<hs::mixed::MasterWeights<hs::optim::Lamb, hs::bf16>>>();
  expect_lamb_as_alone<dist::Zero3<hs::mixed::MasterWeights<hs::optim::Lamb, float>>>();
}

TEST(Zero3, KeepsEighteenBytesOfItsShardAndItsTreesAndOneBucket) {
  for (int n = 1; n <= 8; ++n) {
    step_once<dist::Zero3<Masters<hs::bf16>>>(
        n, Over::sockets, {10'000, 3, 4096, 1, 2500}, 1,
        [&](dist::Group& group, hs::Runtime& runtime, auto&, auto& optimizer, std::uint64_t) {
          const auto own = optimizer.shards().of(group.rank());
          const std::int64_t shard = own.end - own.begin;
          const hs::core::Ledger& ledger = runtime.ledger();
          EXPECT_EQ(ledger.live(Category::weights), 2 * shard);
          EXPECT_EQ(ledger.live(Category::gradients), 4 * shard + 4096);
          EXPECT_EQ(ledger.live(Category::master), 4 * shard);
          EXPECT_EQ(ledger.live(Category::moments), 8 * shard);
        });
  }
}
/// On shared memory, of the ranks of one host together: shards make one whole.
template <class Optimizer>
void expect_of_a_host(bool shards_weights, bool shards_gradients) {
  for (int n = 1; n <= 8; ++n) {
    std::array<std::atomic<std::int64_t>, hs::core::categories> host{};
    const auto live = [&](Category category) {
      return host[static_cast<std::size_t>(category)].load();
    };
    std::atomic<std::int64_t> all{0};
    step_once<Optimizer>(
        n, Over::arena, {10'000, 3, 4096, 1, 2500}, 1,
        [&](dist::Group&, hs::Runtime& runtime, auto& parameters, auto&, std::uint64_t) {
          all = parameters.count();
          for (const auto category :
               {Category::weights, Category::gradients, Category::master, Category::moments}) {
            host[static_cast<std::size_t>(category)] += runtime.ledger().live(category);
          }
        });
    EXPECT_EQ(live(Category::weights), 2 * all * (shards_weights ? 1 : n));
    EXPECT_EQ(live(Category::gradients), shards_gradients ? 4 * all + n * 4096 : 4 * all * n);
    EXPECT_EQ(live(Category::master), 4 * all);
    EXPECT_EQ(live(Category::moments), 8 * all);
  }
}
TEST(ZeroOnSharedMemory, KeepsOnOneHostOneStateAndACopyOfWhatIsNotSharded) {
  expect_of_a_host<dist::Zero1<Masters<hs::bf16>>>(false, false);
  expect_of_a_host<dist::Zero2<Masters<hs::bf16>>>(false, true);
  expect_of_a_host<dist::Zero3<Masters<hs::bf16>>>(true, true);
}

TEST(Zero3, SendsWhatItGathersAndGradientsOfEveryRoundAndNoWeightsAtAStep) {
  for (const int n : {2, 3, 4}) {
    std::atomic<std::int64_t> all_sent{0};
    step_once<dist::Zero3<Masters<hs::bf16>>>(
        n, Over::sockets, {10'000, 3, 4096, 1, 2500}, 2,
        [&](dist::Group& group, hs::Runtime& runtime, auto& parameters, auto& optimizer,
            std::uint64_t sent) {
          const auto own = optimizer.shards().of(group.rank());
          const std::int64_t shard = own.end - own.begin, all = parameters.count(), others = n - 1;
          const auto blocks = dist::slice_of(19, n, group.rank());
          const std::int64_t squares = blocks.end - blocks.begin;
          const std::int64_t decision =
              others * (static_cast<std::int64_t>(sizeof(hs::mixed::Findings)) + 32) +
              8 * (19 - squares + others * squares);
          EXPECT_EQ(static_cast<std::int64_t>(sent), 2 * 4 * (all - shard) + decision);
          const auto before = static_cast<std::int64_t>(group.traffic().bytes_sent);
          for (std::uint32_t i = 0; i < parameters.size(); ++i) {
            const hs::tensor::Acquired<hs::bf16> one(parameters.store(), {i});
            const hs::tensor::Acquired<hs::bf16> nested(parameters.store(), {i});  // counted once
            EXPECT_EQ(one.data(), nested.data());
            EXPECT_EQ(runtime.ledger().live(Category::weights),
                      2 * shard + hs::core::round_up(2 * parameters.infos()[i].elements, 64L));
          }
          EXPECT_EQ(optimizer.gathered(), all);
          EXPECT_EQ(static_cast<std::int64_t>(group.traffic().bytes_sent) - before,
                    2 * others * shard);
          all_sent += static_cast<std::int64_t>(group.traffic().bytes_sent) - before;
        });
    EXPECT_EQ(all_sent, 2 * (n - 1) * (10'000 + 3 + 4096 + 1 + 2500));
  }
}
TEST(Zero3, ReadsTheWeightsWhereTheyLieInMemoryThatRanksShareAndOnOneRank) {
  for (const int n : {1, 2, 4}) {
    std::atomic<const void*> weights{nullptr};
    step_once<dist::Zero3<Masters<hs::bf16>>>(
        n, n == 1 ? Over::sockets : Over::arena, {10'000, 3, 4096, 1, 2500}, 2,
        [&](dist::Group& group, hs::Runtime& runtime, auto& parameters, auto& optimizer,
            std::uint64_t) {
          const auto own = optimizer.shards().of(group.rank());
          const hs::tensor::Acquired<hs::bf16> one(parameters.store(), {0});
          const void* none = nullptr;
          EXPECT_TRUE(weights.compare_exchange_strong(none, one.data()) || none == one.data());
          EXPECT_EQ(optimizer.gathered(), 0);
          EXPECT_EQ(runtime.ledger().peak(Category::weights), 2 * (own.end - own.begin));
          for (const auto& moved : group.collectives())
            EXPECT_NE(moved.name(), "all_gather BF16");
        });
  }
}
TEST(Zero3, MayNotComeAfterTheBuffersAndHidesValuesThatAreNotHere) {
  ranks::run(2, Over::heap, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1});
    hs::Parameters<float> late(runtime), parameters(runtime);
    late.scope().add("a", {3000}, hs::Role::weight, {});
    late.lay_out();
    EXPECT_THROW(dist::Zero3<hs::optim::AdamW<float>>(group, late), hs::StateError);
    parameters.scope().add("a", {3000}, hs::Role::weight, hs::Init::normal(1.0F));
    const dist::Zero3<hs::optim::AdamW<float>> optimizer(group, parameters);
    EXPECT_THROW(static_cast<void>(parameters.values(hs::ParameterId{0})), hs::StateError);
    EXPECT_EQ(std::ssize(parameters.kept({0})), group.rank() == 0 ? 2048 : 952);
  });
}

}  // namespace
