// SPDX-License-Identifier: MIT
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/chain_plans.hpp>
#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/keep.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/run_chain.hpp>
#include <halfstep/autograd/schedule.hpp>

#include "all_schedules.hpp"

namespace hs = halfstep;
using hs::autograd::Part;
using hs::autograd::Schedule;

namespace {

constexpr std::int64_t width = 16;
constexpr std::int64_t rows = 12;
const std::vector<float> data = [] {
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(i % 13) / 6.0F - 1.0F;
  return out;
}();

// Five ops: linear, gelu, linear, dropout, add. A second run that ends with a layer computes one of
// them: nothing reads the values of the second product, nor of what follows it, and the GELU is
// made from its input when it is read.
constexpr std::int64_t ops = 5, ops_of_the_last = 1;

template <class T>
struct Layer {
  using layer_tag = void;
  hs::Parameter<T> up, down;
  std::uint64_t stream;
  int* calls = nullptr;
  Layer(hs::Scope<T> s, std::int64_t hidden)
      : up(s.add("up", {hidden, width}, hs::Role::weight, hs::Init::normal(0.2F))),
        down(s.add("down", {width, hidden}, hs::Role::weight, hs::Init::normal(0.2F))),
        stream(hs::core::stream(s.name(), "dropout")) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const {
    if (calls != nullptr) ++*calls;
    return x + dropout(linear(gelu(linear(x, up)), down), 0.1F, stream);
  }
};

struct Outcome {
  std::vector<float> gradients;
  std::vector<int> calls;
  double loss = 0.0;
  std::int64_t replayed = 0, peak = 0;
};

template <class T>
Outcome run(const Schedule& schedule, int threads = 1, std::uint64_t seed = 9,
            hs::Tape::Mode mode = hs::Tape::Mode::real) {
  hs::Runtime runtime({.threads = threads, .seed = seed});
  hs::Parameters<T> parameters(runtime);
  std::vector<Layer<T>> layers;
  Outcome result;
  result.calls.resize(static_cast<std::size_t>(schedule.steps));
  for (int i = 0; i < schedule.steps; ++i) {
    layers.emplace_back(parameters.scope() / "layers" / i, width * (1 + i % 3));
    layers.back().calls = &result.calls[static_cast<std::size_t>(i)];
  }
  hs::Tape tape(runtime, mode);
  hs::Gradients<T> gradients(parameters, tape);
  if (mode == hs::Tape::Mode::dry) tape.detach(parameters, gradients);
  tape.set_seed(0x1p-8);  // keeps the gradients of fp16 within its range
  const auto live = tape.ledger().live();
  tape.ledger().restart_peaks();
  tape.begin({0, 0, 0, 4});
  const auto x = hs::run_chain(std::span<const Layer<T>>(layers), schedule,
                               hs::constant<T>(tape, {rows, width}, data));
  const auto loss = squared_error(x, data);
  tape.backward(loss);
  result.loss = loss.sum;
  result.replayed = tape.replayed_ops();
  result.peak = tape.ledger().peak() - live;
  EXPECT_EQ(tape.ledger().live(), live);
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    const auto g = gradients[hs::ParameterId{p}];
    result.gradients.insert(result.gradients.end(), g.begin(), g.end());
  }
  return result;
}

std::int64_t planned_ops(const Schedule& schedule) {
  std::int64_t segments = 0;
  for (const Part& part : schedule.parts)
    segments += part.inside > 0 ? 1 : 0;
  return ops * (schedule.forwards() - schedule.steps) - (ops - ops_of_the_last) * segments;
}

template <class T>
void expect_as_planned(const Schedule& schedule, const Outcome& none, int threads,
                       const std::string& name) {
  const Outcome outcome = run<T>(schedule, threads);
  EXPECT_EQ(outcome.gradients, none.gradients) << name << ", " << threads << " threads";
  EXPECT_EQ(outcome.loss, none.loss) << name;
  EXPECT_EQ(outcome.replayed, planned_ops(schedule)) << name;
  const auto calls = schedule.forwards_by_step();
  EXPECT_TRUE(std::equal(calls.begin(), calls.end(), outcome.calls.begin())) << name;
}

}  // namespace

template <class T>
class RunChainIn : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(RunChainIn, Formats);

TYPED_TEST(RunChainIn, EverySchemeGivesTheGradientsOfNoneWithTheReplaysItPlans) {
  using T = TypeParam;
  const Outcome none = run<T>(hs::autograd::keep_all(9));
  EXPECT_EQ(none.replayed, 0);
  EXPECT_NE((run<T>(hs::autograd::keep_all(9), 1, 10).gradients), none.gradients)
      << "another seed draws other masks";
  // Sizes of the layers in their hidden widths, for a plan within a budget.
  hs::autograd::Chain chain;
  for (int i = 0; i < 9; ++i) {
    chain.steps.push_back({.cost = 5,
                           .tail = 3,
                           .output = 1,
                           .gradient = 1,
                           .tape = 5 + 2 * (i % 3),
                           .forward = 5,
                           .advance = 5,
                           .backward = 9,
                           .again = 9});
  }
  const hs::autograd::ChainPlans plans(chain);
  for (const int threads : {1, 2}) {
    expect_as_planned<T>(hs::autograd::keep_all(9), none, threads, "none");
    expect_as_planned<T>(hs::autograd::uniform(9, 4), none, threads, "uniform");
    expect_as_planned<T>(hs::autograd::square_root(9), none, threads, "square root");
    expect_as_planned<T>(hs::autograd::revolve(9, 2), none, threads, "revolve");
    expect_as_planned<T>(hs::autograd::mixed(9, 3), none, threads, "mixed");
    expect_as_planned<T>(plans.schedule(plans.smallest()), none, threads, "smallest budget");
    expect_as_planned<T>(plans.schedule(2 * plans.smallest()), none, threads, "twice that");
  }
}

TEST(RunChain, EveryScheduleOfFiveLayersGivesTheSameGradients) {
  const Outcome none = run<float>(hs::autograd::keep_all(5));
  int schedules = 0;
  for (const auto& parts : all_schedules(0, 5)) {
    expect_as_planned<float>({5, parts}, none, 1, std::to_string(schedules));
    ++schedules;
  }
  EXPECT_EQ(schedules, 90);
}

TEST(RunChain, AllOfItMayBeSegments) {
  // As where a head follows: the last layer is forgotten too.
  const Schedule schedule{2, {{0, 1, 1}, {0, 1, 0}, {1, 2, 1}, {1, 2, 0}}};
  expect_as_planned<float>(schedule, run<float>(hs::autograd::keep_all(2)), 1, "all");
}

TEST(RunChain, ADryRunPredictsThePeakOfEverySchedule) {
  for (const auto& parts : all_schedules(0, 4)) {
    const Schedule schedule{4, parts};
    const Outcome real = run<float>(schedule),
                  dry = run<float>(schedule, 1, 9, hs::Tape::Mode::dry);
    ASSERT_EQ(real.peak, dry.peak);
    ASSERT_EQ(real.replayed, dry.replayed);
  }
}

TEST(RunChain, AForgottenLayerTakesNoMoreThanItselfBesideItsInput) {
  // 20 layers in one segment that is forgotten: the forward pass holds one of them at a time.
  const auto peak = [](int layers) {
    hs::Runtime runtime({.threads = 1});
    hs::Parameters<float> parameters(runtime);
    std::vector<Layer<float>> all;
    for (int i = 0; i < layers; ++i)
      all.emplace_back(parameters.scope() / i, width);
    hs::Tape tape(runtime);
    hs::Gradients<float> gradients(parameters, tape);
    tape.begin();
    const auto x = hs::constant<float>(tape, {rows, width}, data);
    tape.ledger().restart_peaks();
    const auto before = tape.ledger().live();
    Schedule schedule{layers, {{0, layers, layers}}};
    for (int i = 0; i < layers; ++i)
      schedule.parts.push_back({i, i + 1, 0});
    (void)hs::run_chain(std::span<const Layer<float>>(all), schedule, x);
    return tape.ledger().peak() - before;
  };
  EXPECT_EQ(peak(20), peak(2));
}

TEST(RunChain, ARunWithinASegmentIsAPartOfIt) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  std::vector<Layer<float>> layers;
  for (int i = 0; i < 4; ++i)
    layers.emplace_back(parameters.scope() / i, width);
  const Schedule schedule = hs::autograd::uniform(4, 2);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  const auto all = [&](bool outer) {
    const auto chain = hs::owns_its_captures([&](hs::Variable<float> x) {
      return hs::run_chain(std::span<const Layer<float>>(layers), schedule, x);
    });
    tape.begin({0, 0, 0, 4});
    const auto x = hs::constant<float>(tape, {rows, width}, data);
    tape.backward(squared_error(outer ? hs::checkpoint(chain, x) : chain(x), data));
    return std::vector<float>(gradients[layers[0].up].begin(), gradients[layers[0].up].end());
  };
  const auto plain = all(false);
  EXPECT_EQ(tape.replayed_ops(), 6);  // the first two layers, to the second one's first product
  EXPECT_EQ(all(true), plain);
  EXPECT_EQ(tape.replayed_ops(), 6 + (2 * 5 + 6) + 6)
      << "all four layers, then the first two once more";
}

TEST(RunChain, RecomputesNothingWhereNothingIsRecorded) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  std::vector<Layer<float>> layers;
  int calls = 0;
  for (int i = 0; i < 3; ++i)
    layers.emplace_back(parameters.scope() / i, width).calls = &calls;
  hs::Tape tape(runtime);
  tape.begin({}, hs::Record::nothing);
  const auto x = hs::constant<float>(tape, {rows, width}, data);
  const auto y =
      hs::run_chain(std::span<const Layer<float>>(layers), hs::autograd::uniform(3, 3), x);
  EXPECT_EQ(y.value().size(), data.size());
  EXPECT_EQ(calls, 3);
  // x, the result, and the largest of the layers while it runs: five outputs, two of them wide.
  const std::int64_t unit = rows * width * 4;
  EXPECT_EQ(tape.ledger().live() - parameters.count() * 4, 2 * unit);
  EXPECT_LE(tape.ledger().peak() - parameters.count() * 4, (1 + 1 + 3 + 2) * unit + 4096);
}

namespace {

// Reads its own norm, then runs another op, by which time the tape has let go of the norm.
struct NormThatIsReadFirst {
  using layer_tag = void;
  hs::Parameter<float> gain, weight;
  explicit NormThatIsReadFirst(hs::Scope<float> s)
      : gain(s.add("gain", {width}, hs::Role::gain, hs::Init::constant(1.5F))),
        weight(s.add("weight", {width, width}, hs::Role::weight, hs::Init::normal(0.2F))) {}
  hs::Variable<float> operator()(hs::Variable<float> x) const {
    const auto n = layer_norm(linear(x, weight), gain);
    const auto h = linear(n, weight);
    (void)(h + h);
    return n;
  }
};

hs::Keep all_again(std::string_view /*op*/) { return hs::Keep::recompute; }
hs::Keep norms_in_bf16(std::string_view op) { return op == "layer_norm" ? hs::Keep::as_bf16 : hs::Keep::save; }

}  // namespace

TEST(RunChain, ALayerMayReturnWhatTheTapeHasForgottenInIt) {
  hs::Runtime runtime({.threads = 1, .seed = 4});
  hs::Parameters<float> parameters(runtime);
  std::vector<NormThatIsReadFirst> layers;
  for (int i = 0; i < 4; ++i) layers.emplace_back(parameters.scope() / i);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  const auto pass = [&](const Schedule& schedule, hs::KeepPolicy policy) {
    tape.keep(policy);
    tape.begin({0, 0, 0, 4});
    const auto live = runtime.ledger().live();
    tape.backward(squared_error(
        hs::run_chain(std::span<const NormThatIsReadFirst>(layers), schedule, hs::constant<float>(tape, {rows, width}, data)), data));
    EXPECT_EQ(runtime.ledger().live(), live);
    std::vector<float> all;
    for (std::uint32_t p = 0; p < parameters.size(); ++p) {
      all.insert(all.end(), gradients[hs::ParameterId{p}].begin(), gradients[hs::ParameterId{p}].end());
    }
    return all;
  };
  const auto plain = pass(hs::autograd::keep_all(4), hs::keep_values);
  for (const Schedule& schedule : {Schedule{4, {{0, 4, 4}, {0, 1, 0}, {1, 2, 0}, {2, 3, 0}, {3, 4, 0}}}, hs::autograd::uniform(4, 2)}) {
    for (const auto policy : {hs::keep_values, hs::keep_default, all_again}) EXPECT_EQ(pass(schedule, policy), plain);
    EXPECT_EQ(pass(schedule, norms_in_bf16).size(), plain.size());
  }
}

TEST(RunChain, RefusesAScheduleOfAnotherLength) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const std::vector<Layer<float>> layers{{parameters.scope(), width}};
  hs::Tape tape(runtime);
  tape.begin();
  const auto x = hs::constant<float>(tape, {rows, width}, data);
  try {
    (void)hs::run_chain(std::span<const Layer<float>>(layers), hs::autograd::uniform(3, 3), x);
    FAIL();
  } catch (const hs::OptionError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the schedule is for 3 layers, but there are 1"));
  }
}
