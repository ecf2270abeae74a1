// SPDX-License-Identifier: MIT
// A dry run of a whole training step predicts its account: one process predicts and writes a file,
// a second trains and writes one, this one compares.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>

namespace hs = halfstep;

namespace {

constexpr int rows = 4, length = 12, vocabulary = 13;

// An op of the user's: y = 2 x, with a saved buffer and workspace of its own, so that the account
// has something to miss.
template <class T>
struct Twice {
  static void infer(hs::autograd::Infer& c) {
    c.output<T>(c.input_shape(0));
    c.save<float>(c.input_shape(0).rows() + 3);
    c.workspace(1000, 5000);
    c.backward_reads({}, {});
    c.flops(static_cast<double>(c.input_shape(0).elements()),
            static_cast<double>(c.input_shape(0).elements()));
  }
  static void twice(const T* in, T* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      out[i] = static_cast<T>(2.0F * static_cast<float>(in[i]));
  }
  static void forward(hs::autograd::Forward& c) {
    c.saved<float>(0)[0] = 2.0F;
    twice(c.input<T>(0), c.output<T>(), c.output_shape().elements());
  }
  static void backward(hs::autograd::Backward& c) {
    if (T* const dx = c.input_gradient<T>(0))
      twice(c.output_gradient<T>(), dx, c.output_shape().elements());
  }
  static constexpr hs::autograd::Op op{"twice", &infer, &forward, &backward};
};

// Not in nn/: an own op, a branch on a shape, a parameter that is shared and one that is not used.
template <class T>
struct Own {
  static constexpr int width = 24;
  hs::Parameter<T> table, in, out, gain, unused;
  explicit Own(hs::Scope<T> s)
      : table(s.add("table", {vocabulary, width}, hs::Role::embedding, hs::Init::normal(0.1F))),
        in(s.add("in", {40, width}, hs::Role::weight, hs::Init::normal(0.1F))),
        out(s.add("out", {width, 40}, hs::Role::weight, hs::Init::normal(0.1F))),
        gain(s.add("gain", {width}, hs::Role::gain, hs::Init::constant(1.0F))),
        unused(s.add("unused", {7, 9}, hs::Role::weight, hs::Init::normal(0.1F))) {}
  hs::Variable<T> block(hs::Variable<T> x) const {
    const auto y = linear(gelu(linear(layer_norm(x, gain), in)), out);
    const auto z = x.shape().rows() > 10 ? x.tape->template handle<T>(x.tape->record(
                                               Twice<T>::op, {y}, {}, hs::autograd::NoPayload{}))
                                         : y;
    return x + z;
  }
  hs::Loss operator()(hs::Tape& tape, const std::vector<std::int32_t>& tokens,
                      const std::string& plan) const {
    auto x = embedding(tape, table, tokens);
    const auto layer = hs::owns_its_captures([this](hs::Variable<T> v) { return block(v); });
    const auto two = hs::owns_its_captures(
        [layer](hs::Variable<T> v) { return hs::checkpoint(layer, hs::checkpoint(layer, v)); });
    if (plan == "none") x = block(block(x));
    if (plan == "segments") x = hs::checkpoint(layer, hs::checkpoint(layer, x));
    if (plan == "nested") x = hs::checkpoint(two, x);
    return hs::cross_entropy(hs::logits(block(x), table), tokens);
  }
};

template <class T>
struct Mlp {
  hs::Parameter<T> up, bias, down;
  explicit Mlp(hs::Scope<T> s)
      : up(s.add("up", {30, 9}, hs::Role::weight, hs::Init::normal(0.1F))),
        bias(s.add("bias", {30}, hs::Role::bias, hs::Init::constant(0.0F))),
        down(s.add("down", {5, 30}, hs::Role::weight, hs::Init::normal(0.1F))) {}
  hs::Loss operator()(hs::Tape& tape, const std::vector<std::int32_t>& tokens,
                      const std::string& plan) const {
    const std::vector<float> x(tokens.size() * 9, 0.5F), y(tokens.size() * 5, 0.25F);
    const auto n = static_cast<std::int64_t>(tokens.size());
    const auto layer = hs::owns_its_captures(
        [this](hs::Variable<T> v) { return linear(gelu(linear(v, up, bias)), down); });
    const auto in = hs::constant<T>(tape, {n, 9}, x);
    return hs::squared_error(plan == "none" ? layer(in) : hs::checkpoint(layer, in), y);
  }
};

template <class T>
struct GptModel {
  hs::nn::Gpt<T> gpt;
  explicit GptModel(hs::Scope<T> s)
      : gpt(s, {.vocabulary = vocabulary,
                .context = length,
                .layers = 5,
                .heads = 2,
                .width = 16,
                .dropout = 0.1F}) {}
  mutable std::vector<hs::nn::SegmentedGpt<T>> cut;  // lives as long as the model
  hs::Loss operator()(hs::Tape& tape, const std::vector<std::int32_t>& tokens,
                      const std::string& plan) const {
    if (cut.empty()) {
      const std::map<std::string, hs::autograd::Schedule> schedules{
          {"none", hs::autograd::keep_all(5)},
          {"uniform", hs::autograd::uniform(5, 3)},
          {"square root", hs::autograd::square_root(5)},
          {"revolve", hs::autograd::revolve(5, 2)},
          {"mixed", hs::autograd::mixed(5, 2)},
          {"budget", hs::nn::plan_recompute(gpt, rows, length, 0).schedule}};
      cut.emplace_back(gpt, schedules.at(plan));
    }
    return cut.front().loss(tape, tokens, tokens);
  }
};

// Three steps of training, as anybody would write them, on any runtime.
template <template <class> class Model, class T, class Optimizer>
hs::core::Ledger::Bytes train(hs::Runtime& runtime, const std::string& plan, int accumulate,
                              std::int64_t& peak) {
  hs::Parameters<T> parameters(runtime);
  const Model<T> model(parameters);
  hs::mixed::LossScaler scaler;
  hs::mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  Optimizer optimizer(parameters);
  hs::Tape tape(runtime);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows) * length, 3);
  for (int step = 0; step < 3; ++step) {
    auto window = accumulator.begin(
        tape, step, {.micro_batches = accumulate, .rows = rows, .targets_per_row = length});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, model(tape, tokens, plan));
    }
    (void)optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
  }
  EXPECT_EQ(optimizer.steps(), runtime.dry() ? 0 : 3);
  peak = runtime.ledger().peak();
  return runtime.ledger().at_peak();
}

// Runs f(line) in a process of its own, which has counted nothing, and gives the line back.
std::string in_a_process(const std::function<std::string()>& f) {
  const std::string path = testing::TempDir() + "/halfstep_dry_run_" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(path) << f();
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::ifstream file(path);
  std::string line{std::istreambuf_iterator<char>(file), {}};
  std::remove(path.c_str());
  return line;
}

template <template <class> class Model, class T, class Optimizer>
std::string account(bool dry, const std::string& plan, int accumulate) {
  return in_a_process([&] {
    hs::Runtime runtime({.threads = 2, .dry = dry});
    std::int64_t peak = 0;
    const auto categories = train<Model, T, Optimizer>(runtime, plan, accumulate, peak);
    std::ostringstream line;
    line << peak << " bytes:";
    for (const std::int64_t bytes : categories)
      line << ' ' << bytes;
    return line.str();
  });
}

template <template <class> class Model, class T>
void expect_predicted(const std::vector<std::string>& plans) {
  for (const std::string& plan : plans) {
    for (const int accumulate : {1, 4}) {
      const std::string predicted =
          account<Model, T, hs::mixed::MasterWeights<hs::optim::AdamW, T>>(true, plan, accumulate);
      const std::string measured =
          account<Model, T, hs::mixed::MasterWeights<hs::optim::AdamW, T>>(false, plan, accumulate);
      EXPECT_EQ(predicted, measured) << plan << ", " << accumulate;
      EXPECT_GT(measured.size(), 20U);
    }
  }
  using Sgd = hs::mixed::MasterWeights<hs::optim::Sgd, T>;
  EXPECT_EQ((account<Model, T, Sgd>(true, plans[0], 2)),
            (account<Model, T, Sgd>(false, plans[0], 2)));
}

}  // namespace

template <class T>
class DryRunIn : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(DryRunIn, Formats);

TYPED_TEST(DryRunIn, PredictsTheAccountOfAModelOfOnesOwn) {
  expect_predicted<Own, TypeParam>({"none", "segments", "nested"});
}
TYPED_TEST(DryRunIn, PredictsTheAccountOfAnMlp) {
  expect_predicted<Mlp, TypeParam>({"none", "segments"});
}
TYPED_TEST(DryRunIn, PredictsTheAccountOfAGptWithEveryPlan) {
  expect_predicted<GptModel, TypeParam>(
      {"none", "uniform", "square root", "revolve", "mixed", "budget"});
}

TEST(DryRun, OfAnotherPlanOrBatchIsAnother) {
  using Optimizer = hs::mixed::MasterWeights<hs::optim::AdamW, float>;
  const auto none = account<GptModel, float, Optimizer>(true, "none", 1);
  EXPECT_NE((account<GptModel, float, Optimizer>(true, "uniform", 1)), none);
  EXPECT_NE((account<GptModel, float, Optimizer>(true, "none", 4)), none);
}

namespace {

std::int64_t resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return -1;
}

}  // namespace

TEST(NightlyDryRun, ResidentMemoryGrowsByTheAccountAndOneMegabyte) {
  // nanoGPT's GPU configuration in bf16, two steps of it.
  for (const int segments : {1, 6}) {
    const std::string line = in_a_process([&] {
      hs::Runtime runtime({.threads = 2});
      const std::int64_t before = resident_peak();
      hs::Parameters<hs::bf16> parameters(runtime);
      const hs::nn::Gpt<hs::bf16> gpt(
          parameters, {.vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384});
      const hs::nn::SegmentedGpt<hs::bf16> model(gpt, segments);
      hs::mixed::GradientAccumulator<hs::bf16> accumulator(parameters);
      hs::mixed::MasterWeights<hs::optim::AdamW, hs::bf16> optimizer(parameters);
      hs::Tape tape(runtime);
      const std::vector<std::int32_t> text(16 * 256, 3);
      for (int step = 0; step < 2; ++step) {
        auto window =
            accumulator.begin(tape, step, {.micro_batches = 1, .rows = 16, .targets_per_row = 256});
        for (const auto micro : window) {
          tape.begin(micro);
          window.backward(tape, model.loss(tape, text, text));
        }
        (void)optimizer.step(std::move(window).unscale(), 1e-3F);
      }
      const std::int64_t growth = resident_peak() - before, peak = runtime.ledger().peak();
      std::printf("segments %d: account %lld bytes, resident memory grew by %lld, %.2f %% more\n",
                  segments, static_cast<long long>(peak), static_cast<long long>(growth),
                  100.0 * static_cast<double>(growth - peak) / static_cast<double>(peak));
      std::fflush(stdout);
      return std::to_string(growth <= peak + peak / 200 + (1 << 20) && growth > peak - peak / 10);
    });
    EXPECT_EQ(line, "1") << segments;
  }
}

TEST(DryRun, TakesNoMemoryAndReadsNothing) {
  hs::Runtime runtime({.threads = 1, .dry = true});
  hs::Parameters<float> parameters(runtime);
  // 40 GB of weights, and as much again for each of the rest.
  const auto w = parameters.add("w", {100'000, 100'000}, hs::Role::weight, hs::Init::normal(1.0F));
  const hs::optim::AdamW<float> optimizer(parameters, {});
  hs::mixed::GradientAccumulator<float> accumulator(parameters);
  hs::Tape tape(runtime);
  EXPECT_TRUE(tape.dry());
  {
    auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      const std::vector<float> x(100'000, 1.0F);
      window.backward(tape,
                      squared_error(linear(hs::constant<float>(tape, {1, 100'000}, x), w), x));
    }
    EXPECT_EQ(runtime.ledger().live(hs::core::Category::gradients), 40'000'000'000);
    const auto gradients = std::move(window).unscale();
    EXPECT_EQ(gradients.count(), 0.0);
  }
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::weights), 40'000'000'000);
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::moments), 80'000'000'000);
  tape.begin();
  EXPECT_THROW((void)gelu(hs::constant<float>(tape, {1}, std::vector{1.0F})).value(),
               hs::StateError);
}
