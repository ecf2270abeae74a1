// SPDX-License-Identifier: MIT
// Each test that launches starts this program again, for itself alone: what stands before launch()
// runs in every rank, what stands after it in the launcher.
#include <halfstep/dist/transport/launch.hpp>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>

namespace {
namespace dist = halfstep::dist;
using dist::Rank;
using dist::TransportKind;
using namespace std::chrono_literals;

dist::LaunchOptions options(int ranks, TransportKind transport) {
  dist::LaunchOptions out{.ranks = ranks, .transport = transport, .threads = 1, .timeout = 60s};
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  out.arguments = {"ranks",
                   std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name(),
                   "--gtest_brief=1"};
  return out;
}

/// One number to the next rank and one from the one before, `rounds` times.
void shift(dist::Transport& transport, int rounds, int first = 0) {
  const int n = transport.size(), rank = transport.rank();
  if (n == 1) return;
  for (int round = first; round < first + rounds; ++round) {
    const int mine = rank * 1000 + round;
    int got = -1;
    const dist::Outgoing out{(rank + 1) % n, std::as_bytes(std::span(&mine, 1))};
    const dist::Incoming in{(rank + n - 1) % n, std::as_writable_bytes(std::span(&got, 1))};
    transport.exchange(dist::label("shift", "I32", "", static_cast<std::uint64_t>(round + 1), 1),
                       {&out, 1}, {&in, 1});
    if (got != (rank + n - 1) % n * 1000 + round)
      throw std::logic_error("another rank's number is wrong");
  }
}

/// What the launcher of `run` says on standard error.
template <class Run>
std::string said(Run run) {
  testing::internal::CaptureStderr();
  run();
  return testing::internal::GetCapturedStderr();
}
bool is_rank() { return std::getenv("HALFSTEP_LAUNCHED") != nullptr; }

std::set<int> children() {
  std::set<int> out;
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (int pid = 0; file >> pid;)
    out.insert(pid);
  return out;
}
/// What there is by our name in shared memory, and anything in the temporary folder that is set
/// here.
std::set<std::string> left_behind(const std::string& temporary) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().string().find("halfstep") != std::string::npos) out.insert(entry.path());
  }
  for (const auto& entry : std::filesystem::directory_iterator(temporary))
    out.insert(entry.path());
  return out;
}
int open_files() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr)
    ++count;
  closedir(folder);
  return count;
}

std::string kind_name(const testing::TestParamInfo<TransportKind>& made) {
  constexpr std::array<const char*, 3> names{"threads", "shm", "pipe"};
  return names[static_cast<std::size_t>(made.param)];
}
class Launch : public testing::TestWithParam<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Transport, Launch,
                         testing::Values(TransportKind::threads, TransportKind::shm,
                                         TransportKind::pipe),
                         kind_name);

TEST_P(Launch, RunsEveryRankOnceAndMovesItsMessages) {
  EXPECT_EQ(dist::launch(options(4, GetParam()),
                         [](const Rank& rank) {
                           if (rank.transport.size() != 4) throw std::logic_error("not four ranks");
                           shift(rank.transport, 100);
                           if (rank.transport.traffic().bytes_sent != 400)
                             throw std::logic_error("not 400 bytes");
                         }),
            0);
}
TEST_P(Launch, OfOneRankRunsTheBodyHere) {
  int runs = 0;
  EXPECT_EQ(dist::launch(options(1, GetParam()),
                         [&](const Rank& rank) {
                           shift(rank.transport, 1);
                           ++runs;
                         }),
            0);
  EXPECT_EQ(runs, 1);
}
TEST_P(Launch, NamesTheRankThatThrewAndWhat) {
  int code = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) throw std::runtime_error("the disk is full");
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, dist::failed_rank_code);
  EXPECT_NE(text.find("rank 1 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("failed: the disk is full"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

class LaunchProcesses : public Launch {};
INSTANTIATE_TEST_SUITE_P(Transport, LaunchProcesses,
                         testing::Values(TransportKind::shm, TransportKind::pipe), kind_name);

TEST_P(LaunchProcesses, AKilledRankEndsTheOthersWithinTwoSecondsWithItsNumberAndLeavesNothing) {
  const int files = open_files();
  std::string temporary = testing::TempDir() + "halfstep_launch_XXXXXX";
  if (!is_rank()) {
    ASSERT_NE(mkdtemp(temporary.data()), nullptr);
    setenv("TMPDIR", temporary.c_str(), 1);
  }
  const auto before = is_rank() ? std::set<std::string>() : left_behind(temporary);
  int code = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [&](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) raise(SIGKILL);
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, 128 + SIGKILL);
  EXPECT_NE(text.find("rank 1 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("killed by signal 9"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(left_behind(temporary), before);
  unsetenv("TMPDIR");
  std::filesystem::remove(temporary);
}
TEST_P(LaunchProcesses, ARankThatComputesOnIsEndedTooWhenAnotherIsKilled) {
  const auto start = std::chrono::steady_clock::now();
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 2) raise(SIGKILL);
      std::this_thread::sleep_for(60s);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, 128 + SIGKILL);
  EXPECT_NE(text.find("rank 2 of 3"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}
TEST_P(LaunchProcesses, ARankThatLeavesEarlyIsNamedByWhoWaitsForIt) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) return;
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, dist::failed_rank_code);
  EXPECT_NE(text.find("rank 1 of 3 has ended"), std::string::npos) << text;
}
TEST_P(LaunchProcesses, AStoppedRankIsNamedAfterTheTimeout) {
  int code = 0;
  const auto run = [&] {
    dist::LaunchOptions brief = options(2, GetParam());
    brief.timeout = 300ms;
    code = dist::launch(brief, [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) raise(SIGSTOP);
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, dist::failed_rank_code);
  EXPECT_NE(text.find("rank 0 of 2 waited 300 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
}
TEST_P(LaunchProcesses, ASignalToTheLauncherReachesTheRanks) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(2, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 0) kill(getppid(), SIGTERM);
      std::this_thread::sleep_for(60s);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, 128 + SIGTERM);
  EXPECT_NE(text.find("killed by signal 15"), std::string::npos) << text;
}
TEST_P(LaunchProcesses, RanksDieWithTheirLauncher) {
  // The launcher is a child of this test; its ranks write their numbers to a pipe that ends when
  // all of them have.
  int ends[2];
  if (!is_rank()) {
    ASSERT_EQ(pipe(ends), 0);
    setenv("HALFSTEP_TEST_PIPE", std::to_string(ends[1]).c_str(), 1);
  }
  const auto run = [&] {
    return dist::launch(options(2, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      const int file = std::atoi(std::getenv("HALFSTEP_TEST_PIPE"));
      if (write(file, "r", 1) != 1) throw std::logic_error("no pipe");
      std::this_thread::sleep_for(60s);
    });
  };
  if (is_rank()) static_cast<void>(run());
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run());
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  ASSERT_EQ(read(ends[0], &byte, 1), 1);  // both ranks run
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read(ends[0], &byte, 1), 0);  // the end of the file: no rank holds the pipe any more
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  close(ends[0]);
}

TEST(LaunchOptions, AreChecked) {
  const auto body = [](const Rank&) {};
  EXPECT_THROW(static_cast<void>(dist::launch({.ranks = 0}, body)), halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(dist::launch({.ranks = 65}, body)), halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(dist::launch({.threads = -1}, body)), halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(dist::launch({.timeout = 0ms}, body)), halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(dist::launch({.ranks = 2, .arena_bytes = 100}, body)),
               halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(dist::transport_kind("tcp")), halfstep::OptionError);
}
TEST(LaunchOptions, ThreadsAreDividedAmongTheRanks) {
  const int available = halfstep::core::available_threads();
  for (const int ranks : {1, 2, 3, 64}) {
    EXPECT_EQ(dist::launch({.ranks = ranks, .transport = TransportKind::threads},
                           [&](const Rank& rank) {
                             EXPECT_EQ(rank.threads, std::max(1, available / ranks));
                           }),
              0);
  }
}
TEST(LaunchOptions, MemoryThatTheSystemHasNotIsRefusedAtTheStart) {
  EXPECT_THROW(static_cast<void>(dist::launch({.ranks = 2, .arena_bytes = std::int64_t{1} << 45},
                                              [](const Rank&) {})),
               halfstep::MemoryError);
}

}  // namespace
