// SPDX-License-Identifier: MIT
// Two processes' windows, as threads with a stand-in for what joins them, and two optimizers on one
// scale.
#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenTape;
using Loss = halfstep_tests::GivenLoss<float>;
using mixed::Findings;
using optim::ScaleChange;
using optim::Skip;

constexpr float infinity = std::numeric_limits<float>::infinity();

static_assert(std::is_trivially_copyable_v<Findings>);

/// What two processes send each other, and wait for.
class Between {
 public:
  void decide(std::size_t rank, Findings& findings, std::span<double> blocks) {
    findings_[rank] = findings;
    blocks_[rank].assign(blocks.begin(), blocks.end());
    all_there_.arrive_and_wait();
    findings.bad_values = findings_[0].bad_values + findings_[1].bad_values;
    findings.first_bad = std::min(findings_[0].first_bad, findings_[1].first_bad);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      blocks[i] = blocks_[0][i] + blocks_[1][i];
    all_there_.arrive_and_wait();  // nobody writes the next step's before all have read
    ++calls[rank];
  }
  /// Loss and count of both.
  void gather(std::size_t rank, std::vector<double>& losses, std::vector<double>& counts) {
    totals_[rank] = {losses.front(), counts.front()};
    all_there_.arrive_and_wait();
    losses = {totals_[0].first, totals_[1].first};
    counts = {totals_[0].second, totals_[1].second};
    all_there_.arrive_and_wait();
  }
  std::array<int, 2> calls{};

 private:
  std::array<Findings, 2> findings_;
  std::array<std::vector<double>, 2> blocks_;
  std::array<std::pair<double, double>, 2> totals_;
  std::barrier<> all_there_{2};
};

/// Processes in the eyes of one of them. Each sums a parameter of its own, and zeros of the
/// other's.
struct OneOfTwo : mixed::Processes<float> {
  std::size_t rank = 0;
  Between* between = nullptr;  // null: this one has nobody to talk to
  mixed::MicroBatchRange share(const mixed::StepShape& /*shape*/) const override {
    return {static_cast<std::int64_t>(rank), 1, 1};
  }
  core::Range held() const override { return {0, 2003}; }
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    if (between != nullptr) between->gather(rank, losses, counts);
  }
  void decide(Findings& findings, std::span<double> blocks) override {
    if (between != nullptr) between->decide(rank, findings, blocks);
  }
};

/// One process: its own store, scaler and optimizer.
struct Rank {
  Runtime runtime{{.threads = 1}};
  Parameters<float> parameters{runtime};
  ParameterId a = parameters.scope().add("a", {2000}, Role::weight, Init::constant(1.0F)).id;
  ParameterId b = parameters.scope().add("b", {3}, Role::weight, Init::constant(1.0F)).id;
  mixed::LossScaler scaler{{.interval = 2}};
  OneOfTwo processes;
  mixed::GradientAccumulator<float> accumulator{parameters, &scaler, processes};
  optim::Sgd<float> optimizer{parameters};
  GivenTape tape;

  mixed::Window<float> swept(std::int64_t iteration, const Loss& loss) {
    auto window =
        accumulator.begin(tape, iteration, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, loss);
    }
    return window;
  }
};
std::vector<float> gradient_of_a(float at_the_end) {
  std::vector<float> g(2000, 0.01F);
  g.back() = at_the_end;
  return g;
}

TEST(Decision, IsTheSameInBothProcessesWhicheverOverflowed) {
  Rank ranks[2];
  Between between;
  ranks[1].processes.rank = 1;
  for (Rank& rank : ranks)
    rank.processes.between = &between;
  // Rank 0 holds the gradient of a, rank 1 that of b, as shards do. Step by step: all is well; an
  // infinity at one of them; at the other; at both; well again.
  const struct {
    float a, b;
    bool applied;
    const char* first_bad;
    std::int64_t bad_values;
  } steps[] = {{2, 3, true, "", 0},
               {infinity, 3, false, "a", 1},
               {2, -infinity, false, "b", 1},
               {infinity, infinity, false, "a", 2},
               {2, 3, true, "", 0}};
  std::vector<optim::StepResult> results[2];
  std::vector<double> losses[2];
  const auto run = [&](std::size_t rank) {
    Rank& self = ranks[rank];
    std::int64_t iteration = 0;
    for (const auto& step : steps) {
      const Loss loss = rank == 0 ? Loss{6, 3, {{self.a, gradient_of_a(step.a)}}}
                                  : Loss{2, 1, {{self.b, {1, step.b, 1}}}};
      auto gradients = self.swept(iteration++, loss).unscale();
      losses[rank].push_back(gradients.loss());
      results[rank].push_back(self.optimizer.step(std::move(gradients).clip_norm(0.5F), 0.5F));
    }
  };
  {
    std::thread other(run, 1);
    run(0);
    other.join();
  }
  EXPECT_EQ(between.calls, (std::array<int, 2>{5, 5}));

  // One process that holds all of it.
  Rank whole;
  mixed::GradientAccumulator<float> alone(whole.parameters, whole.scaler);
  std::vector<optim::StepResult> wanted;
  std::int64_t iteration = 0;
  for (const auto& step : steps) {
    auto window =
        alone.begin(whole.tape, iteration++, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
    auto micro = window.begin();
    whole.tape.begin(*micro);
    window.backward(whole.tape, Loss{6, 3, {{whole.a, gradient_of_a(step.a)}}});
    whole.tape.begin(*++micro);
    window.backward(whole.tape, Loss{2, 1, {{whole.b, {1, step.b, 1}}}});
    EXPECT_EQ(window.loss(), 2.0);
    wanted.push_back(whole.optimizer.step(std::move(window).unscale().clip_norm(0.5F), 0.5F));
  }
  for (std::size_t i = 0; i < std::size(steps); ++i) {
    for (const auto& of : results) {
      EXPECT_EQ(of[i].applied, steps[i].applied) << i;
      EXPECT_EQ(of[i].first_bad, steps[i].first_bad) << i;
      EXPECT_EQ(of[i].bad_values, steps[i].bad_values) << i;
      EXPECT_EQ(of[i].scale, wanted[i].scale) << i;
      EXPECT_EQ(of[i].scale_change, wanted[i].scale_change) << i;
      EXPECT_EQ(of[i].clipped_by, wanted[i].clipped_by) << i;
      if (steps[i].applied) {
        EXPECT_EQ(of[i].norm, wanted[i].norm) << i;
        EXPECT_LT(of[i].clipped_by, 1.0F);
      }
    }
    EXPECT_EQ(losses[0][i], 2.0);  // of all four targets, not of this rank's
    EXPECT_EQ(losses[1][i], 2.0);
  }
  EXPECT_EQ(ranks[0].scaler.scale(), 8192.0F);
  EXPECT_EQ(ranks[1].scaler.scale(), 8192.0F);
  // Each has updated its own part, as the one process did.
  const auto last = whole.parameters.values(whole.a);
  EXPECT_EQ(ranks[0].parameters.values(ranks[0].a)[1999], last[1999]);
  EXPECT_NE(last[1999], 1.0F);
  EXPECT_EQ(ranks[1].parameters.values(ranks[1].b)[1], whole.parameters.values(whole.b)[1]);
}
// Without the decision of both rank 0 would step where rank 1 skips.
TEST(Decision, OfOneProcessAloneWouldDiffer) {
  Rank ranks[2];
  ranks[1].processes.rank = 1;
  auto fine = ranks[0].swept(0, Loss{1, 1, {{ranks[0].a, gradient_of_a(1)}}});
  auto bad = ranks[1].swept(0, Loss{1, 1, {{ranks[1].b, {1, infinity, 1}}}});
  EXPECT_TRUE(ranks[0].optimizer.step(std::move(fine).unscale(), 0.5F));
  EXPECT_FALSE(ranks[1].optimizer.step(std::move(bad).unscale(), 0.5F));
  EXPECT_NE(ranks[0].scaler.scale(), ranks[1].scaler.scale());
}
/// The other process had four targets, and a gradient.
struct TheOtherHadTargets : OneOfTwo {
  void gather(std::vector<double>& losses, std::vector<double>& counts) override {
    losses.push_back(8.0);
    counts.push_back(4.0);
  }
  void decide(Findings& /*findings*/, std::span<double> blocks) override { blocks[0] = 4; }
};
TEST(Decision, CountsTheTargetsOfAllProcessesBeforeItSaysThatThereAreNone) {
  Rank rank;
  TheOtherHadTargets processes;
  mixed::GradientAccumulator<float> accumulator(rank.parameters, &rank.scaler, processes);
  auto window =
      accumulator.begin(rank.tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
  rank.tape.begin(*window.begin());
  window.backward(rank.tape, Loss{0, 0, {}});
  auto gradients = std::move(window).unscale();
  EXPECT_EQ(gradients.loss(), 2.0);
  const auto result = rank.optimizer.step(std::move(gradients), 0.5F);
  EXPECT_TRUE(result);
  EXPECT_EQ(result.why, Skip::no);
  EXPECT_GT(result.norm, 0.0F);
}
struct OneIsGone : OneOfTwo {
  void decide(Findings& /*findings*/, std::span<double> /*blocks*/) override {
    throw std::runtime_error("a process is gone");
  }
};
TEST(Decision, ThatFailsIsAsIfTheWindowHadNotBeen) {
  Rank rank;
  OneIsGone processes;
  mixed::GradientAccumulator<float> accumulator(rank.parameters, &rank.scaler, processes);
  const float scale = rank.scaler.scale();
  {
    auto window =
        accumulator.begin(rank.tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 1});
    rank.tape.begin(*window.begin());
    window.backward(rank.tape, Loss{1, 1, {{rank.a, gradient_of_a(infinity)}}});
    EXPECT_THROW(static_cast<void>(std::move(window).unscale()), std::runtime_error);
  }
  EXPECT_FALSE(accumulator.window_open());
  EXPECT_EQ(rank.scaler.scale(), scale);
  EXPECT_NO_THROW(rank.scaler.update(false));  // no window holds it
}

/// Two models on one scale, as a generator and its critic are: two losses, two optimizers.
struct Shared : testing::Test {
  Runtime runtime{{.threads = 1}};
  Parameters<float> first{runtime}, second{runtime};
  ParameterId x = first.scope().add("x", {1}, Role::weight, Init::constant(1.0F)).id;
  ParameterId y = second.scope().add("y", {1}, Role::weight, Init::constant(1.0F)).id;
  mixed::LossScaler scaler{{.interval = 1}};
  mixed::GradientAccumulator<float> first_sums{first, scaler}, second_sums{second, scaler};
  optim::AdamW<float> first_steps{first}, second_steps{second};
  GivenTape first_tape, second_tape;

  /// Both windows open before either steps.
  std::pair<optim::StepResult, optim::StepResult> step(float gx, float gy) {
    const mixed::StepShape shape{.micro_batches = 1, .rows = 1, .targets_per_row = 1};
    auto one = first_sums.begin(first_tape, iteration, shape);
    auto two = second_sums.begin(second_tape, iteration++, shape);
    first_tape.begin(*one.begin());
    one.backward(first_tape, Loss{1, 1, {{x, {gx}}}});
    second_tape.begin(*two.begin());
    two.backward(second_tape, Loss{1, 1, {{y, {gy}}}});
    auto a = first_steps.step(std::move(one).unscale(), 0.1F);
    auto b = second_steps.step(std::move(two).unscale(), 0.1F);
    return {a, b};
  }
  std::int64_t iteration = 0;
};

TEST_F(Shared, ScaleIsUpdatedOnceWhereBothAreGood) {
  const auto [a, b] = step(1, 1);
  EXPECT_TRUE(a.applied && b.applied);
  EXPECT_EQ(a.scale, 65536.0F);  // another window is open still
  EXPECT_EQ(a.scale_change, ScaleChange::none);
  EXPECT_EQ(b.scale, 131072.0F);
  EXPECT_EQ(b.scale_change, ScaleChange::grown);
  EXPECT_EQ(scaler.scale(), 131072.0F);
}
TEST_F(Shared, ScaleFallsOnceAndOnlyTheOneThatOverflowedIsSkipped) {
  auto [a, b] = step(infinity, 1);
  EXPECT_FALSE(a.applied);
  EXPECT_EQ(a.first_bad, "x");
  EXPECT_TRUE(b.applied);
  EXPECT_EQ(b.scale_change, ScaleChange::cut);
  EXPECT_EQ(scaler.scale(), 32768.0F);
  EXPECT_EQ(first_steps.steps(), 0);
  EXPECT_EQ(second_steps.steps(), 1);
  std::tie(a, b) = step(1, infinity);
  EXPECT_TRUE(a.applied);
  EXPECT_FALSE(b.applied);
  EXPECT_EQ(scaler.scale(), 16384.0F);
  std::tie(a, b) = step(infinity, infinity);
  EXPECT_EQ(scaler.scale(), 8192.0F);
  EXPECT_EQ(first_steps.steps(), 1);
  EXPECT_EQ(second_steps.steps(), 1);
}

}  // namespace
