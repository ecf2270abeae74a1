// SPDX-License-Identifier: MIT
// Each test that launches starts this program again, for itself alone: what stands before launch()
// runs in every rank, what stands after it in the launcher.
#include <halfstep/dist/transport/launch.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
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

/// Whether this process has children, running or not waited for.
bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

/// A folder for the temporary files of one test and of the ranks it starts.
class OwnTemporaries {
 public:
  OwnTemporaries() {
    if (const char* const old = std::getenv("TMPDIR")) before_ = old;
    std::string pattern = testing::TempDir() + "halfstep_launch_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("TMPDIR", folder_.c_str(), 1);
  }
  OwnTemporaries(const OwnTemporaries&) = delete;
  OwnTemporaries& operator=(const OwnTemporaries&) = delete;
  ~OwnTemporaries() {
    before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR");
    std::filesystem::remove_all(folder_);
  }
  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(folder_); }

 private:
  std::string folder_;
  std::optional<std::string> before_;
};

/// Numbers of the files that a program started from here would find open.
std::string inheritable() {
  std::string out;
  for (int file = 0; file < 1024; ++file) {
    const int flags = fcntl(file, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) out += std::to_string(file) + " ";
  }
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
}
TEST_P(Launch, OfARankThatThrowsNoExceptionOfTheStandardsFailsToo) {
  for (const int ranks : {1, 2}) {
    int code = 0;
    const auto run = [&] {
      code = dist::launch(options(ranks, GetParam()), [](const Rank& rank) {
        if (rank.transport.rank() == rank.transport.size() - 1) throw 7;
      });
    };
    if (is_rank()) {
      if (ranks == 2) run();
      continue;
    }
    const std::string text = said(run);
    EXPECT_EQ(code, dist::failed_rank_code);
    EXPECT_NE(text.find("something that is no std::exception"), std::string::npos) << text;
  }
}

TEST_P(Launch, ReturnsTheLargestCodeThatARankReturnsAndSaysNothing) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      const int codes[] = {2, 0, 40};
      return codes[rank.transport.rank()];
    });
  };
  if (is_rank()) run();
  EXPECT_EQ(said(run), "");
  EXPECT_EQ(code, 40);
}
TEST_P(Launch, ACodeIsTheRunsThoughOthersStopBecauseOfIt) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(3, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 0) return 3;
      shift(rank.transport, 10, 10);
      return 0;
    });
  };
  if (is_rank()) run();
  EXPECT_EQ(said(run), "");
  EXPECT_EQ(code, 3);
}
TEST_P(Launch, AFailureIsToldWhateverOthersReturn) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(2, GetParam()), [](const Rank& rank) {
      if (rank.transport.rank() == 0) return 3;
      throw std::runtime_error("the disk is full");
    });
  };
  if (is_rank()) run();
  EXPECT_NE(said(run).find("failed: the disk is full"), std::string::npos);
  EXPECT_EQ(code, dist::failed_rank_code);
}

class LaunchProcesses : public Launch {};
INSTANTIATE_TEST_SUITE_P(Transport, LaunchProcesses,
                         testing::Values(TransportKind::shm, TransportKind::pipe), kind_name);

TEST_P(LaunchProcesses, AKilledRankEndsTheOthersWithItsNumberAndLeavesNothing) {
  const int files = open_files();
  std::optional<OwnTemporaries> temporaries;  // the launcher's, and so the ranks'
  if (!is_rank()) temporaries.emplace();
  int code = 0;
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
  EXPECT_FALSE(has_children());
  EXPECT_EQ(open_files(), files);
  EXPECT_TRUE(temporaries->empty());
}
TEST_P(LaunchProcesses, WhoseEndTheSystemDoesNotTellTheLauncherHaveFailed) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(2, GetParam()), [](const Rank& rank) { shift(rank.transport, 1); });
  };
  if (is_rank()) run();
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const std::string text = said(run);
  std::signal(SIGCHLD, before);
  EXPECT_EQ(code, dist::failed_rank_code);
  EXPECT_NE(text.find("Does it ignore SIGCHLD?"), std::string::npos) << text;
}
TEST_P(LaunchProcesses, HandNoFilesOfTheirsToProgramsThatTheyStart) {
  if (!is_rank()) setenv("HALFSTEP_TEST_FILES", inheritable().c_str(), 1);
  EXPECT_EQ(dist::launch(options(2, GetParam()),
                         [](const Rank& rank) {
                           shift(rank.transport, 1);
                           const std::string files = inheritable();
                           if (files != std::getenv("HALFSTEP_TEST_FILES"))
                             throw std::logic_error("open in another program: " + files);
                         }),
            0);
}

class TimingLaunch : public Launch {};
INSTANTIATE_TEST_SUITE_P(Transport, TimingLaunch,
                         testing::Values(TransportKind::shm, TransportKind::pipe), kind_name);

TEST_P(TimingLaunch, ARankThatComputesOnIsEndedWithinTwoSecondsWhenAnotherIsKilled) {
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
TEST_P(TimingLaunch, AProgramThatAKilledRankHasLeftRunningHoldsNobodyUp) {
  const auto start = std::chrono::steady_clock::now();
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(2, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) {
        if (std::system("sleep 5 > /dev/null 2>&1 &") != 0) throw std::logic_error("no shell");
        raise(SIGKILL);
      }
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, 128 + SIGKILL);
  EXPECT_NE(text.find("rank 1 of 2"), std::string::npos) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

TEST_P(LaunchProcesses, ARankThatLeavesEarlyIsNamedByWhoWaitsForIt) {
  int code = 0;
  const auto run = [&] {
    code = dist::launch(options(2, GetParam()), [](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 1) return;
      shift(rank.transport, 10, 10);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, dist::failed_rank_code);
  EXPECT_NE(text.find("rank 1 of 2 has ended"), std::string::npos) << text;
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
    const pid_t launcher = is_rank() ? getppid() : getpid();
    if (launcher <= 1) throw std::logic_error("the launcher has ended");
    code = dist::launch(options(2, GetParam()), [launcher](const Rank& rank) {
      shift(rank.transport, 10);
      if (rank.transport.rank() == 0 && getppid() == launcher) kill(launcher, SIGTERM);
      std::this_thread::sleep_for(60s);
    });
  };
  if (is_rank()) run();
  const std::string text = said(run);
  EXPECT_EQ(code, 128 + SIGTERM);
  EXPECT_NE(text.find("killed by signal 15"), std::string::npos) << text;
}
TEST_P(TimingLaunch, RanksDieWithinTwoSecondsOfTheirLauncher) {
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
  EXPECT_THROW(static_cast<void>(dist::launch({.timeout = 2'147'483'648ms}, body)),
               halfstep::OptionError);
  for (const auto kind : {TransportKind::threads, TransportKind::shm, TransportKind::pipe}) {
    EXPECT_THROW(static_cast<void>(dist::launch({.transport = kind, .arena_bytes = 100}, body)),
                 halfstep::OptionError);
  }
  for (const auto kind : {TransportKind::threads, TransportKind::shm}) {
    EXPECT_THROW(
        static_cast<void>(dist::launch({.ranks = 2, .transport = kind, .arena_bytes = 100}, body)),
        halfstep::OptionError);
  }
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
}  // namespace
