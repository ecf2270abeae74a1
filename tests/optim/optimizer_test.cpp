// SPDX-License-Identifier: MIT
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>
#include <halfstep/tensor/hash.hpp>

#include <optim/given_gradients.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenGradients;

static_assert(optim::final_gradients<GivenGradients<float>>);
static_assert(optim::optimizer<optim::AdamW<float>, GivenGradients<float>>);
static_assert(optim::optimizer<optim::Sgd<double>, GivenGradients<double>>);
static_assert(!optim::optimizer<int, GivenGradients<float>>);

struct Layer {
  explicit Layer(Scope<float> scope)
      : weight(scope.add("weight", {5, 300}, Role::weight, Init::normal(0.02F))),
        bias(scope.add("bias", {300}, Role::bias, Init::normal(0.02F))),
        gain(scope.add("gain", {7}, Role::gain, Init::constant(1.0F))),
        table(scope.add("table", {11, 3}, Role::embedding, Init::normal(0.02F))) {}
  Parameter<float> weight, bias, gain, table;
};

std::vector<float> gradient_like(const Parameters<float>& parameters, float size) {
  std::vector<float> g(static_cast<std::size_t>(parameters.count()));
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] = size * (static_cast<float>(i % 17) - 8.0F);
  return g;
}
std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

struct Optimizer : testing::Test {
  Runtime runtime{{.threads = 2}};
  Parameters<float> parameters{runtime};
  Layer layer{parameters.scope() / "layer"};
  GivenGradients<float> gradients(float size = 1e-3F, double factor = 1.0) {
    return {parameters, gradient_like(parameters, size), factor};
  }
};

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(Optimizer, EveryParameterIsInExactlyOneGroupByRole) {
  optim::AdamW optimizer(parameters, {.weight_decay = 0.1});
  const auto groups = optimizer.groups();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].parameters, 2);
  EXPECT_EQ(groups[0].elements, 1500 + 33);
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].parameters, 2);
  EXPECT_EQ(groups[1].elements, 307);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  EXPECT_EQ(groups[0].elements + groups[1].elements, parameters.count());
  EXPECT_EQ(to_string(groups),
            "group     weight_decay  tensors   elements  roles\n"
            "decay              0.1        2       1533  weight, embedding\n"
            "no decay             0        2        307  gain, bias\n");
}
TEST_F(Optimizer, AStepWithoutGradientDecaysWeightsOnceAndLeavesGainsAndBiasesBitEqual) {
  optim::AdamW optimizer(parameters, {.weight_decay = 0.5});
  const auto weight = copy(parameters.values(layer.weight)),
             bias = copy(parameters.values(layer.bias)), gain = copy(parameters.values(layer.gain)),
             table = copy(parameters.values(layer.table));
  ASSERT_TRUE(optimizer.step(gradients(0.0F), 0.5F));
  EXPECT_EQ(copy(parameters.values(layer.bias)), bias);
  EXPECT_EQ(copy(parameters.values(layer.gain)), gain);
  for (std::size_t i = 0; i < weight.size(); ++i)
    ASSERT_EQ(parameters.values(layer.weight)[i], weight[i] * 0.75F);
  for (std::size_t i = 0; i < table.size(); ++i)
    ASSERT_EQ(parameters.values(layer.table)[i], table[i] * 0.75F);
}
TEST_F(Optimizer, TheFirstUpdateOfEveryTensorIsTheLearningRate) {
  // A counter that advanced once per tensor would give the fourth 0.58 of it.
  optim::AdamW optimizer(parameters);
  const auto before = copy(parameters.values(layer.table));
  ASSERT_TRUE(
      optimizer.step(GivenGradients<float>(parameters, std::vector<float>(1840, 0.25F)), 1e-3F));
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_NEAR(before[i] - parameters.values(layer.table)[i], 1e-3F, 1e-7F);
  }
  EXPECT_EQ(optimizer.steps(), 1);
}
TEST_F(Optimizer, ASkippedStepChangesNothing) {
  optim::AdamW optimizer(parameters, {.weight_decay = 0.1});
  ASSERT_TRUE(optimizer.step(gradients(), 1e-3F));
  const auto weights = optimizer.weights_hash(), state = tensor::state_hash(optimizer);
  const auto version = parameters.info(layer.weight.id).version;
  auto skipped = gradients();
  skipped.outcome.applied = false;
  skipped.outcome.why = optim::Skip::non_finite;
  const auto result = optimizer.step(std::move(skipped), 1e-3F);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.why, optim::Skip::non_finite);
  EXPECT_EQ(result.scale, 42.0F);
  EXPECT_EQ(optimizer.steps(), 1);
  EXPECT_EQ(tensor::state_hash(optimizer), state);
  EXPECT_EQ(parameters.info(layer.weight.id).version, version);
  EXPECT_EQ(optimizer.weights_hash(), weights);
  // The difference: the same step, applied.
  ASSERT_TRUE(optimizer.step(gradients(), 1e-3F));
  EXPECT_NE(optimizer.weights_hash(), weights);
  EXPECT_NE(tensor::state_hash(optimizer), state);
}
TEST_F(Optimizer, TheFactorMultipliesTheGradient) {
  optim::Sgd halved(parameters);
  ASSERT_TRUE(halved.step(gradients(1e-3F, 0.5), 1.0F));
  const auto a = halved.weights_hash();
  Parameters<float> other(runtime);
  const Layer same(other.scope() / "layer");
  optim::Sgd whole(other);
  ASSERT_TRUE(whole.step(GivenGradients<float>(other, gradient_like(other, 0.5e-3F)), 1.0F));
  EXPECT_EQ(whole.weights_hash(), a);
  ASSERT_TRUE(whole.step(GivenGradients<float>(other, gradient_like(other, 1e-3F)), 1.0F));
  EXPECT_NE(whole.weights_hash(), a);
}

// What sharding stands on.
template <class Rule>
void is_the_same_in_parts(const typename Rule::Options& options) {
  Runtime runtime({.threads = 2});
  Parameters<float> parameters(runtime);
  parameters.scope().add("a", {3000}, Role::weight, Init::normal(1.0F));
  parameters.lay_out();
  const auto start = copy(parameters.values(ParameterId{0}));
  std::vector<float> g(3000);
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] = 0.01F * (static_cast<float>(i % 29) - 14.0F);
  const auto run = [&](std::vector<optim::Part> parts) {
    auto weights = start;
    Rule rule(parameters, options, parts);
    for (int step = 0; step < 3; ++step) {
      rule.advance();
      for (std::size_t i = 0; i < parts.size(); ++i) {
        rule.run(runtime.compute(), i,
                 optim::Update<float>{weights.data() + parts[i].first, g.data() + parts[i].first,
                                      0.5, 1e-2F});
      }
    }
    return weights;
  };
  const auto whole = run(optim::whole_parts(parameters));
  EXPECT_NE(whole, start);
  EXPECT_EQ(run({{{0}, 0, 1024}, {{0}, 1024, 1024}, {{0}, 2048, 952}}), whole);
  EXPECT_EQ(run({{{0}, 2048, 952}, {{0}, 0, 2048}}), whole);
}
TEST(OptimizerParts, AdamWGivesTheSameBitsOnAnyRanges) {
  is_the_same_in_parts<optim::AdamWRule<float>>({.weight_decay = 0.1});
}
TEST(OptimizerParts, SgdGivesTheSameBitsOnAnyRanges) {
  is_the_same_in_parts<optim::SgdRule<float>>(
      {.momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
}

struct Listing {
  std::map<std::string, std::string> entries;
  void tensor(const tensor::StateTensor& t) {
    entries[std::string(t.name)] = core::text(numeric::to_string(t.dtype), ' ', to_string(t.shape),
                                              " from ", t.first, ", ", t.bytes.size(), " bytes");
  }
  void scalar(std::string_view name, std::int64_t& value) {
    entries[std::string(name)] = core::text(value);
  }
  void scalar(std::string_view name, double& value) {
    entries[std::string(name)] = core::text(value);
  }
};

TEST_F(Optimizer, AdamWShowsBothMomentsAndTheCount) {
  optim::AdamW optimizer(parameters);
  ASSERT_TRUE(optimizer.step(gradients(), 1e-3F));
  Listing list;
  optimizer.visit_state(list);
  EXPECT_EQ(list.entries.size(), 9U);
  EXPECT_EQ(list.entries["adamw.m.layer.weight"], "F32 [5, 300] from 0, 6000 bytes");
  EXPECT_EQ(list.entries["adamw.v.layer.gain"], "F32 [7] from 0, 28 bytes");
  EXPECT_EQ(list.entries["adamw.steps"], "1");
}
TEST_F(Optimizer, APartShowsItsRangeOfTheWholeTensor) {
  optim::AdamWRule<float> rule(parameters, {}, {{layer.weight.id, 1024, 476}});
  Listing list;
  rule.visit_state(list);
  EXPECT_EQ(list.entries["adamw.m.layer.weight"], "F32 [5, 300] from 1024, 1904 bytes");
}
TEST_F(Optimizer, SgdKeepsAVelocityOnlyWithMomentum) {
  optim::Sgd plain(parameters);
  EXPECT_EQ(runtime.ledger().live(core::Category::moments), 0);
  optim::Sgd heavy(parameters, {.momentum = 0.9});
  EXPECT_EQ(runtime.ledger().live(core::Category::moments), parameters.count() * 4);
  Listing list;
  heavy.visit_state(list);
  EXPECT_EQ(list.entries.count("sgd.velocity.layer.bias"), 1U);
}
TEST_F(Optimizer, MomentsTakeEightBytesAnElement) {
  optim::AdamW optimizer(parameters);
  EXPECT_EQ(runtime.ledger().live(core::Category::moments), parameters.count() * 8);
}

TEST_F(Optimizer, RefusesALearningRateThatIsNone) {
  optim::AdamW optimizer(parameters);
  const auto before = tensor::state_hash(optimizer);
  for (const float lr :
       {-1e-3F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(static_cast<void>(optimizer.step(gradients(), lr)), OptionError);
  }
  EXPECT_EQ(message_of([&] { static_cast<void>(optimizer.step(gradients(), -1.0F)); }),
            "AdamW: lr is -1, wanted a finite number of at least 0. Did a schedule divide by 0?");
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_EQ(tensor::state_hash(optimizer), before);
}
TEST_F(Optimizer, RefusesGradientsOfAnotherStore) {
  Parameters<float> other(runtime);
  const Layer same(other.scope());
  optim::AdamW optimizer(parameters);
  EXPECT_EQ(message_of([&] {
              static_cast<void>(
                  optimizer.step(GivenGradients<float>(other, gradient_like(other, 1)), 1.0F));
            }),
            "AdamW: the gradients belong to another store than the optimizer's parameters. Was the "
            "accumulator made "
            "for another model?");
}
TEST_F(Optimizer, RefusesGradientsThatWereUsed) {
  optim::AdamW optimizer(parameters);
  auto once = gradients();
  ASSERT_TRUE(optimizer.step(std::move(once), 1e-3F));
  EXPECT_THROW(static_cast<void>(optimizer.step(std::move(once), 1e-3F)), StateError);
  EXPECT_EQ(optimizer.steps(), 1);
}
TEST(OptimizerOptions, RefusesAStoreWithoutParameters) {
  Runtime runtime({.threads = 1});
  Parameters<float> empty(runtime);
  EXPECT_EQ(message_of([&] { const optim::AdamW optimizer(empty); }),
            "optimizer: the store holds no parameters. Build the model before its optimizer.");
}
TEST_F(Optimizer, RefusesOptionsOutOfRangeByName) {
  EXPECT_THROW(optim::AdamW(parameters, {.beta1 = 1.0}), OptionError);
  EXPECT_THROW(optim::AdamW(parameters, {.beta2 = -0.1}), OptionError);
  EXPECT_THROW(optim::AdamW(parameters, {.eps = 0.0}), OptionError);
  EXPECT_THROW(optim::AdamW(parameters, {.weight_decay = std::numeric_limits<double>::quiet_NaN()}),
               OptionError);
  EXPECT_THROW(optim::Sgd(parameters, {.nesterov = true}), OptionError);
  EXPECT_EQ(message_of([&] { const optim::Sgd optimizer(parameters, {.momentum = 1.5}); }),
            "Sgd: momentum 1.5, nesterov false, weight_decay 0; wanted momentum in [0, 1), above 0 "
            "if nesterov is set, "
            "and weight_decay >= 0. Is a learning rate in the place of the momentum?");
  EXPECT_EQ(message_of([&] { const optim::AdamW optimizer(parameters, {.beta1 = 3.0}); }),
            "AdamW: beta1 3, beta2 0.999, eps 1e-08, weight_decay 0; wanted both betas in [0, 1), "
            "eps > 0 and "
            "weight_decay >= 0, all finite. Is a learning rate in the place of a beta?");
}

}  // namespace
