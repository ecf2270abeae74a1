// SPDX-License-Identifier: MIT
// with: dist/parallel/gpt_run.cpp
#include <halfstep/dist/parallel/one_host.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/parallel/whole_state.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
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
using gpt_run::Settings;
using gpt_run::together;
using halfstep_tests::GivenStore;
using hs::bf16;
using hs::core::Category;
using ranks::Over;
template <class T>
using AdamW = hs::mixed::MasterWeights<hs::optim::AdamW, T>;
using Host = dist::OneHost<AdamW<bf16>>;

Settings on_one_host(Settings settings = {}) {
  settings.one_host = true;
  return settings;
}
TEST(OneHost, TrainsToTheBitsOfOneProcessOnEveryNumberOfRanksInEveryFormat) {
  for (const int n : {1, 2, 4}) {
    expect_as_alone<float>(n, Over::arena, on_one_host());
    expect_as_alone<bf16>(n, Over::arena, on_one_host());
    expect_as_alone<hs::fp16>(n, Over::arena, on_one_host());
  }
  EXPECT_GT(alone<hs::fp16>({}).skipped, 0);
}
TEST(OneHost, OfAnotherSeedClipOrDropoutIsAnotherRun) {
  const auto one = alone<bf16>({});
  for (const Settings& other :
       {Settings{.seed = 2}, Settings{.clip = 0.4F}, Settings{.dropout = 0.2F}})
    EXPECT_NE(together<bf16>(2, Over::arena, on_one_host(other))[1].hash, one.hash);
}

/// 4 + 1 + 1 + 3 + 10 blocks.
const std::vector<std::int64_t> sizes{4096, 3, 1, 2500, 10'000};
constexpr std::int64_t elements = 4096 + 3 + 1 + 2500 + 10'000;

/// One step; in its last micro-batch `last` is the last gradient of the last parameter.
template <class T>
hs::optim::StepResult step(auto& optimizer, hs::mixed::GradientAccumulator<T>& accumulator,
                           int number, int micro_batches = 4, float last = 0.5F) {
  halfstep_tests::GivenTape tape;
  auto window = halfstep_tests::given_window(
      tape, accumulator, number, micro_batches,
      [&, others = halfstep_tests::gradients_of(number)](std::int64_t e, std::int64_t micro) {
        return e == sizes.back() - 1 && micro == micro_batches - 1 ? last : others(e, micro);
      });
  return optimizer.step(std::move(window).unscale().clip_norm(1.0F), 0.01F);
}
/// What each of n ranks makes of an optimizer over the parameters.
template <class Optimizer>
void on_ranks(int n, auto body) {
  using T = typename Optimizer::Element;
  ranks::run(n, Over::arena, [&](dist::Group& group) {
    GivenStore<T> store(sizes);
    Optimizer optimizer(group, store.parameters);
    hs::mixed::GradientAccumulator<T> accumulator(store.parameters, nullptr, optimizer.ranks());
    body(group, store.runtime, store.parameters, optimizer, accumulator);
  });
}
template <class T>
std::uint64_t hash_of_two_steps_alone(auto make) {
  GivenStore<T> store(sizes);
  auto optimizer = make(store.parameters);
  hs::mixed::GradientAccumulator<T> accumulator(store.parameters);
  for (int i = 0; i < 2; ++i)
    step(optimizer, accumulator, i);
  return optimizer.weights_hash();
}

TEST(OneHost, RunsARuleThatNeedsWholeTensorsToTheBitsOfOneProcess) {
  using Lamb = hs::mixed::MasterWeights<hs::optim::Lamb, bf16>;
  const std::uint64_t one = hash_of_two_steps_alone<bf16>(
      [](hs::Parameters<bf16>& parameters) { return Lamb(parameters); });
  for (const int n : {2, 4}) {
    on_ranks<dist::OneHost<Lamb>>(n, [&](auto&, auto&, auto&, auto& optimizer, auto& accumulator) {
      for (int i = 0; i < 2; ++i)
        EXPECT_TRUE(step(optimizer, accumulator, i).applied);
      EXPECT_EQ(optimizer.weights_hash(), one) << n;
    });
  }
}
TEST(OneHost, KeepsOneCopyOfWeightsAndStateOnAHostAndEachRankCountsItsShard) {
  for (int n = 1; n <= 8; ++n) {
    std::array<std::atomic<std::int64_t>, hs::core::categories> host{};
    std::atomic<const void*> weights{nullptr};
    on_ranks<Host>(n, [&](dist::Group& group, hs::Runtime& runtime, auto& parameters,
                          auto& optimizer, auto& accumulator) {
      step(optimizer, accumulator, 0, n);
      const auto own = optimizer.shards().of(group.rank());
      const std::int64_t shard = own.end - own.begin;
      const auto live = [&](Category category) {
        host[static_cast<std::size_t>(category)] += runtime.ledger().live(category);
        return runtime.ledger().live(category);
      };
      EXPECT_EQ(live(Category::weights), 2 * shard);
      EXPECT_EQ(live(Category::gradients), 4 * elements);
      EXPECT_EQ(live(Category::master), 4 * shard);
      EXPECT_EQ(live(Category::moments), 8 * shard);
      const void* const here = parameters.values(hs::ParameterId{0}).data();
      const void* none = nullptr;
      EXPECT_TRUE(weights.compare_exchange_strong(none, here) || none == here);
    });
    EXPECT_EQ(host[static_cast<std::size_t>(Category::weights)], 2 * elements);
    EXPECT_EQ(host[static_cast<std::size_t>(Category::gradients)], 4 * elements * n);
    EXPECT_EQ(host[static_cast<std::size_t>(Category::master)], 4 * elements);
    EXPECT_EQ(host[static_cast<std::size_t>(Category::moments)], 8 * elements);
  }
}
TEST(OneHost, ReadsEveryRanksGradientOfAShardOnceAndWritesItsSumOnce) {
  for (const int n : {2, 4}) {
    on_ranks<Host>(n, [&](dist::Group& group, auto&, auto&, auto& optimizer, auto& accumulator) {
      step(optimizer, accumulator, 0);
      const auto own = optimizer.shards().of(group.rank());
      const auto traffic = [&] { return group.traffic(); };
      const dist::Traffic before = traffic();
      step(optimizer, accumulator, 1);
      const dist::Traffic moved = traffic() - before;
      // And for the decision the sums of squares of 19 blocks, each read n and written 2 times.
      const auto shard = static_cast<std::uint64_t>(own.end - own.begin);
      EXPECT_EQ(moved.bytes_read,
                4 * shard * static_cast<std::uint64_t>(n) + 8 * 19 * static_cast<std::uint64_t>(n));
      EXPECT_EQ(moved.bytes_written, 4 * shard + 2 * 8 * 19);
      EXPECT_EQ(moved.bytes_staged, 0U);
    });
  }
}
TEST(OneHost, SkipsAStepOnEveryRankAndNamesTheParameterWhoeverOwnsIt) {
  for (const int n : {1, 2, 4}) {
    on_ranks<Host>(n, [&](auto&, auto&, auto& parameters, auto& optimizer, auto& accumulator) {
      const float before = static_cast<float>(parameters.values(hs::ParameterId{0})[0]);
      const auto result =
          step(optimizer, accumulator, 0, 4, std::numeric_limits<float>::infinity());
      EXPECT_FALSE(result.applied);
      EXPECT_EQ(result.bad_values, 1);
      EXPECT_EQ(result.first_bad, "e");
      EXPECT_EQ(static_cast<float>(parameters.values(hs::ParameterId{0})[0]), before);
      EXPECT_TRUE(step(optimizer, accumulator, 1).applied);
      EXPECT_NE(static_cast<float>(parameters.values(hs::ParameterId{0})[0]), before);
    });
  }
}

/// What a file would hold.
struct File {
  std::map<std::string, std::vector<std::byte>> tensors;
  std::map<std::string, double> scalars;
};
struct Save {
  File& file;
  void tensor(const hs::tensor::StateTensor& one) {
    ASSERT_TRUE(one.whole()) << one.name;
    file.tensors[std::string(one.name)] = {one.bytes.begin(), one.bytes.end()};
  }
  void scalar(std::string_view name, auto& value) {
    file.scalars[std::string(name)] = static_cast<double>(value);
  }
};
struct Load {
  const File& file;
  void tensor(const hs::tensor::StateTensor& one) {
    const auto& bytes = file.tensors.at(std::string(one.name));
    ASSERT_EQ(bytes.size(), one.bytes.size()) << one.name;
    std::copy(bytes.begin(), bytes.end(), one.bytes.begin());
  }
  void scalar(std::string_view name, auto& value) {
    value = static_cast<std::remove_cvref_t<decltype(value)>>(file.scalars.at(std::string(name)));
  }
};
/// Weights and optimizer through a file: to it where `file` is empty, else from it.
template <class T>
void pass(dist::Group& group, hs::Parameters<T>& parameters, auto& optimizer, File& file) {
  dist::WholeState weights(group, parameters);
  dist::WholeState state(group, optimizer);
  weights.gather();
  state.gather();
  if (group.rank() == 0) {
    const auto visit = [&](auto visitor) {
      weights.visit_state(visitor);
      state.visit_state(visitor);
    };
    file.tensors.empty() ? visit(Save{file}) : visit(Load{file});
  }
  weights.scatter();
  state.scatter();
}
/// One step, saved; then another, on other ranks or as another stage.
template <class First, class Second>
std::uint64_t hash_after_a_file(int first, int second) {
  File file;
  std::atomic<std::uint64_t> hash{0};
  on_ranks<First>(
      first, [&](dist::Group& group, auto&, auto& parameters, auto& optimizer, auto& accumulator) {
        step(optimizer, accumulator, 0);
        File unused;
        pass(group, parameters, optimizer, group.rank() == 0 ? file : unused);
      });
  on_ranks<Second>(
      second, [&](dist::Group& group, auto&, auto& parameters, auto& optimizer, auto& accumulator) {
        File unused;
        pass(group, parameters, optimizer, group.rank() == 0 ? file : unused);
        step(optimizer, accumulator, 1);
        hash = optimizer.weights_hash();
      });
  return hash;
}
TEST(OneHost, GoesOnFromAnyCheckpointAndAnyRunFromIts) {
  using Messages = dist::Zero1<AdamW<bf16>>;
  const std::uint64_t through = hash_of_two_steps_alone<bf16>(
      [](hs::Parameters<bf16>& parameters) { return AdamW<bf16>(parameters); });
  EXPECT_EQ((hash_after_a_file<Host, Host>(4, 2)), through);
  EXPECT_EQ((hash_after_a_file<Host, Host>(2, 1)), through);
  EXPECT_EQ((hash_after_a_file<Messages, Host>(4, 4)), through);
  EXPECT_EQ((hash_after_a_file<Host, Messages>(4, 2)), through);
}

TEST(OneHost, NeedsMemoryThatRanksShareAndHaveRoomIn) {
  const auto make = [](dist::Group& group) {
    GivenStore<bf16> store(sizes);
    Host optimizer(group, store.parameters);
    hs::mixed::GradientAccumulator<bf16> accumulator(store.parameters, nullptr, optimizer.ranks());
    step(optimizer, accumulator, 0);
  };
  ranks::run(2, Over::sockets,
             [&](dist::Group& group) { EXPECT_THROW(make(group), hs::OptionError); });
  ranks::run(2, Over::heap,
             [&](dist::Group& group) { EXPECT_THROW(make(group), hs::MemoryError); });
  const auto fits = [&](std::int64_t short_of_arena) {
    dist::run_threads({.ranks = 2,
                       .arena_bytes = Host::arena_bytes(elements) - short_of_arena,
                       .common_bytes = Host::common_bytes(elements),
                       .wait = {.crowded = true}},
                      [&](dist::Transport& transport) {
                        hs::Runtime runtime({.threads = 1});
                        dist::Group group(transport, runtime);
                        make(group);
                      });
  };
  fits(0);
  EXPECT_THROW(fits(128), hs::MemoryError);
  ranks::run(1, Over::sockets, make);  // one rank shares with nobody
}

}  // namespace
