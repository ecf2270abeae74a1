// SPDX-License-Identifier: MIT
#include <algorithm>
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

#include <halfstep/core/isa.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/tensor/hash.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenTape;
using mixed::MasterWeights;
using optim::AdamW;
using optim::AdamWOptions;
using optim::Sgd;
using optim::SgdOptions;
using Loss = halfstep_tests::GivenLoss<float>;

static_assert(optim::optimizer<MasterWeights<AdamW, bf16>, mixed::Unscaled<bf16>>);
static_assert(optim::optimizer<MasterWeights<Sgd, fp16>, mixed::Unscaled<fp16>>);
static_assert(optim::optimizer<MasterWeights<AdamW, float>, mixed::Unscaled<float>>);
static_assert(optim::optimizer<MasterWeights<AdamW, double>, mixed::Unscaled<double>>);

template <class T>
struct Model {
  explicit Model(Scope<T> scope)
      : weight(scope.add("weight", {3, 400}, Role::weight, Init::normal(0.02F))),
        gain(scope.add("gain", {5}, Role::gain, Init::constant(1.0F))) {}
  Parameter<T> weight, gain;
};

template <class T>
struct Bench {
  explicit Bench(const RuntimeOptions& options = {.threads = 2}) : runtime(options) {}
  Runtime runtime;
  Parameters<T> parameters{runtime};
  Model<T> model{parameters.scope() / "layer"};
  GivenTape tape;
};

template <class T>
Loss loss_of(const Model<T>& model, int iteration, float size = 1e-3F) {
  std::vector<float> g(1200), gain(5, size);
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] = size * (static_cast<float>((i * 7 + static_cast<std::size_t>(iteration)) % 23) - 11.0F);
  return {1, 1, {{model.weight.id, std::move(g)}, {model.gain.id, std::move(gain)}}};
}
template <class T, class Accumulator, class Optimizer>
optim::StepResult train_step(Bench<T>& bench, Accumulator& accumulator, Optimizer& optimizer,
                             int iteration, const Loss& loss, float lr = 1e-3F) {
  auto window = accumulator.begin(bench.tape, iteration,
                                  {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
  for (const auto micro : window) {
    bench.tape.begin(micro);
    window.backward(bench.tape, loss);
  }
  return optimizer.step(std::move(window).unscale().clip_norm(1.0F), lr);
}
template <class T>
std::vector<std::uint16_t> bits(std::span<const T> values) {
  std::vector<std::uint16_t> out;
  for (const T x : values)
    out.push_back(x.bits());
  return out;
}

template <class T>
struct MasterWeightsOf : testing::Test {};
using Formats = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(MasterWeightsOf, Formats);

TYPED_TEST(MasterWeightsOf, TakeEighteenBytesAParameterToTheByte) {
  using T = TypeParam;
  Bench<T> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{});
  mixed::LossScaler scaler;
  mixed::GradientAccumulator accumulator(bench.parameters, scaler);
  ASSERT_TRUE(train_step(bench, accumulator, optimizer, 0, loss_of(bench.model, 0)));
  const auto n = bench.parameters.count();
  ASSERT_EQ(n, 1205);
  const auto& ledger = bench.runtime.ledger();
  EXPECT_EQ(ledger.live(core::Category::weights), 2 * n);
  EXPECT_EQ(ledger.live(core::Category::gradients), 4 * n);
  EXPECT_EQ(ledger.live(core::Category::master), 4 * n);
  EXPECT_EQ(ledger.live(core::Category::moments), 8 * n);
  EXPECT_EQ(ledger.live(), 18 * n + 3 * 8);  // and a double for each block of 1024
}
TYPED_TEST(MasterWeightsOf, StartFromTheFloatsBeforeTheyWereRounded) {
  using T = TypeParam;
  Bench<T> half;
  Bench<float> full;
  MasterWeights optimizer(half.parameters, AdamWOptions{});
  MasterWeights peer(full.parameters, AdamWOptions{});
  const auto master = optimizer.master(half.model.weight.id);
  const auto wanted = full.parameters.values(full.model.weight);
  int between = 0;
  for (std::size_t i = 0; i < master.size(); ++i) {
    ASSERT_EQ(master[i], wanted[i]);
    between += master[i] != static_cast<float>(half.parameters.values(half.model.weight)[i]);
  }
  EXPECT_GT(between, 1000);
  EXPECT_EQ(optimizer.weights_hash(), peer.weights_hash());
}
TYPED_TEST(MasterWeightsOf, AreStillExactAfterTheWeightsWereHashed) {
  using T = TypeParam;
  Bench<T> plain, hashed;
  static_cast<void>(tensor::state_hash(hashed.parameters));
  MasterWeights a(plain.parameters, AdamWOptions{}), b(hashed.parameters, AdamWOptions{});
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
}
TYPED_TEST(MasterWeightsOf, StartFromLoadedWeights) {
  using T = TypeParam;
  Bench<T> bench;
  const auto weights = bench.parameters.write(bench.model.weight.id);
  weights[7] = T(0.75F);
  MasterWeights optimizer(bench.parameters, AdamWOptions{});
  const auto master = optimizer.master(bench.model.weight.id);
  for (std::size_t i = 0; i < master.size(); ++i)
    ASSERT_EQ(master[i], static_cast<float>(weights[i]));
}
TYPED_TEST(MasterWeightsOf, AreRoundedIntoTheWeightsByEveryStep) {
  using T = TypeParam;
  Bench<T> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{.weight_decay = 0.1});
  mixed::LossScaler scaler;
  mixed::GradientAccumulator accumulator(bench.parameters, scaler);
  const auto version = bench.parameters.info(bench.model.weight.id).version;
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(train_step(bench, accumulator, optimizer, i, loss_of(bench.model, i)));
  EXPECT_EQ(bench.parameters.info(bench.model.weight.id).version, version + 20);
  for (const auto id : {bench.model.weight.id, bench.model.gain.id}) {
    const auto master = optimizer.master(id);
    const auto weights = bench.parameters.values(id);
    for (std::size_t i = 0; i < master.size(); ++i)
      ASSERT_EQ(weights[i].bits(), T(master[i]).bits());
  }
}
TYPED_TEST(MasterWeightsOf, FollowTheFloatOptimizerBitForBit) {
  // The same gradients, so the masters are what the float optimizer makes of them.
  using T = TypeParam;
  Bench<T> half;
  Bench<float> full;
  MasterWeights a(half.parameters, AdamWOptions{.weight_decay = 0.1});
  MasterWeights b(full.parameters, AdamWOptions{.weight_decay = 0.1});
  mixed::LossScaler scaler;
  mixed::GradientAccumulator ga(half.parameters, scaler);
  mixed::GradientAccumulator gb(full.parameters);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(train_step(half, ga, a, i, loss_of(half.model, i)));
    ASSERT_TRUE(train_step(full, gb, b, i, loss_of(full.model, i)));
  }
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
  ASSERT_TRUE(train_step(half, ga, a, 5, loss_of(half.model, 5)));
  EXPECT_NE(a.weights_hash(), b.weights_hash());
}
TYPED_TEST(MasterWeightsOf, GiveTheSameBitsOnEveryPathAndNumberOfThreads) {
  using T = TypeParam;
  const auto run = [](core::Isa isa, int threads, std::uint64_t seed = 1) {
    Bench<T> bench({.threads = threads, .seed = seed, .isa = isa});
    MasterWeights optimizer(bench.parameters, AdamWOptions{.weight_decay = 0.1});
    mixed::LossScaler scaler;
    mixed::GradientAccumulator accumulator(bench.parameters, scaler);
    for (int i = 0; i < 4; ++i) {
      const float size =
          i == 2 ? std::numeric_limits<float>::infinity() : 1e-3F;  // one of them skipped
      EXPECT_EQ(train_step(bench, accumulator, optimizer, i, loss_of(bench.model, i, size)).applied,
                i != 2);
    }
    return std::pair(optimizer.weights_hash(), tensor::state_hash(optimizer));
  };
  const auto wanted = run(core::Isa::portable, 1);
  for (const auto isa : core::available_isas()) {
    for (const int threads : {1, 2, 3})
      EXPECT_EQ(run(isa, threads), wanted) << core::to_string(isa) << ' ' << threads;
  }
  EXPECT_NE(run(core::Isa::portable, 1, 2), wanted);
}
TYPED_TEST(MasterWeightsOf, OverflowAtStepZeroLeavesEveryBitButTheScale) {
  using T = TypeParam;
  Bench<T> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{.weight_decay = 0.1});
  mixed::LossScaler scaler({.initial = 0x1p30F});
  mixed::GradientAccumulator accumulator(bench.parameters, scaler);
  const auto weights = bits(bench.parameters.values(bench.model.weight));
  const auto state = tensor::state_hash(optimizer), hash = optimizer.weights_hash();
  auto broken = loss_of(bench.model, 0);
  broken.leaves[0].gradient[1100] = std::numeric_limits<float>::infinity();
  const auto result = train_step(bench, accumulator, optimizer, 0, broken);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.why, optim::Skip::non_finite);
  EXPECT_EQ(result.first_bad, "layer.weight");
  EXPECT_EQ(result.bad_values, 1);
  EXPECT_EQ(result.scale, 0x1p29F);
  EXPECT_EQ(scaler.scale(), 0x1p29F);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_EQ(bits(bench.parameters.values(bench.model.weight)), weights);
  EXPECT_EQ(tensor::state_hash(optimizer), state);
  EXPECT_EQ(optimizer.weights_hash(), hash);
  EXPECT_TRUE(train_step(bench, accumulator, optimizer, 1, loss_of(bench.model, 0)));
  EXPECT_NE(bits(bench.parameters.values(bench.model.weight)), weights);
}
TYPED_TEST(MasterWeightsOf, KeepUpdatesThatTheFormatCannotHold) {
  // 100 updates of 2^-14 on weights of 1, whose half ulp is 2^-9 in bf16 and 2^-12 in fp16 below 1.
  using T = TypeParam;
  const auto run = [](bool with_master) {
    Bench<T> bench;
    MasterWeights optimizer(bench.parameters, SgdOptions{});
    mixed::GradientAccumulator accumulator(bench.parameters);
    for (int i = 0; i < 100; ++i) {
      if (!with_master) optimizer.reload();
      Loss loss{1, 1, {{bench.model.gain.id, std::vector<float>(5, 0x1p-4F)}}};
      EXPECT_TRUE(train_step(bench, accumulator, optimizer, i, loss, 0x1p-10F));
    }
    return static_cast<float>(bench.parameters.values(bench.model.gain)[0]);
  };
  EXPECT_NEAR(run(true), 1.0F - 100 * 0x1p-14F, 0x1p-9F);
  EXPECT_EQ(run(false), 1.0F);
}

struct Listing {
  std::map<std::string, std::string> entries;
  void tensor(const tensor::StateTensor& t) {
    entries[std::string(t.name)] =
        core::text(numeric::to_string(t.dtype), ' ', to_string(t.shape), ' ', t.bytes.size());
  }
  void scalar(std::string_view name, std::int64_t& value) {
    entries[std::string(name)] = core::text(value);
  }
  void scalar(std::string_view name, double& value) {
    entries[std::string(name)] = core::text(value);
  }
};
TYPED_TEST(MasterWeightsOf, ShowMastersAndMomentsAsFloat) {
  using T = TypeParam;
  Bench<T> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{});
  Listing state, weights;
  optimizer.visit_state(state);
  EXPECT_EQ(state.entries,
            (std::map<std::string, std::string>{{"adamw.m.layer.gain", "F32 [5] 20"},
                                                {"adamw.m.layer.weight", "F32 [3, 400] 4800"},
                                                {"adamw.steps", "0"},
                                                {"adamw.v.layer.gain", "F32 [5] 20"},
                                                {"adamw.v.layer.weight", "F32 [3, 400] 4800"},
                                                {"master.layer.gain", "F32 [5] 20"},
                                                {"master.layer.weight", "F32 [3, 400] 4800"}}));
  optimizer.visit_weights(weights);
  EXPECT_EQ(weights.entries,
            (std::map<std::string, std::string>{{"layer.gain", "F32 [5] 20"},
                                                {"layer.weight", "F32 [3, 400] 4800"}}));
}

/// Copies state out of one and into another.
struct Copying {
  std::map<std::string, std::vector<std::byte>> tensors;
  std::map<std::string, std::int64_t> integers;
  bool load = false;
  void tensor(const tensor::StateTensor& t) {
    auto& kept = tensors[std::string(t.name)];
    if (load) {
      std::copy(kept.begin(), kept.end(), t.bytes.begin());
    } else {
      kept.assign(t.bytes.begin(), t.bytes.end());
    }
  }
  void scalar(std::string_view name, std::int64_t& value) {
    (load ? value : integers[std::string(name)]) = load ? integers[std::string(name)] : value;
  }
  void scalar(std::string_view, double&) {}
};
TYPED_TEST(MasterWeightsOf, ContinueFromTheirStateBitForBit) {
  using T = TypeParam;
  Bench<T> through, resumed, cold;
  MasterWeights a(through.parameters, AdamWOptions{}), b(resumed.parameters, AdamWOptions{}),
      c(cold.parameters, AdamWOptions{});
  mixed::GradientAccumulator ga(through.parameters), gb(resumed.parameters), gc(cold.parameters);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(train_step(through, ga, a, i, loss_of(through.model, i)));
  Copying state;
  a.visit_state(state);
  state.load = true;
  b.visit_state(state);
  EXPECT_EQ(b.steps(), 3);
  EXPECT_EQ(bits(resumed.parameters.values(resumed.model.weight)),
            bits(through.parameters.values(through.model.weight)));
  ASSERT_TRUE(train_step(through, ga, a, 3, loss_of(through.model, 3)));
  ASSERT_TRUE(train_step(resumed, gb, b, 3, loss_of(resumed.model, 3)));
  ASSERT_TRUE(train_step(cold, gc, c, 3, loss_of(cold.model, 3)));
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
  EXPECT_EQ(tensor::state_hash(a), tensor::state_hash(b));
  EXPECT_NE(a.weights_hash(), c.weights_hash());
}
TYPED_TEST(MasterWeightsOf, AreMadeAnewFromWeightsByReload) {
  using T = TypeParam;
  Bench<T> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{});
  bench.parameters.write(bench.model.gain.id)[2] = T(0.5F);
  EXPECT_EQ(optimizer.master(bench.model.gain.id)[2], 1.0F);
  optimizer.reload();
  EXPECT_EQ(optimizer.master(bench.model.gain.id)[2], 0.5F);
}
TYPED_TEST(MasterWeightsOf, RefuseWhatTheirOptimizerRefuses) {
  using T = TypeParam;
  Bench<T> bench;
  EXPECT_THROW(MasterWeights(bench.parameters, AdamWOptions{.beta1 = 2}), OptionError);
  MasterWeights optimizer(bench.parameters, AdamWOptions{});
  mixed::GradientAccumulator accumulator(bench.parameters);
  EXPECT_THROW(static_cast<void>(
                   train_step(bench, accumulator, optimizer, 0, loss_of(bench.model, 0), -1.0F)),
               OptionError);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_FALSE(accumulator.window_open());
}

TEST(MasterWeightsOfFloat, AreTheOptimizerItself) {
  Bench<float> wrapped, plain;
  MasterWeights a(wrapped.parameters, AdamWOptions{.weight_decay = 0.1});
  AdamW b(plain.parameters, {.weight_decay = 0.1});
  mixed::GradientAccumulator ga(wrapped.parameters), gb(plain.parameters);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(train_step(wrapped, ga, a, i, loss_of(wrapped.model, i)));
    ASSERT_TRUE(train_step(plain, gb, b, i, loss_of(plain.model, i)));
  }
  a.reload();
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
  EXPECT_EQ(wrapped.runtime.ledger().live(core::Category::master), 0);
  Listing weights;
  a.visit_weights(weights);
  EXPECT_EQ(weights.entries.count("layer.weight"), 1U);
}
TEST(MasterWeightsOfFloat, AndOfHalfAreDeducedAlike) {
  Bench<float> full;
  Bench<fp16> half;
  static_assert(std::is_same_v<decltype(MasterWeights(full.parameters, AdamWOptions{})),
                               MasterWeights<AdamW, float>>);
  static_assert(std::is_same_v<decltype(MasterWeights(half.parameters, SgdOptions{})),
                               MasterWeights<Sgd, fp16>>);
  static_assert(
      std::is_same_v<decltype(MasterWeights(half.parameters)), MasterWeights<AdamW, fp16>>);
  MasterWeights<AdamW, fp16> named(half.parameters, {.beta2 = 0.99F, .weight_decay = 0.1F});
  EXPECT_EQ(named.groups()[0].elements, 1200);
  EXPECT_EQ(named.options().beta1, 0.9);
}

}  // namespace
