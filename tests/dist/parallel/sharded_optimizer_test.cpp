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

#include "dist/parallel/given_store.hpp"
#include "dist/ranks.hpp"
#include "mixed/given_tape.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using hs::bf16;
using Masters = hs::mixed::MasterWeights<hs::optim::AdamW, bf16>;
using Accumulator = hs::mixed::GradientAccumulator<bf16>;
using GivenStore = halfstep_tests::GivenStore<bf16>;

const std::vector<std::int64_t> sizes{3000, 5, 2000};

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
Hashes hashes(hs::Parameters<bf16>& parameters, auto& optimizer, Accumulator&& accumulator,
              bool load) {
  const auto step = [&](int number) {
    halfstep_tests::GivenTape tape;
    auto window = halfstep_tests::given_window(tape, accumulator, number, 4,
                                               halfstep_tests::gradients_of(number));
    optimizer.step(std::move(window).unscale(), 0.01F);
  };
  step(0);
  Loading loading;
  if (load) parameters.visit_state(loading);
  Hashes out;
  out.loaded = optimizer.weights_hash();
  step(1);
  out.trained = optimizer.weights_hash();
  return out;
}
Hashes alone(bool load) {
  GivenStore store(sizes);
  Masters optimizer(store.parameters);
  return hashes(store.parameters, optimizer, Accumulator(store.parameters), load);
}
template <class Zero>
void expect_as_alone(bool load, const Hashes& one) {
  for (const int n : {1, 2, 4}) {
    ranks::run(n, ranks::Over::heap, [&](dist::Group& group) {
      GivenStore store(sizes);
      Zero zero(group, store.parameters);
      EXPECT_EQ(hashes(store.parameters, zero, Accumulator(store.parameters, nullptr, zero.ranks()),
                       load),
                one)
          << n;
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
