// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>
#include <halfstep/tensor/hash.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenTape;
using Loss = halfstep_tests::GivenLoss<float>;
using optim::Skip;

static_assert(optim::final_gradients<mixed::Unscaled<float>>);
static_assert(optim::final_gradients<mixed::Unscaled<bf16>>);
static_assert(optim::optimizer<optim::AdamW<float>, mixed::Unscaled<float>>);
static_assert(!std::is_copy_constructible_v<mixed::Window<float>>);
static_assert(!std::is_copy_constructible_v<mixed::Unscaled<float>>);

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Window : testing::Test {
  Window() {
    a = parameters.scope().add("a", {2}, Role::weight, Init::constant(1.0F)).id;
    b = parameters.scope().add("b", {1}, Role::weight, Init::constant(1.0F)).id;
  }
  Loss loss(double sum, double count, std::vector<float> ga, std::vector<float> gb = {0}) const {
    return {sum, count, {{b, std::move(gb)}, {a, std::move(ga)}}};
  }
  /// A window over these micro-batches, one target each unless the losses say otherwise.
  template <class Accumulator>
  auto swept(Accumulator& into, const std::vector<Loss>& losses, std::int64_t iteration = 0,
             int rows = 1) {
    auto window = into.begin(
        tape, iteration,
        {.micro_batches = static_cast<int>(losses.size()), .rows = rows, .targets_per_row = 1});
    auto next = losses.begin();
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, *next++);
    }
    return window;
  }
  std::vector<float> weights() {
    const auto all = parameters.values(a);
    return {all[0], all[1], parameters.values(b)[0]};
  }

  Runtime runtime{{.threads = 2}};
  Parameters<float> parameters{runtime};
  ParameterId a, b;
  GivenTape tape;
  mixed::GradientAccumulator<float> accumulator{parameters};
};

TEST_F(Window, NumbersIterationsMicroBatchesAndSamples) {
  auto window = accumulator.begin(tape, 5, {.micro_batches = 4, .rows = 3, .targets_per_row = 7});
  std::int64_t number = 0;
  for (const MicroBatch micro : window) {
    EXPECT_EQ(micro.iteration, 5);
    EXPECT_EQ(micro.number, number);
    EXPECT_EQ(micro.first_sample, (5 * 4 + number) * 3);
    EXPECT_EQ(micro.rows, 3);
    ++number;
  }
  EXPECT_EQ(number, 4);
}
TEST_F(Window, OfOneRankVisitsItsShareOfTheStep) {
  auto window = accumulator.begin(tape, 1, {.micro_batches = 8, .rows = 2},
                                  {.first = 1, .stride = 4, .count = 2});
  std::vector<std::int64_t> numbers, samples;
  for (const MicroBatch micro : window) {
    numbers.push_back(micro.number);
    samples.push_back(micro.first_sample);
  }
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, 5}));
  EXPECT_EQ(samples, (std::vector<std::int64_t>{18, 26}));
}
TEST_F(Window, FixesTheSeedBeforeTheFirstForward) {
  mixed::LossScaler scaler;
  mixed::GradientAccumulator scaled(parameters, scaler);
  const struct {
    int v, r;
    std::int64_t l;
    double power;
  } cases[] = {
      {1, 1, 1, 1}, {4, 8, 128, 4096}, {1, 12, 64, 1024}, {3, 1, 1, 4}, {1, 1, 1025, 2048}};
  for (const auto& c : cases) {
    {
      const auto window =
          accumulator.begin(tape, 0, {.micro_batches = c.v, .rows = c.r, .targets_per_row = c.l});
      EXPECT_EQ(tape.seed(), 1.0 / c.power);
      EXPECT_EQ(window.seed(), tape.seed());
    }
    EXPECT_EQ(tape.seed(), 1.0);
    const auto window =
        scaled.begin(tape, 0, {.micro_batches = c.v, .rows = c.r, .targets_per_row = c.l});
    EXPECT_EQ(tape.seed(), 65536.0 / c.power);
  }
}
TEST_F(Window, DividesOnceByTheValidTargetsOfAllMicroBatches) {
  // 1 and 3 valid targets with loss sums 4 and 6: the mean of means would be 3.
  auto window = swept(accumulator, {loss(4, 1, {8, 0}), loss(6, 3, {0, 4})}, 0, 3);
  EXPECT_EQ(window.loss(), 2.5);
  EXPECT_EQ(window.loss_sum(), 10.0);
  EXPECT_EQ(window.count(), 4.0);
  auto gradients = std::move(window).unscale();
  EXPECT_EQ(gradients.loss(), 2.5);
  EXPECT_EQ(gradients.loss_sum(), 10.0);
  EXPECT_EQ(gradients.count(), 4.0);
  EXPECT_EQ(gradients.factor() * static_cast<double>(gradients.sum(a)[0]), 2.0);
  EXPECT_EQ(gradients.factor() * static_cast<double>(gradients.sum(a)[1]), 1.0);
  optim::Sgd optimizer(parameters);
  ASSERT_TRUE(optimizer.step(std::move(gradients), 0.125F));
  EXPECT_EQ(weights(), (std::vector<float>{0.75F, 0.875F, 1.0F}));
}
TEST_F(Window, OfFourEqualMicroBatchesHasTheNormOfOne) {
  std::vector<Loss> losses(4, loss(1, 1, {3, 4}));
  auto four = swept(accumulator, losses);
  EXPECT_EQ(std::move(four).unscale().norm(), 5.0F);
  auto one = swept(accumulator, {loss(1, 1, {3, 4})});
  EXPECT_EQ(std::move(one).unscale().norm(), 5.0F);
}
TEST_F(Window, OfThreeOfFourAccumulatedDividesByWhatWasAccumulated) {
  // The tail of an epoch: 7 micro-batches in steps of 4 and 3.
  std::vector<Loss> losses(3, loss(1, 1, {3, 4}));
  auto tail = swept(accumulator, losses, 1);
  EXPECT_EQ(std::move(tail).unscale().norm(), 5.0F);
}
TEST_F(Window, KeepsNothingOfTheOneBefore) {
  {
    auto dropped =
        accumulator.begin(tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
    tape.begin(*dropped.begin());
    dropped.backward(tape, loss(100, 1, {100, 100}));
  }
  EXPECT_FALSE(tape.attached());
  auto window = swept(accumulator, {loss(1, 1, {3, 4}), loss(1, 1, {3, 4})}, 1);
  EXPECT_EQ(window.loss(), 1.0);
  EXPECT_EQ(std::move(window).unscale().norm(), 5.0F);
}
TEST_F(Window, SumsLossesAndCountsInTheHousesTree) {
  const double sums[] = {1e16, 1.0, -1e16, 1.0, 3.0};
  std::vector<Loss> losses;
  for (const double sum : sums)
    losses.push_back(loss(sum, 1, {1, 1}));
  const auto window = swept(accumulator, losses);
  const double wanted = ((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0;
  EXPECT_EQ(window.loss_sum(), wanted);
  EXPECT_NE(window.loss_sum(), (((1e16 + 1.0) + -1e16) + 1.0) + 3.0);
}
TEST_F(Window, OfAnyPowerOfTwoScaleGivesTheSameUpdate) {
  const auto update = [](float scale) {
    Runtime own({.threads = 1});
    Parameters<float> store(own);
    const auto id = store.scope().add("w", {3}, Role::weight, Init::constant(1.0F)).id;
    auto scaler = mixed::LossScaler::fixed(scale);
    mixed::GradientAccumulator sums(store, scaler);
    optim::AdamW optimizer(store);
    GivenTape own_tape;
    auto window = sums.begin(own_tape, 0, {.micro_batches = 1, .rows = 3, .targets_per_row = 1});
    own_tape.begin(*window.begin());
    window.backward(own_tape, Loss{1, 3, {{id, {0.1F, -7.0F, 1e-3F}}}});
    const auto result = optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
    EXPECT_TRUE(result);
    EXPECT_EQ(result.scale, scale);
    return std::pair(optimizer.weights_hash(), result.norm);
  };
  const auto plain = update(1.0F);
  EXPECT_EQ(update(65536.0F), plain);
  EXPECT_EQ(update(0x1p-10F), plain);
  EXPECT_NE(update(3.0F).first, 0U);
}
TEST_F(Window, WithoutTargetsSkipsAndSaysSo) {
  mixed::LossScaler scaler({.interval = 1});
  mixed::GradientAccumulator scaled(parameters, scaler);
  optim::AdamW optimizer(parameters, {.weight_decay = 0.1});
  const auto before = optimizer.weights_hash();
  auto window = swept(scaled, {loss(0, 0, {0, 0})});
  auto gradients = std::move(window).unscale();
  EXPECT_TRUE(gradients.finite());
  EXPECT_EQ(gradients.loss(), 0.0);
  const auto result = optimizer.step(std::move(gradients).clip_norm(1.0F), 1e-3F);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.why, Skip::no_targets);
  EXPECT_EQ(result.first_bad, "");
  EXPECT_EQ(result.scale, 65536.0F);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_EQ(optimizer.weights_hash(), before);
  EXPECT_EQ(to_string(result.why), "no valid targets");
}
TEST_F(Window, NamesTheFirstParameterThatIsNotFinite) {
  mixed::LossScaler scaler;
  mixed::GradientAccumulator scaled(parameters, scaler);
  optim::AdamW optimizer(parameters, {.weight_decay = 0.1});
  const auto before = tensor::state_hash(optimizer), hash = optimizer.weights_hash();
  const struct {
    std::vector<float> ga, gb;
    const char* name;
    int values;
  } cases[] = {{{1, infinity}, {1}, "a", 1},
               {{1, 1}, {not_a_number}, "b", 1},
               {{-infinity, not_a_number}, {infinity}, "a", 3}};
  float scale = 65536.0F;
  for (const auto& c : cases) {
    auto window = swept(scaled, {loss(1, 1, c.ga, c.gb)});
    auto gradients = std::move(window).unscale();
    EXPECT_FALSE(gradients.finite());
    const auto result = optimizer.step(std::move(gradients).clip_norm(1.0F), 1e-3F);
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.why, Skip::non_finite);
    EXPECT_EQ(result.first_bad, c.name);
    EXPECT_EQ(result.bad_values, c.values);
    EXPECT_EQ(result.clipped_by, 1.0F);
    EXPECT_EQ(result.scale, scale /= 2);
  }
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_EQ(tensor::state_hash(optimizer), before);
  EXPECT_EQ(optimizer.weights_hash(), hash);
  // The difference: the same with finite gradients.
  auto window = swept(scaled, {loss(1, 1, {1, 2}, {3})});
  EXPECT_TRUE(optimizer.step(std::move(window).unscale(), 1e-3F));
  EXPECT_NE(optimizer.weights_hash(), hash);
  EXPECT_EQ(scaler.good_steps(), 1);
}
TEST_F(Window, SkipsWhereUnscalingWouldOverflow) {
  mixed::LossScaler tiny({.initial = 0x1p-10F, .interval = 1});
  mixed::GradientAccumulator scaled(parameters, tiny);
  optim::Sgd optimizer(parameters);
  const auto hash = optimizer.weights_hash();
  const auto step = [&](float g) {
    auto window = scaled.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.begin(*window.begin());
    window.backward(tape, Loss{1, 0x1p-4, {{b, {1.0F}}, {a, {g, 0.0F}}}});
    return optimizer.step(std::move(window).unscale(), 1.0F);
  };
  const auto result = step(3e38F);  // the sum is finite; the mean, 16 x as large, is not
  EXPECT_EQ(result.why, Skip::non_finite);
  EXPECT_EQ(result.first_bad, "a");
  EXPECT_EQ(result.bad_values, 0);
  EXPECT_EQ(result.norm, infinity);
  EXPECT_EQ(result.scale, 0x1p-11F);
  EXPECT_EQ(optimizer.weights_hash(), hash);
  EXPECT_TRUE(step(1e3F));
}
TEST_F(Window, IsRefusedOnceTheScalerHasAskedToStop) {
  mixed::LossScaler stops({.initial = 1, .minimum = 1, .at_floor = mixed::AtFloor::stop});
  mixed::GradientAccumulator scaled(parameters, stops);
  optim::Sgd optimizer(parameters);
  const auto hash = optimizer.weights_hash();
  auto window = swept(scaled, {loss(1, 1, {infinity, 0})});
  const auto result = optimizer.step(std::move(window).unscale(), 1.0F);
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.scale_change, optim::ScaleChange::stop);
  EXPECT_EQ(result.scale, 1.0F);
  EXPECT_THROW(static_cast<void>(scaled.begin(tape, 1)), NumericError);
  EXPECT_FALSE(tape.attached());
  EXPECT_FALSE(scaled.window_open());
  EXPECT_EQ(optimizer.weights_hash(), hash);
}
TEST_F(Window, ThrowsFromItsStepWhereTheScalerWantsAnError) {
  mixed::LossScaler fails({.initial = 1, .minimum = 1, .at_floor = mixed::AtFloor::error});
  mixed::GradientAccumulator scaled(parameters, fails);
  optim::Sgd optimizer(parameters);
  auto window = swept(scaled, {loss(1, 1, {infinity, 0})});
  EXPECT_THROW(static_cast<void>(optimizer.step(std::move(window).unscale(), 1.0F)), NumericError);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_FALSE(scaled.window_open());  // it has ended, and so has the run
  EXPECT_THROW(static_cast<void>(scaled.begin(tape, 1)), NumericError);
}
TEST_F(Window, SaysWhatBecameOfTheScale) {
  using optim::ScaleChange;
  mixed::LossScaler scaler({.initial = 4, .interval = 2, .minimum = 2, .hysteresis = 2});
  mixed::GradientAccumulator scaled(parameters, scaler);
  optim::Sgd optimizer(parameters);
  std::vector<ScaleChange> changes;
  std::int64_t iteration = 0;
  for (const float g : {infinity, 1.0F, 1.0F, infinity, infinity, infinity, infinity}) {
    auto window = swept(scaled, {loss(1, 1, {g, 0})}, iteration++);
    EXPECT_EQ(scaler.scale(), window.seed());  // stands still while the window is open
    changes.push_back(optimizer.step(std::move(window).unscale(), 0.0F).scale_change);
  }
  EXPECT_EQ(changes, (std::vector{ScaleChange::spared, ScaleChange::none, ScaleChange::grown,
                                  ScaleChange::spared, ScaleChange::cut, ScaleChange::cut,
                                  ScaleChange::at_floor}));
  EXPECT_EQ(to_string(changes.back()), "at floor");
}
TEST_F(Window, SkipsWhereTheFactorWouldBeSubnormal) {
  // 2^-127 is read as zero by the kernels: the update would be lost without a word.
  mixed::LossScaler huge({.initial = 0x1p127F});
  mixed::GradientAccumulator scaled(parameters, huge);
  optim::Sgd optimizer(parameters);
  auto window = swept(scaled, {loss(1, 1, {0x1p-20F, 0})});
  const auto result = optimizer.step(std::move(window).unscale(), 1.0F);
  EXPECT_EQ(result.why, Skip::non_finite);
  EXPECT_EQ(result.scale, 0x1p126F);
  auto next = swept(scaled, {loss(1, 1, {0x1p-20F, 0})}, 1);
  EXPECT_TRUE(optimizer.step(std::move(next).unscale(), 1.0F));
  EXPECT_EQ(weights()[0], 1.0F - 0x1p-20F);
}
TEST_F(Window, ClipsByTheHousesDefinition) {
  const auto clip = [&](float limit) {
    auto window = swept(accumulator, {loss(1, 1, {3, 0}, {4})});
    return std::move(window).unscale().clip_norm(limit).result();
  };
  EXPECT_EQ(clip(5.0F).clipped_by, 1.0F);  // not above the limit: exactly 1
  EXPECT_EQ(clip(6.0F).clipped_by, 1.0F);
  EXPECT_EQ(clip(infinity).clipped_by, 1.0F);
  EXPECT_EQ(clip(1.0F).clipped_by, 0.2F);  // no epsilon
  EXPECT_EQ(clip(1.0F).norm, 5.0F);        // before clipping
  EXPECT_EQ(clip(0.01F).clipped_by, 0.01F / 5.0F);
  auto window = swept(accumulator, {loss(1, 1, {3, 0}, {4})});
  auto gradients = std::move(window).unscale().clip_norm(1.0F);
  EXPECT_EQ(gradients.factor(), static_cast<double>(0.2F));
  const auto again = std::move(gradients).clip_norm(2.0F);
  EXPECT_EQ(again.factor(), static_cast<double>(0.2F));  // the smaller limit holds
}
TEST_F(Window, ClipsAHundredTwiceAsInKerasTable) {
  auto window = swept(accumulator, {loss(1, 1, {100, 100})});
  optim::Sgd optimizer(parameters);
  ASSERT_TRUE(optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1.0F));
  EXPECT_NEAR(1.0F - weights()[0], 0.70710678F, 1e-7F);
}
TEST_F(Window, ClipsWhatAMeanOfEightIs) {
  // Clipping before the division by the number of micro-batches would see 8 x the norm.
  std::vector<Loss> losses(8, loss(1, 1, {0.6F, 0.8F}));
  auto window = swept(accumulator, losses);
  const auto result = std::move(window).unscale().clip_norm(1.0001F).result();
  EXPECT_EQ(result.clipped_by, 1.0F);
  EXPECT_NEAR(result.norm, 1.0F, 1e-6F);
}
TEST_F(Window, ClipsLargeGradientsWithoutOverflow) {
  auto window = swept(accumulator, {loss(1, 1, {1e30F, 0}, {0})});
  const auto gradients = std::move(window).unscale().clip_norm(1.0F);
  EXPECT_TRUE(gradients.finite());
  EXPECT_NEAR(gradients.factor() * static_cast<double>(gradients.sum(a)[0]), 1.0, 1e-6);
}
TEST_F(Window, SkipsWhereClippingWouldLoseTheGradient) {
  auto scaler = mixed::LossScaler::fixed(0x1p20F);
  mixed::GradientAccumulator scaled(parameters, scaler);
  auto window = swept(scaled, {loss(1, 1, {0, 0}, {0x1p107F})});
  const auto result = std::move(window).unscale().clip_norm(1.0F).result();  // 2^-127
  EXPECT_EQ(result.why, Skip::non_finite);
  EXPECT_EQ(result.first_bad, "b");
}
TEST_F(Window, ReportsTheNormOfTheHousesBlocks) {
  Parameters<float> store(runtime);
  const auto first = store.scope().add("first", {1500}, Role::weight, {}).id;
  const auto second = store.scope().add("second", {2049}, Role::weight, {}).id;
  std::vector<float> g1(1500), g2(2049);
  for (std::size_t i = 0; i < g1.size(); ++i)
    g1[i] = 0.1F / static_cast<float>(i + 1);
  for (std::size_t i = 0; i < g2.size(); ++i)
    g2[i] = 0.3F / static_cast<float>(2 * i + 1);
  // Lanes, folds and tree, word for word.
  std::vector<double> blocks;
  for (const auto* g : {&g1, &g2}) {
    for (std::size_t start = 0; start < g->size(); start += 1024) {
      double lane[16] = {};
      for (std::size_t j = start; j < std::min(start + 1024, g->size()); ++j) {
        const double x = static_cast<double>((*g)[j]);
        lane[(j - start) % 16] += x * x;
      }
      for (const std::size_t width : {8U, 4U, 2U, 1U}) {
        for (std::size_t l = 0; l < width; ++l)
          lane[l] += lane[l + width];
      }
      blocks.push_back(lane[0]);
    }
  }
  ASSERT_EQ(blocks.size(), 5U);
  const double squares = ((blocks[0] + blocks[1]) + (blocks[2] + blocks[3])) + blocks[4];
  mixed::GradientAccumulator sums(store);
  auto window = sums.begin(tape, 0, {.micro_batches = 1, .rows = 3, .targets_per_row = 1});
  tape.begin(*window.begin());
  window.backward(tape, Loss{1, 3, {{first, g1}, {second, g2}}});
  const auto gradients = std::move(window).unscale();
  // The sum is scaled by 1/4 and divided by 3/4; powers of two change no bits.
  EXPECT_EQ(gradients.norm(), static_cast<float>(std::sqrt(squares / 16.0) * (1.0 / 0.75)));
}
TEST_F(Window, DoesNotSeeTheCallersRoundingMode) {
  const auto step = [](int mode) {
    Runtime own({.threads = 2});
    Parameters<float> store(own);
    const auto id = store.scope().add("w", {1025}, Role::weight, Init::normal(0.02F)).id;
    mixed::GradientAccumulator sums(store);
    optim::AdamW optimizer(store, {.weight_decay = 0.1});
    GivenTape own_tape;
    std::fesetround(mode);
    std::vector<float> norms;
    for (int iteration = 0; iteration < 3; ++iteration) {
      auto window =
          sums.begin(own_tape, iteration, {.micro_batches = 1, .rows = 3, .targets_per_row = 1});
      std::vector<float> g(1025);
      for (std::size_t i = 0; i < g.size(); ++i)
        g[i] = static_cast<float>(i % 77) * 0x1p-7F;
      own_tape.begin(*window.begin());
      window.backward(own_tape, Loss{0.1, 3, {{id, g}}});
      norms.push_back(optimizer.step(std::move(window).unscale().clip_norm(0.7F), 1e-3F).norm);
    }
    const bool kept = std::fegetround() == mode;
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(kept);
    return std::pair(optimizer.weights_hash(), norms);
  };
  const auto nearest = step(FE_TONEAREST);
  EXPECT_EQ(step(FE_UPWARD), nearest);
  EXPECT_EQ(step(FE_TOWARDZERO), nearest);
}
TEST_F(Window, AllocatesNothingAfterTheFirstOfAShape) {
  std::vector<Loss> losses(4, loss(1, 1, {3, 4}));
  static_cast<void>(swept(accumulator, losses));
  const auto live = runtime.ledger().live(), peak = runtime.ledger().peak();
  static_cast<void>(swept(accumulator, losses, 1));
  EXPECT_EQ(runtime.ledger().live(), live);
  EXPECT_EQ(runtime.ledger().peak(), peak);
  EXPECT_EQ(runtime.ledger().live(core::Category::gradients), 2 * 3 * 4);
}
TEST_F(Window, AParameterThatTookNoPartHasGradientZero) {
  auto first = swept(accumulator, {loss(1, 1, {5, 5}, {5})});
  static_cast<void>(std::move(first).unscale());
  auto window = swept(accumulator, {Loss{1, 1, {{b, {2}}}}}, 1);
  const auto gradients = std::move(window).unscale();
  EXPECT_EQ(gradients.sum(a)[0], 0.0F);
  EXPECT_EQ(gradients.norm(), 2.0F);
}

// Wrong orders that only a run can show.
TEST_F(Window, RefusesASecondOneWhileItIsOpen) {
  {
    const auto open = accumulator.begin(tape, 7);
    EXPECT_TRUE(accumulator.window_open());
    EXPECT_EQ(message_of([&] { static_cast<void>(accumulator.begin(tape, 8)); }),
              "GradientAccumulator::begin: the window of iteration 7 is open still. End it by "
              "optimizer.step(std::move(window).unscale(), lr), or let it go out of scope.");
  }
  {
    auto window = swept(accumulator, {loss(1, 1, {1, 1})});
    const auto gradients = std::move(window).unscale();
    EXPECT_FALSE(tape.attached());
    EXPECT_THROW(static_cast<void>(accumulator.begin(tape, 8)), StateError);  // the sum is in use
  }
  EXPECT_FALSE(accumulator.window_open());
  static_cast<void>(accumulator.begin(tape, 9));
}
TEST_F(Window, RefusesMicroBatchesTwiceOrOutOfOrder) {
  auto window = accumulator.begin(tape, 3, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
  auto micro = window.begin();
  const auto first = *micro, second = *++micro;
  tape.begin(second);
  EXPECT_EQ(message_of([&] {
              window.backward(tape, loss(1, 1, {1, 1}));
            }),
            "Window::backward: the tape was begun for iteration 3, micro-batch 1, but the next one "
            "of the window is "
            "iteration 3, micro-batch 0. Call tape.begin(micro) and window.backward once for each "
            "micro of the window, in "
            "order.");
  tape.begin(first);
  window.backward(tape, loss(1, 1, {1, 1}));
  EXPECT_THROW(window.backward(tape, loss(1, 1, {1, 1})), StateError);
  EXPECT_EQ(message_of([&] { static_cast<void>(std::move(window).unscale()); }),
            "Window::unscale: 1 of 2 micro-batches are in the sum. Call window.backward for each "
            "micro of the window.");
  tape.begin(second);
  window.backward(tape, loss(1, 1, {1, 1}));  // the refusals did no harm
  EXPECT_EQ(message_of([&] {
              window.backward(tape, loss(1, 1, {1, 1}));
            }),
            "Window::backward: all 2 micro-batches are in the sum already. Was backward called "
            "twice in the loop's last "
            "turn?");
  EXPECT_EQ(std::move(window).unscale().norm(), std::sqrt(2.0F));
}
TEST_F(Window, RefusesAnotherTape) {
  auto window = accumulator.begin(tape, 0);
  GivenTape other;
  EXPECT_EQ(message_of([&] {
              window.backward(other, loss(1, 1, {1, 1}));
            }),
            "Window::backward: this is not the tape that the window was begun with");
}
TEST_F(Window, IsSpoiltByASweepThatThrowsAndTheNextOneIsNot) {
  {
    auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.begin(*window.begin());
    auto broken = loss(1, 1, {1, 1}, {9});
    broken.throws = true;
    EXPECT_THROW(window.backward(tape, broken), std::runtime_error);
    EXPECT_EQ(message_of([&] {
                window.backward(tape, loss(1, 1, {1, 1}));
              }),
              "Window::backward: an earlier sweep of this window threw, so its sum is incomplete. "
              "Drop the window and "
              "begin another.");
    EXPECT_EQ(message_of([&] { static_cast<void>(std::move(window).unscale()); }),
              "Window::unscale: 0 of 1 micro-batches are in the sum, and the sweep of the next one "
              "threw. Drop the window "
              "and begin another.");
  }
  auto window = swept(accumulator, {loss(1, 1, {3, 4})}, 1);
  EXPECT_EQ(std::move(window).unscale().norm(), 5.0F);
}
TEST_F(Window, ThatWasMovedFromThrowsWhateverIsAsked) {
  auto window = swept(accumulator, {loss(1, 1, {3, 4})});
  auto moved = std::move(window);
  const std::string wanted =
      "Window::loss: the window has ended or was moved from. Begin another: "
      "accumulator.begin(...).";
  EXPECT_EQ(message_of([&] { static_cast<void>(window.loss()); }), wanted);  // NOLINT: on purpose
  EXPECT_THROW(static_cast<void>(window.begin()), StateError);
  EXPECT_THROW(window.backward(tape, loss(1, 1, {1, 1})), StateError);
  EXPECT_THROW(static_cast<void>(std::move(window).unscale()), StateError);
  auto gradients = std::move(moved).unscale();
  EXPECT_THROW(static_cast<void>(std::move(moved).unscale()), StateError);
  auto held = std::move(gradients);
  EXPECT_THROW(static_cast<void>(gradients.norm()), StateError);
  EXPECT_THROW(static_cast<void>(std::move(gradients).clip_norm(1.0F)), StateError);
  optim::Sgd optimizer(parameters);
  EXPECT_EQ(message_of([&] { static_cast<void>(optimizer.step(std::move(gradients), 1.0F)); }),
            "optimizer.step: these gradients were used already, by a step or by std::move. Every "
            "update needs a window of "
            "its own.");
  EXPECT_TRUE(optimizer.step(std::move(held), 1.0F));
  EXPECT_THROW(static_cast<void>(optimizer.step(std::move(held), 1.0F)), StateError);
  EXPECT_EQ(optimizer.steps(), 1);
}
TEST_F(Window, RefusesALimitThatIsNone) {
  for (const float limit : {0.0F, -1.0F, not_a_number}) {
    auto window = swept(accumulator, {loss(1, 1, {3, 4})});
    EXPECT_THROW(static_cast<void>(std::move(window).unscale().clip_norm(limit)), OptionError);
  }
  auto window = swept(accumulator, {loss(1, 1, {3, 4})});
  EXPECT_EQ(message_of([&] { static_cast<void>(std::move(window).unscale().clip_norm(-1.0F)); }),
            "Unscaled::clip_norm: the limit is -1, wanted more than 0. To leave the gradient as it "
            "is, do not call "
            "clip_norm.");
  EXPECT_FALSE(accumulator.window_open());
}
TEST_F(Window, RefusesNumbersBelowOne) {
  for (const mixed::StepShape bad :
       {mixed::StepShape{0, 8, 128},
        {1, 0, 128},
        {1, 8, 0},
        {-4, 8, 128},
        {std::numeric_limits<int>::max(), std::numeric_limits<int>::max(), 128}}) {
    EXPECT_THROW(static_cast<void>(accumulator.begin(tape, 0, bad)), OptionError);
  }
  EXPECT_THROW(static_cast<void>(accumulator.begin(tape, -1)), OptionError);
  EXPECT_THROW(static_cast<void>(accumulator.begin(tape, 0, {.micro_batches = 4},
                                                   {.first = 2, .stride = 2, .count = 2})),
               OptionError);
  EXPECT_EQ(
      message_of([&] { static_cast<void>(accumulator.begin(tape, 0, {.micro_batches = 0})); }),
      "GradientAccumulator::begin: iteration 0, micro_batches 0, rows 8, targets_per_row 128; "
      "wanted iteration >= 0, "
      "the others >= 1 and their product at most 2^53. Is the accumulation count an unset option?");
  static_cast<void>(accumulator.begin(tape, 0));
}
TEST_F(Window, RefusesADryTape) {
  tape.is_dry = true;
  EXPECT_EQ(
      message_of([&] { static_cast<void>(accumulator.begin(tape, 0)); }),
      "GradientAccumulator::begin: the tape is dry: it places buffers and computes nothing. Call "
      "tape.backward(loss) there, without a window.");
  EXPECT_FALSE(accumulator.window_open());
}
TEST_F(Window, DroppedLeavesTheScaleAlone) {
  mixed::LossScaler scaler({.interval = 1});
  mixed::GradientAccumulator scaled(parameters, scaler);
  { const auto window = scaled.begin(tape, 0); }
  {
    auto window = swept(scaled, {loss(1, 1, {infinity, 1})});
    const auto gradients = std::move(window).unscale();
    EXPECT_THROW(scaler.update(false), StateError);
  }
  EXPECT_EQ(scaler.scale(), 65536.0F);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0F);
}

// y = 2 x, squared error, x = 1 to 8: PyTorch and Accelerate publish w = 2.04 after one step of
// 0.02, with and without accumulation of four micro-batches of two.
TEST(Accumulation, GivesAcceleratesPublishedWeight) {
  for (const int micro_batches : {1, 4}) {
    Runtime runtime({.threads = 1});
    Parameters<double> parameters(runtime);
    const auto w = parameters.scope().add("w", {1}, Role::weight, {}).id;
    mixed::GradientAccumulator accumulator(parameters);
    optim::Sgd optimizer(parameters);
    GivenTape tape;
    const int rows = 8 / micro_batches;
    auto window = accumulator.begin(
        tape, 0, {.micro_batches = micro_batches, .rows = rows, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      halfstep_tests::GivenLoss<double> loss{0, static_cast<double>(rows), {{w, {0.0}}}};
      for (int row = 0; row < rows; ++row) {
        const double x = static_cast<double>(micro.first_sample + row + 1);
        loss.sum += 4 * x * x;
        loss.leaves[0].gradient[0] += -4 * x * x;
      }
      window.backward(tape, loss);
    }
    EXPECT_EQ(window.loss(), 102.0);
    ASSERT_TRUE(optimizer.step(std::move(window).unscale(), 0.02F));
    EXPECT_NEAR(parameters.values(w)[0], 2.04, 1e-7);
  }
}
TEST(Accumulation, OfTenBatchesByFourIsThreeUpdates) {
  Runtime runtime({.threads = 1});
  Parameters<float> parameters(runtime);
  const auto w = parameters.scope().add("w", {1}, Role::weight, {}).id;
  mixed::GradientAccumulator accumulator(parameters);
  optim::Sgd optimizer(parameters);
  GivenTape tape;
  int left = 10;
  std::int64_t iteration = 0;
  while (left > 0) {
    const int now = std::min(left, 4);
    auto window = accumulator.begin(tape, iteration++,
                                    {.micro_batches = now, .rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, Loss{1, 1, {{w, {1}}}});
    }
    ASSERT_TRUE(optimizer.step(std::move(window).unscale(), 1.0F));
    left -= now;
  }
  EXPECT_EQ(optimizer.steps(), 3);
  EXPECT_EQ(parameters.values(w)[0], -3.0F);  // each a mean of ones, the last of two
}

}  // namespace
