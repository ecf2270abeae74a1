// SPDX-License-Identifier: MIT
// A dry run of a whole training step predicts its account: one process predicts and writes a file,
// a second trains and writes one, this one compares.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/plan_recompute.hpp>
#include <halfstep/autograd/run_chain.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/core/resident_memory.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/sgd.hpp>

namespace hs = halfstep;

namespace {

constexpr int rows = 4, length = 12, vocabulary = 13;
const std::vector<std::int32_t> tokens(std::size_t{rows} * length, 3);

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

// A model as a chain for run_chain, which every one here is: front(tape), layers, back(x).
// Not in nn/: an own op, a branch on a shape, a parameter that is shared and one that is not used.
template <class T>
struct Own {
  struct Layer {
    using layer_tag = void;
    hs::Parameter<T> in, out, gain;
    hs::Variable<T> operator()(hs::Variable<T> x) const {
      const auto y = linear(gelu(linear(layer_norm(x, gain), in)), out);
      const auto z = x.shape().rows() > 10 ? x.tape->template handle<T>(x.tape->record(
                                                 Twice<T>::op, {y}, {}, hs::autograd::NoPayload{}))
                                           : y;
      return x + z;
    }
  };
  static constexpr int width = 24, depth = 4;
  hs::Parameter<T> table, unused;
  std::vector<Layer> layers;
  explicit Own(hs::Scope<T> s)
      : table(s.add("table", {vocabulary, width}, hs::Role::embedding, hs::Init::normal(0.1F))),
        unused(s.add("unused", {7, 9}, hs::Role::weight, hs::Init::normal(0.1F))) {
    const auto in = s.add("in", {40, width}, hs::Role::weight, hs::Init::normal(0.1F)),
               out = s.add("out", {width, 40}, hs::Role::weight, hs::Init::normal(0.1F));
    for (int i = 0; i < depth; ++i) {
      layers.push_back(
          {in, out, (s / i).add("gain", {width}, hs::Role::gain, hs::Init::constant(1.0F))});
    }
  }
  hs::Variable<T> front(hs::Tape& tape) const { return embedding(tape, table, tokens); }
  hs::Loss back(hs::Variable<T> x) const { return hs::cross_entropy(hs::logits(x, table), tokens); }
};

template <class T>
struct Mlp {
  struct Layer {
    using layer_tag = void;
    hs::Parameter<T> weight, bias;
    hs::Variable<T> operator()(hs::Variable<T> x) const { return gelu(linear(x, weight, bias)); }
  };
  std::vector<Layer> layers;
  hs::Parameter<T> down;
  explicit Mlp(hs::Scope<T> s)
      : down(s.add("down", {5, 30}, hs::Role::weight, hs::Init::normal(0.1F))) {
    const std::vector<int> widths{9, 30, 50, 20, 30};
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const auto at = s / static_cast<int>(i);
      layers.push_back(
          {at.add("weight", {widths[i + 1], widths[i]}, hs::Role::weight, hs::Init::normal(0.1F)),
           at.add("bias", {widths[i + 1]}, hs::Role::bias, hs::Init::constant(0.0F))});
    }
  }
  hs::Variable<T> front(hs::Tape& tape) const {
    return hs::constant<T>(tape, {rows * length, 9}, std::vector(tokens.size() * 9, 0.5F));
  }
  hs::Loss back(hs::Variable<T> x) const {
    return hs::squared_error(linear(x, down), std::vector(tokens.size() * 5, 0.25F));
  }
};

template <class T>
struct SmallGpt {
  hs::nn::Gpt<T> gpt;
  std::vector<hs::nn::Block<T>> layers;
  explicit SmallGpt(hs::Scope<T> s)
      : gpt(s, {.vocabulary = vocabulary,
                .context = length,
                .layers = 5,
                .heads = 2,
                .width = 16,
                .dropout = 0.1F}),
        layers(gpt.blocks) {}
  hs::Variable<T> front(hs::Tape& tape) const { return gpt.embed(tape, tokens); }
  hs::Loss back(hs::Variable<T> x) const { return gpt.loss(x, tokens); }
};

// What one process writes and another holds its own against.
struct Account {
  std::int64_t peak = 0, addresses = 0, budget = 0;  // of a plan that is for one
  double recomputed_flops = 0.0;
  hs::core::Ledger::Bytes at_peak{};
  friend bool operator==(const Account&, const Account&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Account& a) {
    out << a.peak << " bytes in " << a.addresses << " of budget " << a.budget << ", "
        << a.recomputed_flops << " FLOP again:";
    for (const std::int64_t bytes : a.at_peak)
      out << ' ' << bytes;
    return out;
  }
};

// Fractions of the way from the least memory that there is to what keeping everything takes.
const std::map<std::string, double> budgets{{"least", 0.0}, {"a third", 1.0 / 3.0}, {"half", 0.5}};

// Three steps of training, as anybody would write them, on any runtime.
template <template <class> class Model, class T, class Optimizer>
Account train(hs::Runtime& runtime, const std::string& plan, int accumulate) {
  hs::Parameters<T> parameters(runtime);
  const Model<T> model(parameters);
  hs::mixed::LossScaler scaler;
  hs::mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  Optimizer optimizer(parameters);
  hs::Tape tape(runtime);
  const auto n = static_cast<int>(model.layers.size());
  using Layer = typename decltype(model.layers)::value_type;
  const std::span<const Layer> layers(model.layers);
  const auto begin = [&](int step) {
    return accumulator.begin(
        tape, step, {.micro_batches = accumulate, .rows = rows, .targets_per_row = length});
  };
  Account account;
  const auto planned = [&](double fraction) {
    const auto window = begin(0);
    hs::RecomputePlanOptions options{.long_lived = runtime.ledger().live(),
                                     .micro = {0, 0, 0, rows}};
    const auto within = [&](std::int64_t budget) {
      options.budget = budget;
      return hs::plan_recompute(
          runtime, options, [&](hs::Tape& t) { return model.front(t); }, layers,
          [&](hs::Variable<T> x) { return model.back(x); });
    };
    const auto all = within(std::numeric_limits<std::int64_t>::max());
    account.budget = all.smallest + static_cast<std::int64_t>(
                                        fraction * static_cast<double>(all.peak - all.smallest));
    auto chosen = within(account.budget);
    EXPECT_LE(chosen.require().peak, account.budget);
    tape.place(std::move(chosen.placement));
    return chosen.schedule;
  };
  const std::map<std::string, std::function<hs::autograd::Schedule()>> schedules{
      {"none", [&] { return hs::autograd::keep_all(n); }},
      {"segments", [&] { return hs::autograd::uniform(n, n); }},
      {"square root", [&] { return hs::autograd::square_root(n); }},
      {"revolve", [&] { return hs::autograd::revolve(n, 2); }},
      {"mixed", [&] { return hs::autograd::mixed(n, 2); }}};
  const auto schedule = budgets.contains(plan) ? planned(budgets.at(plan)) : schedules.at(plan)();
  for (int step = 0; step < 3; ++step) {
    auto window = begin(step);
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, model.back(hs::run_chain(layers, schedule, model.front(tape))));
    }
    (void)optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
  }
  EXPECT_EQ(optimizer.steps(), runtime.dry() ? 0 : 3);
  account.peak = runtime.ledger().peak();
  account.at_peak = runtime.ledger().at_peak();
  account.addresses = tape.addresses();
  account.recomputed_flops = tape.replayed_flops();
  return account;
}

// Runs f in a process of its own, whose ledger has counted nothing, and gives back what it has
// written to a file.
template <class Result>
Result in_a_process(const std::function<Result()>& f) {
  static_assert(std::is_trivially_copyable_v<Result>);
  const std::string path = testing::TempDir() + "/halfstep_dry_run_" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const Result result = f();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&result), sizeof result);
    std::fflush(stdout);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Result result{};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&result), sizeof result);
  std::remove(path.c_str());
  return result;
}

template <template <class> class Model, class T, class Optimizer>
Account account(bool dry, const std::string& plan, int accumulate) {
  return in_a_process<Account>([&] {
    hs::Runtime runtime({.threads = 2, .dry = dry});
    return train<Model, T, Optimizer>(runtime, plan, accumulate);
  });
}

template <template <class> class Model, class T>
void expect_predicted(const std::vector<std::string>& plans) {
  using Adam = hs::mixed::MasterWeights<hs::optim::AdamW, T>;
  for (const int accumulate : {1, 4}) {
    double least = std::numeric_limits<double>::max();
    for (const std::string& plan : plans) {
      const Account predicted = account<Model, T, Adam>(true, plan, accumulate);
      const Account measured = account<Model, T, Adam>(false, plan, accumulate);
      EXPECT_EQ(predicted, measured) << plan << ", " << accumulate;
      EXPECT_GT(measured.peak, 10'000);
      EXPECT_EQ(measured.recomputed_flops == 0.0, plan == "none") << plan;
      if (!budgets.contains(plan)) continue;
      EXPECT_LE(measured.peak, measured.budget) << plan << ", " << accumulate;
      EXPECT_LE(measured.recomputed_flops, least) << plan << ", " << accumulate;
      least = measured.recomputed_flops;
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
  expect_predicted<Own, TypeParam>({"none", "segments", "revolve", "least", "a third", "half"});
}
TYPED_TEST(DryRunIn, PredictsTheAccountOfAnMlp) {
  expect_predicted<Mlp, TypeParam>({"none", "segments", "least", "half"});
}
TYPED_TEST(DryRunIn, PredictsTheAccountOfAGptWithEveryPlan) {
  expect_predicted<SmallGpt, TypeParam>(
      {"none", "segments", "square root", "revolve", "mixed", "least", "a third", "half"});
}

TEST(DryRun, OfAnotherPlanOrBatchIsAnother) {
  using Optimizer = hs::mixed::MasterWeights<hs::optim::AdamW, float>;
  const auto none = account<SmallGpt, float, Optimizer>(true, "none", 1);
  EXPECT_FALSE((account<SmallGpt, float, Optimizer>(true, "square root", 1)) == none);
  EXPECT_FALSE((account<SmallGpt, float, Optimizer>(true, "none", 4)) == none);
}

namespace {

struct Sizes {
  int layers, heads, width, context, rows;
};
struct Resident {
  std::int64_t account = 0, addresses = 0, growth = 0;
};

// A step of two micro-batches of a GPT in bf16 with master weights and scaler: `segments` runs of
// blocks, or for 0 the cheapest plan in the memory halfway between none and the least.
Resident resident(bool dry, const Sizes& size, int segments) {
  return in_a_process<Resident>([&] {
    hs::Runtime runtime({.threads = 2, .dry = dry});
    const std::int64_t before = hs::core::peak_resident_memory();
    hs::Parameters<hs::bf16> parameters(runtime);
    const hs::nn::Gpt<hs::bf16> gpt(parameters, {.vocabulary = 65,
                                                 .context = size.context,
                                                 .layers = size.layers,
                                                 .heads = size.heads,
                                                 .width = size.width});
    const auto none = hs::nn::plan_recompute(gpt, size.rows, size.context,
                                             std::numeric_limits<std::int64_t>::max());
    const auto half =
        hs::nn::plan_recompute(gpt, size.rows, size.context, (none.peak + none.smallest) / 2);
    const hs::nn::SegmentedGpt<hs::bf16> model(
        gpt, segments == 0 ? half.schedule : hs::autograd::uniform(size.layers, segments));
    hs::mixed::LossScaler scaler;
    hs::mixed::GradientAccumulator<hs::bf16> accumulator(parameters, scaler);
    hs::mixed::MasterWeights<hs::optim::AdamW, hs::bf16> optimizer(parameters);
    hs::Tape tape(runtime);
    const std::vector<std::int32_t> text(
        static_cast<std::size_t>(size.rows) * static_cast<std::size_t>(size.context), 3);
    {
      hs::Tape rehearsal(runtime, hs::Tape::Mode::dry);
      rehearsal.begin({0, 0, 0, size.rows});
      rehearsal.backward(model.loss(rehearsal, text, text));
      tape.place(rehearsal.placement());
    }
    auto window = accumulator.begin(
        tape, 0, {.micro_batches = 2, .rows = size.rows, .targets_per_row = size.context});
    for (const auto micro : window) {
      tape.begin(micro);
      window.backward(tape, model.loss(tape, text, text));
    }
    (void)optimizer.step(std::move(window).unscale().clip_norm(1.0F), 1e-3F);
    return Resident{runtime.ledger().peak(), tape.addresses(),
                    hs::core::peak_resident_memory() - before};
  });
}

void expect_resident_as_predicted(const Sizes& size, const std::vector<int>& all_segments) {
  for (const int segments : all_segments) {
    const Resident predicted = resident(true, size, segments);
    const Resident real = resident(false, size, segments);
    const auto more = real.growth - predicted.account;
    std::printf("%d segments: predicted %lld bytes, resident memory grew by %lld more, %.2f %%\n",
                segments, static_cast<long long>(predicted.account), static_cast<long long>(more),
                100.0 * static_cast<double>(more) / static_cast<double>(predicted.account));
    std::fflush(stdout);
    EXPECT_EQ(predicted.account, real.account);
    EXPECT_EQ(predicted.addresses, real.addresses);
    EXPECT_LE(more, predicted.account / 200 + (1 << 20));
    EXPECT_GT(more, -predicted.account / 100);
  }
}

}  // namespace

TEST(DryRun, ResidentMemoryGrowsByThePredictedAccountHalfAPercentAndOneMegabyte) {
  expect_resident_as_predicted({3, 4, 256, 128, 16}, {1, 3, 0});
}
TEST(NightlyDryRun, ResidentMemoryOfNanoGptsGpuModelToo) {
  expect_resident_as_predicted({6, 6, 384, 256, 16}, {1, 3, 6, 0});
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
