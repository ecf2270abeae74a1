// SPDX-License-Identifier: MIT
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

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/dist/parallel/whole_state.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/optim/lamb.hpp>

#include "dist/ranks.hpp"
#include "mixed/given_tape.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using hs::bf16;
using hs::core::Category;
using ranks::Over;
template <class T>
using AdamW = hs::mixed::MasterWeights<hs::optim::AdamW, T>;
using Host = dist::OneHost<AdamW<bf16>>;

// --- A GPT.

struct Settings {
  std::uint64_t seed = 1;  ///< of weights, data and dropout
  float clip = 0.5F;
  float dropout = 0.1F;
};
struct Outcome {
  std::uint64_t hash = 0;
  int skipped = 0, micro_batches = 0;
  std::vector<double> losses;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Six steps of eight micro-batches on the ranks of a group, or, without one, here alone.
template <class T>
Outcome train(const Settings& settings, dist::Group* group) {
  hs::Runtime runtime({.threads = 1, .seed = settings.seed});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = 19,
                                        .context = 16,
                                        .layers = 2,
                                        .heads = 2,
                                        .width = 24,
                                        .dropout = settings.dropout});
  // The first steps of fp16 overflow at this scale and are skipped.
  hs::mixed::LossScaler scaler = std::is_same_v<T, hs::fp16>
                                     ? hs::mixed::LossScaler({.initial = 0x1p24F, .interval = 5})
                                     : hs::mixed::LossScaler::fixed(1.0F);
  hs::Tape tape(runtime);
  const auto steps = [&](auto&& optimizer, auto&& accumulator) {
    Outcome out;
    for (int iteration = 0; iteration < 6; ++iteration) {
      auto window = accumulator.begin(tape, iteration,
                                      {.micro_batches = 8, .rows = 2, .targets_per_row = 16});
      for (const auto micro : window) {
        std::array<std::int32_t, 32> inputs{}, targets{};
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          const auto place = static_cast<std::uint64_t>(micro.first_sample) * 16 + i;
          inputs[i] =
              static_cast<std::int32_t>(hs::core::uniform_below(settings.seed, 7, place, 19));
          targets[i] = (inputs[i] * 3 + 1) % 19;
        }
        tape.begin(micro);
        window.backward(tape, gpt.loss(tape, inputs, targets));
        ++out.micro_batches;
      }
      auto gradients = std::move(window).unscale().clip_norm(settings.clip);
      out.losses.push_back(gradients.loss());
      if (!optimizer.step(std::move(gradients), 3e-3F).applied) ++out.skipped;
    }
    out.hash = optimizer.weights_hash();
    return out;
  };
  const hs::optim::AdamWOptions adamw{.beta2 = 0.99, .weight_decay = 0.1};
  if (group == nullptr) {
    return steps(AdamW<T>(parameters, adamw),
                 hs::mixed::GradientAccumulator<T>(parameters, scaler));
  }
  dist::OneHost<AdamW<T>> optimizer(*group, parameters, adamw);
  return steps(optimizer,
               hs::mixed::GradientAccumulator<T>(parameters, &scaler, optimizer.ranks()));
}
template <class T>
std::vector<Outcome> together(int n, const Settings& settings) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  ranks::run(n, Over::arena, [&](dist::Group& group) {
    outcomes[static_cast<std::size_t>(group.rank())] = train<T>(settings, &group);
  });
  return outcomes;
}
template <class T>
void expect_as_alone() {
  const Outcome one = train<T>({}, nullptr);
  EXPECT_EQ(one.skipped > 0, (std::is_same_v<T, hs::fp16>));
  EXPECT_LT(one.skipped, 6);
  EXPECT_EQ(one.micro_batches, 48);
  for (const int n : {1, 2, 4}) {
    for (Outcome rank : together<T>(n, {})) {
      EXPECT_EQ(rank.micro_batches * n, 48);
      rank.micro_batches = 48;
      EXPECT_EQ(rank, one) << n;
    }
  }
  EXPECT_NE(together<T>(2, {.seed = 2})[1].hash, one.hash);
  EXPECT_NE(together<T>(2, {.clip = 0.4F})[1].hash, one.hash);
  EXPECT_NE(together<T>(2, {.dropout = 0.2F})[1].hash, one.hash);
}
TEST(OneHost, TrainsToTheBitsOfOneProcessInFloat) { expect_as_alone<float>(); }
TEST(OneHost, TrainsToTheBitsOfOneProcessInBf16) { expect_as_alone<bf16>(); }
TEST(OneHost, TrainsToTheBitsOfOneProcessInFp16WithTheSameStepsSkipped) {
  expect_as_alone<hs::fp16>();
}

// --- Gradients that are written down.

const std::vector<std::int64_t> sizes{10'000, 3, 4096, 1, 2500};
constexpr std::int64_t elements = 10'000 + 3 + 4096 + 1 + 2500;

template <class T>
void add_tensors(hs::Parameters<T>& parameters) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    parameters.scope().add("p" + std::to_string(i), {sizes[i]}, hs::Role::weight,
                           hs::Init::normal(1.0F));
  }
}
/// One step; in its last micro-batch `last` is the last gradient of tensor 2.
template <class T>
hs::optim::StepResult step(auto& optimizer, hs::mixed::GradientAccumulator<T>& accumulator,
                           int number, int micro_batches = 4, float last = 0.5F) {
  halfstep_tests::GivenTape tape;
  auto window = accumulator.begin(
      tape, number, {.micro_batches = micro_batches, .rows = 1, .targets_per_row = 1});
  for (const auto micro : window) {
    tape.begin(micro);
    halfstep_tests::GivenLoss<float> loss{.sum = 1.0, .leaves = {}};
    for (auto i = static_cast<std::uint32_t>(sizes.size()); i-- > 0;) {
      std::vector<float> leaf;
      for (std::int64_t e = 0; e < sizes[i]; ++e)
        leaf.push_back(0.1F * static_cast<float>((e * 7 + micro.number * 3 + number) % 13) - 0.5F);
      if (i == 2 && micro.number == micro_batches - 1) leaf.back() = last;
      loss.leaves.push_back({{i}, leaf});
    }
    window.backward(tape, loss);
  }
  return optimizer.step(std::move(window).unscale().clip_norm(1.0F), 0.01F);
}
/// What each of n ranks makes of an optimizer over the tensors.
template <class Optimizer>
void on_ranks(int n, auto body) {
  using T = typename Optimizer::Element;
  ranks::run(n, Over::arena, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1});
    hs::Parameters<T> parameters(runtime);
    add_tensors(parameters);
    Optimizer optimizer(group, parameters);
    hs::mixed::GradientAccumulator<T> accumulator(parameters, nullptr, optimizer.ranks());
    body(group, runtime, parameters, optimizer, accumulator);
  });
}
template <class T>
std::uint64_t hash_of_two_steps_alone(auto make) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<T> parameters(runtime);
  add_tensors(parameters);
  auto optimizer = make(parameters);
  hs::mixed::GradientAccumulator<T> accumulator(parameters);
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
      EXPECT_EQ(result.first_bad, "p2");
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
    hs::Runtime runtime({.threads = 1});
    hs::Parameters<bf16> parameters(runtime);
    add_tensors(parameters);
    Host optimizer(group, parameters);
    hs::mixed::GradientAccumulator<bf16> accumulator(parameters, nullptr, optimizer.ranks());
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
