// SPDX-License-Identifier: MIT
#include <halfstep/dist/parallel/sharded_optimizer.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/optim/adamw.hpp>

#include "dist/ranks.hpp"
#include "mixed/given_tape.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using hs::bf16;
using Masters = hs::mixed::MasterWeights<hs::optim::AdamW, bf16>;

void add(hs::Parameters<bf16>& parameters) {
  parameters.scope().add("a", {3000}, hs::Role::weight, hs::Init::normal(1.0F));
  parameters.scope().add("b", {5}, hs::Role::bias, hs::Init::normal(1.0F));
  parameters.scope().add("c", {2000}, hs::Role::weight, hs::Init::normal(1.0F));
}

void step(hs::Parameters<bf16>& parameters, auto& optimizer, auto& accumulator, int number) {
  halfstep_tests::GivenTape tape;
  auto window =
      accumulator.begin(tape, number, {.micro_batches = 4, .rows = 1, .targets_per_row = 1});
  for (const auto micro : window) {
    tape.begin(micro);
    halfstep_tests::GivenLoss<float> loss{.sum = 1.0, .leaves = {}};
    for (auto i = static_cast<std::uint32_t>(parameters.size()); i-- > 0;) {
      std::vector<float> leaf;
      for (std::int64_t e = 0; e < parameters.infos()[i].elements; ++e)
        leaf.push_back(0.1F * static_cast<float>((e * 7 + micro.number * 3 + number) % 13) - 0.5F);
      loss.leaves.push_back({{i}, leaf});
    }
    window.backward(tape, loss);
  }
  optimizer.step(std::move(window).unscale(), 0.01F);
}

/// Loads other weights into the store, as a checkpoint would.
struct Loading {
  void tensor(const hs::tensor::StateTensor& one) {
    const std::span<bf16> weights(reinterpret_cast<bf16*>(one.bytes.data()),
                                  one.bytes.size() / sizeof(bf16));
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = bf16(3.0F + static_cast<float>((one.first + static_cast<std::int64_t>(i)) % 64));
  }
  void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
  void scalar(std::string_view /*name*/, double& /*value*/) {}
};

struct Hashes {
  std::uint64_t loaded = 0, trained = 0;
  friend bool operator==(const Hashes&, const Hashes&) = default;
};
/// One step, weights from elsewhere unless told not to, and one step more.
Hashes hashes(hs::Parameters<bf16>& parameters, auto& optimizer, auto&& accumulator, bool load) {
  step(parameters, optimizer, accumulator, 0);
  Loading loading;
  if (load) parameters.visit_state(loading);
  Hashes out;
  out.loaded = optimizer.weights_hash();
  step(parameters, optimizer, accumulator, 1);
  out.trained = optimizer.weights_hash();
  return out;
}
Hashes alone(bool load) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<bf16> parameters(runtime);
  add(parameters);
  Masters optimizer(parameters);
  return hashes(parameters, optimizer, hs::mixed::GradientAccumulator<bf16>(parameters), load);
}
template <class Zero>
void expect_as_alone(bool load, const Hashes& one) {
  for (const int n : {1, 2, 4}) {
    ranks::run(n, ranks::Over::heap, [&](dist::Group& group) {
      hs::Runtime runtime({.threads = 1});
      hs::Parameters<bf16> parameters(runtime);
      add(parameters);
      Zero zero(group, parameters);
      const Hashes mine =
          hashes(parameters, zero,
                 hs::mixed::GradientAccumulator<bf16>(parameters, nullptr, zero.ranks()), load);
      EXPECT_EQ(mine, one) << n;
    });
  }
}

TEST(ShardedOptimizer, NoticesWeightsThatAreLoadedBetweenStepsAsOneProcessDoes) {
  const Hashes loaded = alone(true), trained = alone(false);
  EXPECT_NE(loaded.loaded, trained.loaded);
  EXPECT_NE(loaded.trained, trained.trained);
  expect_as_alone<dist::Zero1<Masters>>(true, loaded);
  expect_as_alone<dist::Zero1<Masters>>(false, trained);
  expect_as_alone<dist::Zero2<Masters>>(true, loaded);
  expect_as_alone<dist::Zero3<Masters>>(true, loaded);
}
}  // namespace
