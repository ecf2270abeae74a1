// SPDX-License-Identifier: MIT
// What ZeRO 3 gathers: predicted by a dry run, counted in a real one; when it comes, how much of it
// is here at a time; and that no stage allocates in a step after the second.
#include <halfstep/dist/parallel/units.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/optim/adamw.hpp>

#include "allocations.hpp"
#include "dist/ranks.hpp"

namespace hs = halfstep;
namespace dist = halfstep::dist;

namespace {
using halfstep_tests::allocations;
using hs::bf16;
using hs::core::Category;
using ranks::Over;
using Masters = hs::mixed::MasterWeights<hs::optim::AdamW, bf16>;

TEST(Units, AreRunsOfParametersAndGoWhenAnotherComesAndNobodyUsesThem) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  for (const char* const name : {"blocks.0.a", "blocks.0.b", "norm.gain", "blocks.0.late"})
    parameters.add(name, {10}, hs::Role::weight, {});
  dist::Units units(parameters);
  ASSERT_EQ(units.size(), 3U) << "a unit is contiguous";
  EXPECT_EQ(units.of({1}), 0U);
  EXPECT_EQ(units.elements(0).end, 20);
  EXPECT_EQ(units.elements(2).begin, 30);
  std::string log;
  const auto acquire = [&](std::uint32_t id) {
    units.acquire(
        {id}, [&](std::size_t u) { log += "-" + std::to_string(u); },
        [&](std::size_t u) { log += "+" + std::to_string(u); });
  };
  acquire(0), units.release({0});
  acquire(1), units.release({1});
  EXPECT_EQ(log, "+0");
  acquire(2), acquire(0);  // both in use
  EXPECT_EQ(log, "+0-0+1+0");
  units.release({2}), units.release({0});
  acquire(2), units.release({2});
  EXPECT_EQ(log, "+0-0+1+0") << "it was here still";
  acquire(3);
  EXPECT_EQ(log, "+0-0+1+0-0-1+2");
}

constexpr int vocabulary = 65, context = 16, layers = 4, width = 32, rows = 2;
constexpr std::int64_t table = vocabulary * width, positions = context * width, norm = 2 * width,
                       block = 12 * width * width + 13 * width;

/// A small GPT on one rank, and the tokens of a micro-batch.
struct Model {
  hs::Runtime runtime{{.threads = 1, .seed = 3}};
  hs::Parameters<bf16> parameters{runtime};
  hs::nn::Gpt<bf16> gpt{parameters,
                        {.vocabulary = vocabulary,
                         .context = context,
                         .layers = layers,
                         .heads = 2,
                         .width = width,
                         .dropout = 0.1F}};
  std::vector<std::int32_t> tokens;
  Model() {
    for (int i = 0; i < rows * context; ++i)
      tokens.push_back(i * 7 % vocabulary);
  }
};
/// The recompute of the blocks: so many segments, or, for 0, the plan for the smallest budget.
hs::autograd::Schedule schedule(const Model& model, int segments) {
  if (segments > 0) return hs::autograd::uniform(layers, segments);
  const auto any = hs::nn::plan_recompute(model.gpt, rows, context, std::int64_t{1} << 40);
  return hs::nn::plan_recompute(model.gpt, rows, context, any.smallest).require().schedule;
}
/// A step of all ranks.
void step(Model& model, hs::Tape& tape, const hs::nn::SegmentedGpt<bf16>& segmented,
          auto& optimizer, auto& accumulator, int number, int micro_batches) {
  auto window = accumulator.begin(
      tape, number, {.micro_batches = micro_batches, .rows = rows, .targets_per_row = context});
  for (const auto micro : window) {
    tape.begin(micro);
    window.backward(tape, segmented.loss(tape, model.tokens, model.tokens));
  }
  optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
}

/// Elements gathered for a micro-batch: as a dry run says and, on n ranks, as counted and sent.
std::int64_t gathered(int n, Over over, int segments) {
  std::atomic<std::int64_t> sent{0}, all{0}, each{0};
  ranks::run(n, over, [&](dist::Group& group) {
    Model model;
    const hs::nn::SegmentedGpt<bf16> segmented(model.gpt, schedule(model, segments));
    const std::int64_t predicted = dist::gathered_elements(
        model.runtime, model.parameters, {.rows = rows},
        [&](hs::Tape& tape) { return segmented.loss(tape, model.tokens, model.tokens); });
    dist::Zero3<Masters> optimizer(group, model.parameters);
    hs::mixed::GradientAccumulator<bf16> accumulator(model.parameters, nullptr, optimizer.ranks());
    hs::Tape tape(model.runtime);
    const auto own = optimizer.shards().of(group.rank());
    model.runtime.ledger().restart_peaks();
    for (int number = 0; number < 2; ++number) {
      const std::int64_t before = optimizer.gathered();
      step(model, tape, segmented, optimizer, accumulator, number, 2 * n);
      EXPECT_EQ(optimizer.gathered() - before, 2 * predicted) << "step " << number;
    }
    // The shard, and two units: the largest are blocks, of which one is used and one fetched ahead.
    const auto& ledger = model.runtime.ledger();
    const std::int64_t shard = 2 * (own.end - own.begin);
    EXPECT_EQ(ledger.live(Category::weights), shard) << "nothing stays";
    EXPECT_EQ(ledger.peak(Category::weights),
              shard + 2 * hs::core::round_up(2 * block, std::int64_t{64}));
    for (const auto& one : group.collectives()) {
      if (one.name() == "all_gather BF16")
        sent += static_cast<std::int64_t>(one.traffic.bytes_sent);
    }
    all = optimizer.gathered();
    each = predicted;
  });
  EXPECT_EQ(sent, 2 * (n - 1) * all);
  return each;
}

TEST(Gathered, ByADryRunAreThoseOfARealRunAndOfTheSumOverTheBlocks) {
  // The table for the first op and for the head, in forward and backward at a time; the last norm
  // in forward, and for the head's backward and its own.
  constexpr std::int64_t outside = 2 * table + positions + 2 * norm;
  for (const Over over : {Over::sockets, Over::heap}) {
    for (const int n : {2, 3}) {
      EXPECT_EQ(gathered(n, over, 1), outside + 2 * layers * block) << "nothing is recomputed";
      EXPECT_EQ(gathered(n, over, layers), outside + 2 * layers * block)
          << "the second run of a block and its backward gather once";
      EXPECT_EQ(gathered(n, over, 2), outside + (2 * layers + 1) * block)
          << "two blocks run again, then backward from the last: the first comes twice";
      EXPECT_GT(gathered(n, over, 0), outside + 2 * layers * block);
    }
  }
}

/// Two units, a and b, of 3000 elements each, of which every rank keeps a part.
struct TwoUnits {
  hs::Runtime runtime{{.threads = 1}};
  hs::Parameters<float> parameters{runtime};
  dist::Shards shards;
  dist::detail::GatheringStore<float> store;
  explicit TwoUnits(dist::Group& group)
      : shards(registered(group.size())), store(group, cut(group), shards) {}
  /// a and b, as `repeats` says of them, b after `between`.
  void read(bool repeats, const auto& between) {
    store.restart(repeats);
    check(0);
    between();
    check(1);
  }
  void check(std::uint32_t id) {
    std::vector<float> whole(3000);
    parameters.initial_values({id}, whole);
    const hs::tensor::Acquired<float> values(store, {id});
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), values.data()));
  }

 private:
  [[nodiscard]] dist::Shards registered(int n) {
    for (const char* const name : {"a", "b"})
      parameters.scope().add(name, {3000}, hs::Role::weight, hs::Init::normal(1.0F));
    return {parameters, n, hs::optim::Grain::element};
  }
  [[nodiscard]] hs::Parameters<float>& cut(dist::Group& group) {
    parameters.shard(shards.of(group.rank()));
    parameters.lay_out();
    return parameters;
  }
};
/// Waits up to 20 s for `so`; whether it came true.
bool becomes_true(const auto& so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!so() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return so();
}
class Ahead : public testing::TestWithParam<Over> {};
INSTANTIATE_TEST_SUITE_P(Transport, Ahead, testing::Values(Over::heap, Over::sockets),
                         [](const auto& made) { return std::string(to_string(made.param)); });

TEST_P(Ahead, AUnitThatFollowedBeforeIsThereWithoutWaitingForAnotherRank) {
  std::atomic<bool> has_all{false};
  ranks::run(2, GetParam(), [&](dist::Group& group) {
    TwoUnits units(group);
    units.read(true, [] {});
    units.read(true, [&] {
      // Rank 1 stands still between a and b until rank 0 has b.
      if (group.rank() == 1) {
        EXPECT_TRUE(becomes_true([&] { return has_all.load(); }));
      }
    });
    has_all = true;
    EXPECT_EQ(units.store.elements(), 4 * 3000);
  });
}
TEST_P(Ahead, AUnitThatNothingIsKnownOfIsWaitedFor) {
  std::atomic<int> late{0};
  ranks::run(2, GetParam(),
             [&](dist::Group& group) {
               TwoUnits units(group);
               try {
                 units.read(true, [&] {
                   if (group.rank() == 1) {
                     EXPECT_TRUE(becomes_true([&] { return late > 0; }));
                   }
                 });
               } catch (const hs::Error&) {
                 ++late;
               }
             },
             {.timeout = std::chrono::milliseconds(500)});
  EXPECT_GT(late, 0);
}
TEST_P(Ahead, AnotherOrderThanBeforeGathersTheExpectedUnitForNothingOnce) {
  ranks::run(3, GetParam(), [&](dist::Group& group) {
    TwoUnits units(group);
    units.read(true, [] {});
    units.store.restart(true);
    for (int i = 0; i < 2; ++i)
      units.check(0);
    EXPECT_EQ(units.store.elements(), 4 * 3000);  // a, b; a and, for nothing, b
    units.read(true, [] {});
    EXPECT_EQ(units.store.elements(), 6 * 3000) << "a alone was the order of the time before";
    units.read(true, [] {});
    EXPECT_EQ(units.store.elements(), 8 * 3000);
    units.store.restart(false);
    EXPECT_EQ(units.runtime.ledger().live(Category::weights),
              4 * (units.shards.of(group.rank()).end - units.shards.of(group.rank()).begin));
  });
}

TEST(Gathered, AfterALoadThatChangesThePartOfOneRankAreTheNewValuesOnAll) {
  struct Load {
    void tensor(const hs::tensor::StateTensor& one) {
      const float loaded = 42.0F;  // the first element, which rank 0 keeps
      if (one.first == 0 && one.name == "a") std::memcpy(one.bytes.data(), &loaded, sizeof loaded);
    }
    void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
    void scalar(std::string_view /*name*/, double& /*value*/) {}
  } load;
  ranks::run(2, Over::heap,
             [&](dist::Group& group) {
               TwoUnits units(group);
               units.parameters.use(units.store);
               units.check(0);
               units.parameters.visit_state(load);
               EXPECT_EQ((hs::tensor::Acquired<float>(units.store, {0}).data()[0]), 42.0F);
             },
             {.timeout = std::chrono::milliseconds(2000)});
}

/// What each of eight steps took of the system, on the rank where it took most.
struct Taken {
  std::int64_t allocations = 0, faults = 0;
};
std::int64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}
template <class Optimizer>
std::vector<Taken> steps(Over over) {
  std::vector<Taken> most(8);
  std::mutex lock;
  ranks::run(2, over, [&](dist::Group& group) {
    Model model;
    const hs::nn::SegmentedGpt<bf16> segmented(model.gpt, 2);
    Optimizer optimizer(group, model.parameters, {}, {.bucket_bytes = 1 << 14});
    hs::mixed::GradientAccumulator<bf16> accumulator(model.parameters, nullptr, optimizer.ranks());
    hs::Tape tape(model.runtime);
    std::array<Taken, 8> own;
    for (std::size_t i = 0; i < own.size(); ++i) {
      dist::barrier(group);  // allocations are counted of all ranks
      const Taken before{allocations, minor_faults()};
      step(model, tape, segmented, optimizer, accumulator, static_cast<int>(i), 8);
      own[i] = {allocations - before.allocations, minor_faults() - before.faults};
    }
    const std::lock_guard guard(lock);
    for (std::size_t i = 0; i < own.size(); ++i) {
      most[i].allocations = std::max(most[i].allocations, own[i].allocations);
      most[i].faults = std::max(most[i].faults, own[i].faults);
    }
  });
  return most;
}
template <class Optimizer>
class StepOfARank : public testing::Test {};
using Stages = testing::Types<dist::Zero1<Masters>, dist::Zero2<Masters>, dist::Zero3<Masters>>;
TYPED_TEST_SUITE(StepOfARank, Stages);
TYPED_TEST(StepOfARank, AfterTheSecondAllocatesNothingAndTouchesNoPageForTheFirstTime) {
  for (const Over over : {Over::sockets, Over::heap}) {
    // A fault may come from outside (a page that the kernel took back): the quietest of three runs.
    std::int64_t faults = 1;
    for (int run = 0; run < 3 && faults > 0; ++run) {
      const auto taken = steps<TypeParam>(over);
      EXPECT_GT(taken[0].allocations, 0) << "the counter does not count";
      EXPECT_GT(taken[0].faults, 0) << "the counter does not count";
      faults = 0;
      for (std::size_t i = 2; i < taken.size(); ++i) {
        EXPECT_EQ(taken[i].allocations, 0) << "step " << i << " over " << ranks::to_string(over);
        faults += taken[i].faults;
      }
    }
    EXPECT_EQ(faults, 0) << ranks::to_string(over);
  }
}

}  // namespace
