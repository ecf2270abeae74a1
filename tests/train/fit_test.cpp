// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/data/text.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/fit.hpp>

namespace hs = halfstep;
using hs::train::EvaluationInfo;
using hs::train::FitOptions;
using hs::train::StepInfo;
using testing::HasSubstr;

namespace {

hs::data::Text some_text() {
  std::string text;
  const char* words[] = {"cat ", "dog ", "sat ", "on ", "the ", "mat.\n"};
  for (std::uint64_t i = 0; text.size() < 4000; ++i) text += words[hs::core::uniform_below(1, 2, i, 6)];
  return hs::data::Text::from_string(text);
}

template <class T>
struct Setting {
  hs::Runtime runtime{{.threads = 1, .seed = 1, .isa = {}}};
  hs::data::Text text = some_text();
  hs::Parameters<T> parameters{runtime};
  hs::nn::Gpt<T> gpt{parameters, {.vocabulary = text.vocabulary(), .context = 16, .layers = 1, .heads = 2, .width = 16}};
};

const FitOptions few{.steps = 12, .lr = 1e-2F, .min_lr = 1e-3F, .warmup = 3, .rows = 4, .accumulate = 2};

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Fit, LearnsATextInEachFormat) {
  const auto learns = []<class T>(T) {
    Setting<T> s;
    FitOptions options = few;
    options.steps = 150;
    const auto result = hs::train::fit(s.gpt, s.parameters, s.text, options);
    EXPECT_EQ(result.iterations, 150);
    EXPECT_EQ(result.steps + result.skipped, 150);
    EXPECT_EQ(result.micro_batches, 300);
    EXPECT_EQ(result.tokens, 150 * 2 * 4 * 16);
    EXPECT_LT(result.held_out, 1.6) << "ln V is " << std::log(s.text.vocabulary());
    EXPECT_EQ(result.held_out, result.evaluation.nats_per_token());
    EXPECT_GT(result.flops, 0U);
    return result.weights_hash;
  };
  const auto a = learns(float{}), b = learns(hs::bf16{}), c = learns(hs::fp16{});
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
}

// The loop of README, written out, gives the bits that fit gives: fit does nothing else.
TEST(Fit, IsTheLoopThatAUserCanWrite) {
  Setting<float> s;
  std::vector<double> losses;
  const auto result = hs::train::fit(s.gpt, s.parameters, s.text, few, {.on_step = [&](const StepInfo& info) {
                                       losses.push_back(info.loss);
                                     }});
  Setting<float> own;
  hs::mixed::MasterWeights optimizer(own.parameters, hs::optim::AdamWOptions{.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(own.parameters);
  const hs::optim::WarmupCosine lr{.peak = 1e-2F, .floor = 1e-3F, .warmup = 3, .steps = 12};
  hs::Tape tape(own.runtime);
  for (std::int64_t iteration = 0; iteration < 12; ++iteration) {
    auto window = accumulator.begin(tape, iteration, {.micro_batches = 2, .rows = 4, .targets_per_row = 16});
    for (const auto micro : window) {
      const auto batch = own.text.batch(micro, 16);
      tape.begin(micro);
      window.backward(tape, hs::cross_entropy(own.gpt(tape, batch.inputs), batch.targets));
    }
    EXPECT_EQ(window.loss(), losses[static_cast<std::size_t>(iteration)]);
    static_cast<void>(optimizer.step(std::move(window).unscale().clip_norm(1.0F), lr(optimizer.steps())));
  }
  EXPECT_EQ(optimizer.weights_hash(), result.weights_hash);
}

TEST(Fit, CallsItsHooksAndStopsWhenAsked) {
  Setting<float> s;
  std::vector<std::int64_t> steps, evaluations;
  FitOptions options = few;
  options.evaluate_every = 3;
  const auto result = hs::train::fit(
      s.gpt, s.parameters, s.text, options,
      {.on_step = [&](const StepInfo& info) {
         steps.push_back(info.iteration);
         EXPECT_EQ(info.step, info.iteration + 1);
         EXPECT_EQ(info.iterations, 12);
         EXPECT_EQ(info.tokens, 2 * 4 * 16);
         EXPECT_TRUE(info.applied);
         EXPECT_GT(info.norm, 0.0F);
       },
       .on_evaluate = [&](const EvaluationInfo& info) { evaluations.push_back(info.iteration); },
       .should_stop = [&] { return steps.size() == 7; }});
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(evaluations, (std::vector<std::int64_t>{3, 6}));
  EXPECT_EQ(result.iterations, 7);
  EXPECT_TRUE(result.stopped);
}

// Whatever is asked the n-th time whether to stop: what it had begun is dropped, and done by the rest.
TEST(Fit, StopsWithinAWindowAndAnEvaluationAndGoesOn) {
  FitOptions options = few;
  options.evaluate_every = 4;
  struct Log {
    std::vector<double> losses;
    std::vector<std::int64_t> evaluations, saves;
    std::uint64_t hash = 0;
    bool stopped = false;
    double train_loss = 0.0;
  };
  const auto run = [&](int stop_at) {
    Setting<hs::fp16> s;
    hs::mixed::LossScaler scaler({.initial = 0x1p20F, .interval = 3});
    hs::mixed::GradientAccumulator<hs::fp16> accumulator(s.parameters, scaler);
    hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16> optimizer(s.parameters, {});
    hs::Tape tape(s.runtime);
    hs::train::FitState state{.plateau = hs::optim::Plateau({.factor = 0.5, .patience = 0})};
    Log log;
    int asked = 0;
    const hs::train::Hooks hooks{.on_step = [&](const StepInfo& info) { log.losses.push_back(info.loss); },
                                 .on_evaluate = [&](const EvaluationInfo& info) {
                                   log.losses.push_back(info.evaluation.nats);
                                   log.evaluations.push_back(info.iteration);
                                 },
                                 .on_save_point = [&](const hs::train::SavePoint& at) {
                                   log.saves.push_back(at.iteration);
                                 },
                                 .should_stop = [&] { return ++asked == stop_at; }};
    for (int part = 0; part < 2; ++part) {
      const auto result =
          hs::train::fit(s.gpt, tape, optimizer, accumulator, scaler, s.text, options, hooks, state);
      log.hash = result.weights_hash;
      log.train_loss = result.train_loss;
      EXPECT_EQ(result.micro_batches, 2 * result.iterations);
      if (!result.stopped) break;
      log.stopped = true;
      EXPECT_EQ(log.saves.back(), state.iteration) << "there is a save point where it stopped";
      EXPECT_FALSE(accumulator.window_open());
    }
    EXPECT_EQ(state.iteration, 12);
    return log;
  };
  const Log whole = run(-1);
  EXPECT_FALSE(whole.stopped);
  EXPECT_EQ(whole.evaluations, (std::vector<std::int64_t>{4, 8, 12}));
  int stops = 0;
  for (int stop_at = 1; stop_at < 1000; stop_at += 7, ++stops) {
    const Log log = run(stop_at);
    if (!log.stopped) break;
    EXPECT_EQ(log.losses, whole.losses) << stop_at;
    EXPECT_EQ(log.hash, whole.hash) << stop_at;
    EXPECT_EQ(log.train_loss, whole.train_loss);
    EXPECT_EQ(log.evaluations, whole.evaluations);
  }
  EXPECT_GT(stops, 5);
}

TEST(Fit, EvaluatesOnceAtTheEndAndDoesNotChangeTheRunByIt) {
  Setting<float> plain, often;
  int evaluations = 0;
  const auto count = [&](const EvaluationInfo&) { ++evaluations; };
  const auto a = hs::train::fit(plain.gpt, plain.parameters, plain.text, few, {.on_evaluate = count});
  EXPECT_EQ(evaluations, 1);
  FitOptions options = few;
  options.evaluate_every = 1;
  const auto b = hs::train::fit(often.gpt, often.parameters, often.text, options, {.on_evaluate = count});
  EXPECT_EQ(evaluations, 13);
  EXPECT_EQ(a.weights_hash, b.weights_hash);
  EXPECT_EQ(a.held_out, b.held_out);
}

TEST(Fit, NamesTheIterationOfANonFiniteLoss) {
  Setting<float> s;
  FitOptions options = few;
  options.lr = 1e30F;
  options.clip = 0.0F;
  const std::string message =
      message_of([&] { static_cast<void>(hs::train::fit(s.gpt, s.parameters, s.text, options)); });
  EXPECT_THAT(message, HasSubstr("of iteration "));
  EXPECT_THAT(message, HasSubstr("Lower lr"));
  EXPECT_THROW(static_cast<void>(hs::train::fit(s.gpt, s.parameters, s.text, options)), hs::NumericError);
}

TEST(Fit, SkipsWhereTheScaleIsDynamicUntilItHelpsNoMore) {
  Setting<hs::fp16> s;
  hs::mixed::LossScaler scaler({.initial = 0x1p30F});
  hs::mixed::GradientAccumulator<hs::fp16> accumulator(s.parameters, scaler);
  hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16> optimizer(s.parameters, {});
  hs::Tape tape(s.runtime);
  std::vector<std::string> bad;
  FitOptions options = few;
  options.steps = 40;
  const auto result = hs::train::fit(s.gpt, tape, optimizer, accumulator, scaler, s.text, options,
                                     {.on_step = [&](const StepInfo& info) {
                                       if (!info.applied) bad.push_back(info.first_bad);
                                     }});
  EXPECT_GT(result.skipped, 0);
  EXPECT_LT(result.skipped, 30);
  EXPECT_EQ(result.steps, 40 - result.skipped);
  ASSERT_EQ(static_cast<std::int64_t>(bad.size()), result.skipped);
  for (const auto& name : bad) EXPECT_FALSE(name.empty());

  Setting<hs::fp16> lost;
  options.most_skips = 3;
  hs::mixed::LossScaler high({.initial = 0x1p100F});
  hs::mixed::GradientAccumulator<hs::fp16> second(lost.parameters, high);
  hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16> other(lost.parameters, {});
  hs::Tape tape2(lost.runtime);
  EXPECT_THAT(message_of([&] {
                static_cast<void>(hs::train::fit(lost.gpt, tape2, other, second, high, lost.text, options));
              }),
              HasSubstr("skipped 3 times in a row"));
}

// A scale that never fits: by the scaler's policy the run goes on to its limit of skips, ends, or fails.
TEST(Fit, EndsWhereTheScalerSaysThatItsFloorIsReached) {
  const auto run = [](hs::mixed::AtFloor policy, std::string& message) {
    Setting<hs::fp16> s;
    hs::mixed::LossScaler scaler({.initial = 0x1p62F, .minimum = 0x1p60F, .at_floor = policy});
    hs::mixed::GradientAccumulator<hs::fp16> accumulator(s.parameters, scaler);
    hs::mixed::MasterWeights<hs::optim::AdamW, hs::fp16> optimizer(s.parameters, {});
    hs::Tape tape(s.runtime);
    FitOptions options = few;
    options.steps = 40;
    options.most_skips = 10;
    hs::train::FitResult result;
    message = message_of(
        [&] { result = hs::train::fit(s.gpt, tape, optimizer, accumulator, scaler, s.text, options); });
    return result;
  };
  std::string message;
  const auto stopped = run(hs::mixed::AtFloor::stop, message);
  EXPECT_EQ(message, "nothing was thrown");
  EXPECT_EQ(stopped.iterations, 3);  // 2^62, 2^61, and at 2^60 it ends
  EXPECT_EQ(stopped.skipped, 3);
  EXPECT_EQ(stopped.steps, 0);
  EXPECT_THAT(stopped.ended_by_scaler, testing::StartsWith("iteration 2: in '"));
  EXPECT_THAT(stopped.ended_by_scaler, HasSubstr("the gradient overflows with the loss scale at its minimum, 1.15292"));
  EXPECT_TRUE(std::isfinite(stopped.held_out));  // the weights are as good as they were
  static_cast<void>(run(hs::mixed::AtFloor::stay, message));
  EXPECT_THAT(message, HasSubstr("skipped 10 times in a row"));
  static_cast<void>(run(hs::mixed::AtFloor::error, message));
  EXPECT_THAT(message, testing::StartsWith("LossScaler: the gradient overflows"));
}

TEST(Fit, MeasuresOnlyWhereSomebodyListensAndChangesNothingByIt) {
  const auto run = [](std::vector<hs::train::TelemetryInfo>* seen) {
    Setting<hs::bf16> s;
    FitOptions options = few;
    options.evaluate_every = 5;
    hs::train::Hooks hooks;
    if (seen != nullptr) {
      hooks.on_telemetry = [seen](const hs::train::TelemetryInfo& info) { seen->push_back(info); };
    }
    return hs::train::fit(s.gpt, s.parameters, s.text, options, hooks);
  };
  std::vector<hs::train::TelemetryInfo> seen;
  const auto plain = run(nullptr), watched = run(&seen);
  EXPECT_EQ(watched.weights_hash, plain.weights_hash);
  ASSERT_EQ(seen.size(), 3U);  // before the evaluations after 5, 10 and 12 iterations
  EXPECT_EQ(seen[0].iteration, 5);
  EXPECT_EQ(seen[2].iteration, 12);
  EXPECT_EQ(seen[2].step, 12);
  const auto all = hs::mixed::total(seen[2].gradients);
  EXPECT_EQ(all.nonzero(), watched.underflow.nonzero);
  EXPECT_EQ(all.lost<hs::fp16>(), watched.underflow.fp16);
  EXPECT_GT(all.largest, 0.0);
  const auto updates = hs::mixed::total(seen[2].updates);
  EXPECT_EQ(updates.weights, all.elements);
  EXPECT_GT(updates.below_half, 0);
  EXPECT_LT(updates.below_half, updates.updated);
  EXPECT_THAT(to_string(seen[2]), HasSubstr("gradients of iteration 12, by magnitude\n"));
  EXPECT_THAT(to_string(seen[2]), HasSubstr("updates below half an ulp of their weight: "));
}

TEST(Fit, SaysWhatIsWrongWithItsOptions) {
  Setting<float> s;
  const auto with = [&](auto&& change) {
    FitOptions options = few;
    change(options);
    return message_of([&] { static_cast<void>(hs::train::fit(s.gpt, s.parameters, s.text, options)); });
  };
  EXPECT_THAT(with([](FitOptions& o) { o.steps = 0; }), HasSubstr("fit: steps is 0; wanted at least 1"));
  EXPECT_THAT(with([](FitOptions& o) { o.rows = 0; }), HasSubstr("rows is 0"));
  EXPECT_THAT(with([](FitOptions& o) { o.accumulate = 0; }), HasSubstr("accumulate is 0"));
  EXPECT_THAT(with([](FitOptions& o) { o.clip = -1.0F; }), HasSubstr("clip is -1"));
  EXPECT_THAT(with([](FitOptions& o) { o.length = 4000; }), HasSubstr("a context of 4000 needs at least 4001"));
}

}  // namespace
