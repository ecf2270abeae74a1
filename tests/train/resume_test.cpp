// SPDX-License-Identifier: MIT
// A training process that dies inside a forward pass, a backward pass, a step or an evaluation, and
// another that goes on from its checkpoints: the same losses, weights, and average of them. Deaths
// within a save, and of the whole program: tests/capstone/resume.sh.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/data/text.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/mixed/weight_average.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/train/fit.hpp>
#include <halfstep/train/metrics.hpp>

namespace {

namespace fs = std::filesystem;
namespace hs = halfstep;
using testing::HasSubstr;

constexpr std::int64_t steps = 24;
constexpr std::int64_t save_every = 4;

enum class Place { nowhere, forward, backward, step, evaluation };

std::string to_string(Place place) {
  constexpr const char* names[]{"nowhere", "forward", "backward", "step", "evaluation"};
  return names[static_cast<int>(place)];
}

/// Dies at the n-th time that a place is reached; counts every place.
struct Fault {
  Place place = Place::nowhere;
  std::int64_t number = 0;
  std::map<Place, std::int64_t> reached{};
  bool training = false;  ///< whether the pass under way is one of training

  void reach(Place here) {
    if (++reached[here] == number && here == place) ::kill(::getpid(), SIGKILL);
  }
};
Fault* fault = nullptr;  // ops are tables of plain functions, so the test's has no other way to it

/// x itself, that reaches a place on the way forward and one on the way back.
template <class T>
struct Faulty {
  static void infer(hs::autograd::Infer& c) { c.output<T>(c.input_shape(0)); }
  static void forward(hs::autograd::Forward& c) {
    fault->reach(fault->training ? Place::forward : Place::evaluation);
    std::copy_n(c.input<T>(0), c.output_shape().elements(), c.output<T>());
  }
  static void backward(hs::autograd::Backward& c) {
    fault->reach(Place::backward);
    std::copy_n(c.output_gradient<T>(), c.output_shape().elements(), c.input_gradient<T>(0));
  }
  static constexpr hs::autograd::Op op{"faulty", &infer, &forward, &backward};
};
template <class T>
hs::Variable<T> faulty(hs::Variable<T> x) {
  return hs::autograd::tape_of(x, "faulty")
      .template handle<T>(x.tape->record(Faulty<T>::op, {x}, {}, hs::autograd::NoPayload{}));
}

/// Gradients that reach a place whenever the optimizer takes those of a parameter.
template <class Inner>
class FaultyGradients {
 public:
  using gradient = typename Inner::gradient;
  explicit FaultyGradients(Inner&& inner) : inner_(std::move(inner)) {}
  [[nodiscard]] hs::tensor::ParameterTable& parameters() const { return inner_.parameters(); }
  [[nodiscard]] std::span<const gradient> sum(hs::ParameterId id) const {
    fault->reach(Place::step);
    return inner_.sum(id);
  }
  [[nodiscard]] double factor() const { return inner_.factor(); }
  [[nodiscard]] hs::optim::StepResult result() const { return inner_.result(); }
  void settle(hs::optim::StepResult& result) && { std::move(inner_).settle(result); }

 private:
  Inner inner_;
};

template <class Optimizer>
struct FaultyOptimizer : Optimizer {
  using Optimizer::Optimizer;
  template <class Gradients>
  hs::optim::StepResult step(Gradients&& gradients, float lr) {
    return Optimizer::step(FaultyGradients<std::remove_cvref_t<Gradients>>(std::move(gradients)),
                           lr);
  }
};

/// What is in a run's directory afterwards.
struct Outcome {
  std::vector<std::string> losses;    ///< of metrics.jsonl, without times
  std::vector<std::int64_t> resumed;  ///< the iterations that processes went on after
  std::string hash;
  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.losses == b.losses && a.hash == b.hash;
  }
};

Outcome outcome_of(const fs::path& folder) {
  Outcome outcome;
  std::ifstream log(folder / "metrics.jsonl");
  for (std::string line; std::getline(log, line);) {
    if (const auto at = line.find("\"kind\":\"resume\",\"iteration\":"); at != std::string::npos) {
      outcome.resumed.push_back(std::atoll(line.c_str() + at + 28));
    } else {
      line.resize(std::min(line.find(",\"step_seconds"), line.find(",\"seconds")));
      outcome.losses.push_back(line);
    }
  }
  std::getline(std::ifstream(folder / "hash"), outcome.hash);
  return outcome;
}

/// The process itself: trains in `folder`, on from what is there.
template <class T>
void train(const fs::path& folder, Fault& faults, float dropout = 0.1F) {
  fault = &faults;
  std::string words;
  const char* list[] = {"cat ", "dog ", "sat ", "on ", "the ", "mat.\n"};
  for (std::uint64_t i = 0; words.size() < 2000; ++i)
    words += list[hs::core::uniform_below(1, 2, i, 6)];
  const auto text = hs::data::Text::from_string(words);
  hs::Runtime runtime({.threads = 1, .seed = 3});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(),
                                        .context = 16,
                                        .layers = 2,
                                        .heads = 2,
                                        .width = 16,
                                        .dropout = dropout});
  // Between the blocks: a value that is on the tape forward and backward.
  const auto model = [&](hs::Tape& tape, std::span<const std::int32_t> inputs) {
    faults.training = tape.training();
    return gpt.head(gpt.blocks[1](faulty(gpt.blocks[0](gpt.embed(tape, inputs)))));
  };
  FaultyOptimizer<hs::mixed::MasterWeights<hs::optim::AdamW, T>> optimizer(
      parameters, hs::optim::AdamWOptions{.beta2 = 0.99, .weight_decay = 0.1});
  hs::mixed::LossScaler scaler = std::same_as<T, hs::fp16>
                                     ? hs::mixed::LossScaler({.initial = 0x1p24F, .interval = 5})
                                     : hs::mixed::LossScaler::fixed(1.0F);
  hs::mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  hs::train::FitState state{.stopping = hs::train::EarlyStopping({.patience = 50}),
                            .plateau = hs::optim::Plateau({.factor = 0.5, .patience = 0})};
  hs::mixed::WeightAverage average(parameters, {.decay = 0.9});
  hs::Tape tape(runtime);
  hs::io::Run run({.directory = folder / "checkpoints", .keep = 2, .data_hash = text.hash()},
                  parameters, optimizer, scaler, state, average);
  const std::string log = folder / "metrics.jsonl";
  hs::train::cut_metrics(log, state.iteration, state.evaluated == state.iteration);
  hs::train::Metrics metrics(log, hs::train::Metrics::Start::append);
  if (fs::exists(folder / "started"))
    metrics.write(hs::train::ResumeInfo{.iteration = run.iteration()});
  std::ofstream(folder / "started") << "yes";
  const auto result = hs::train::fit(
      model, tape, optimizer, accumulator, scaler, text,
      {.steps = steps,
       .lr = 1e-2F,
       .min_lr = 1e-3F,
       .warmup = 3,
       .rows = 4,
       .length = 16,
       .accumulate = 2,
       .evaluate_every = 3},
      {.on_step =
           [&](const hs::train::StepInfo& info) {
             metrics.write(info);
             if (info.applied) average.update(optimizer);
           },
       .on_evaluate = [&](const auto& info) { metrics.write(info); },
       .on_save_point =
           [&](const hs::train::SavePoint& at) {
             if (at.iteration % save_every == 0 || at.improved || at.last) {
               run.save(at.iteration, at.evaluated ? std::optional(at.loss) : std::nullopt);
             }
           }},
      state);
  std::ofstream(folder / "hash") << result.weights_hash << " " << result.train_loss << " "
                                 << result.steps << " " << result.skipped << " "
                                 << hs::tensor::state_hash(average) << "\n";
}

class Resume : public testing::Test {
 protected:
  Resume() {
    std::string pattern = (fs::temp_directory_path() / "halfstep-resume-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~Resume() override { fs::remove_all(folder); }

  /// Trains in a process of its own; true if that reached its end.
  template <class T>
  bool process(const fs::path& at, const Fault& wanted, float dropout = 0.1F) {
    fs::create_directories(at);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        Fault mine = wanted;
        train<T>(at, mine, dropout);
        std::ofstream counts(at / "reached");
        for (const auto& [place, count] : mine.reached)
          counts << static_cast<int>(place) << " " << count << "\n";
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return false;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return true;
  }

  static std::int64_t newest(const fs::path& at) {
    for (const auto& found : hs::io::find_checkpoints((at / "checkpoints").string())) {
      if (found.manifest) return found.iteration;
    }
    return 0;
  }

  /// Kills a run at `times` moments of each place, uniform over how often it is reached.
  template <class T>
  void kill_and_resume(std::int64_t times) {
    const fs::path whole = folder / "whole";
    ASSERT_TRUE(process<T>(whole, {}));
    const Outcome undisturbed = outcome_of(whole);
    ASSERT_EQ(undisturbed.losses.size(), static_cast<std::size_t>(steps + steps / 3));
    std::map<int, std::int64_t> reached;
    std::ifstream counts(whole / "reached");
    for (int place = 0; counts >> place;)
      counts >> reached[place];
    for (const Place place : {Place::forward, Place::backward, Place::step, Place::evaluation}) {
      const std::int64_t total = reached[static_cast<int>(place)];
      ASSERT_GT(total, 10) << to_string(place);
      for (std::int64_t i = 0; i < times; ++i) {
        const std::int64_t number = 1 + (2 * i + 1) * (total - 1) / (2 * times);
        const fs::path at = folder / "killed";
        fs::remove_all(at);
        ASSERT_FALSE(process<T>(at, {.place = place, .number = number}));
        const std::int64_t done = static_cast<std::int64_t>(outcome_of(at).losses.size());
        const std::int64_t from = newest(at);
        ASSERT_TRUE(process<T>(at, {}));
        const Outcome resumed = outcome_of(at);
        std::printf("%s, %s %lld of %lld: %lld lines in the log, went on after iteration %lld\n",
                    std::string(hs::format_name<T>).c_str(), to_string(place).c_str(),
                    static_cast<long long>(number), static_cast<long long>(total),
                    static_cast<long long>(done), static_cast<long long>(from));
        ASSERT_EQ(resumed.losses, undisturbed.losses);
        ASSERT_EQ(resumed.hash, undisturbed.hash);
        ASSERT_EQ(resumed.resumed, std::vector<std::int64_t>{from});
        ASSERT_TRUE(from > 0 || done <= 2 * save_every);
        // What was done twice is less than what lies between two checkpoints, an evaluation
        // included.
        ASSERT_LE(done - from - from / 3, save_every + 2);
      }
    }
  }

  fs::path folder;
};

TEST_F(Resume, AfterADeathInEachPlaceOfAnIteration) { kill_and_resume<hs::bf16>(2); }
// What equality would not show: the options that a resumed run must keep are not ignored.
TEST_F(Resume, TheDirectoryAloneIsEnoughForTheShortForm) {
  hs::Runtime runtime({.threads = 1, .seed = 3});
  hs::Parameters<float> parameters(runtime);
  const auto scale = parameters.scope().add("scale", {3}, hs::Role::gain, hs::Init::constant(1.0F));
  const std::string path = folder / "short";
  {
    hs::io::Run run(path, parameters);
    parameters.write(scale.id)[1] = 5.0F;
    run.save(7);
    parameters.write(scale.id)[1] = 6.0F;
  }
  const hs::io::Run run(path, parameters);
  EXPECT_EQ(run.iteration(), 7);
  EXPECT_EQ(parameters.values(scale)[1], 5.0F);
}

TEST_F(Resume, AnotherDropoutAndAnotherFormatAreOtherRuns) {
  ASSERT_TRUE(process<float>(folder / "a", {}));
  ASSERT_TRUE(process<float>(folder / "b", {}));
  ASSERT_TRUE(process<float>(folder / "dropout", {}, 0.2F));
  ASSERT_TRUE(process<hs::fp16>(folder / "fp16", {}));
  const Outcome a = outcome_of(folder / "a");
  EXPECT_EQ(a, outcome_of(folder / "b"));
  EXPECT_NE(a.hash, outcome_of(folder / "dropout").hash);
  EXPECT_NE(a.hash, outcome_of(folder / "fp16").hash);
}

template <class T>
class NightlyResume : public Resume {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(NightlyResume, Formats);
TYPED_TEST(NightlyResume, EachFormatAfterDeathsAllOverAnIteration) {
  this->template kill_and_resume<TypeParam>(7);
}
}  // namespace
