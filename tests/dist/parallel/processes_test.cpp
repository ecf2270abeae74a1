// SPDX-License-Identifier: MIT
// Training by real processes. Each test starts this program again, for itself alone; what ranks
// come to is compared in the launcher, through a file that they inherit.
// with: dist/parallel/gpt_run.cpp
#include <halfstep/dist/transport/launch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dist/parallel/gpt_run.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using gpt_run::Outcome;
using gpt_run::Settings;

bool is_rank() { return std::getenv("HALFSTEP_LAUNCHED") != nullptr; }

/// What n processes come to. In one of them this does not return.
template <class T>
std::vector<Outcome> processes(int n, dist::TransportKind transport, Settings settings) {
  const char* const name = "HALFSTEP_TEST_OUTCOMES";
  if (!is_rank()) setenv(name, std::to_string(memfd_create("outcomes", 0)).c_str(), 1);
  const int file = std::atoi(std::getenv(name));
  dist::LaunchOptions options{.ranks = n,
                              .transport = transport,
                              .threads = 1,
                              .arena_bytes = 1 << 20,
                              .timeout = std::chrono::seconds(60),
                              .arguments = {}};
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  options.arguments = {
      "ranks", std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name(),
      "--gtest_brief=1"};
  const int code = dist::launch(options, [&](const dist::Rank& rank) {
    hs::Runtime runtime({.threads = rank.threads, .seed = settings.seed});
    dist::Group group(rank.transport, runtime);
    const Outcome outcome = gpt_run::run<T>(runtime, &group, gpt_run::of_format<T>(settings));
    if (pwrite(file, &outcome, sizeof outcome, static_cast<off_t>(group.rank()) * static_cast<off_t>(sizeof outcome)) !=
        sizeof outcome) {
      throw hs::FileError("the outcome could not be written");
    }
  });
  EXPECT_EQ(code, 0);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  const auto bytes = static_cast<ssize_t>(outcomes.size() * sizeof(Outcome));
  EXPECT_EQ(pread(file, outcomes.data(), static_cast<std::size_t>(bytes), 0), bytes);
  close(file);
  return outcomes;
}

class Processes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stage, Processes, testing::Values(0, 1, 2, 3));

/// One launch for each test: in the ranks the first launch is the last thing that happens.
template <class T>
void expect_as_alone(int n, dist::TransportKind transport, const Settings& settings) {
  const Outcome one = is_rank() ? Outcome{} : gpt_run::alone<T>(settings);
  for (const Outcome& rank : processes<T>(n, transport, settings)) {
    EXPECT_EQ(rank.hash, one.hash);
    EXPECT_EQ(rank.train_loss, one.train_loss);
    EXPECT_EQ(rank.skipped, one.skipped);
    EXPECT_EQ(rank.tokens, one.tokens);
    EXPECT_EQ(rank.micro_batches * n, one.micro_batches);
  }
}
TEST_P(Processes, OverSharedMemoryTrainToTheBitsOfOne) {
  expect_as_alone<hs::bf16>(4, dist::TransportKind::shm, {.stage = GetParam()});
}
TEST_P(Processes, OverPipesTrainToTheBitsOfOne) {
  expect_as_alone<hs::fp16>(2, dist::TransportKind::pipe, {.stage = GetParam()});
}
TEST_P(Processes, OfFiftyStepsTrainToTheBitsOfOne) {
  expect_as_alone<float>(4, dist::TransportKind::shm,
                         {.steps = 50, .micro_batches = 4, .stage = GetParam()});
}

}  // namespace
