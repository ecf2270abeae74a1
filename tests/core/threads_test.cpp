// SPDX-License-Identifier: MIT
#include <halfstep/core/threads.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include <sched.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/core/pool.hpp>
#include <halfstep/core/runtime.hpp>

namespace {
using namespace halfstep::core;

/// A directory as /sys/fs/cgroup has them, written for one test.
class SavedTree : public testing::Test {
 protected:
  SavedTree() {
    std::string pattern = testing::TempDir() + "halfstep_cgroup_XXXXXX";
    root = mkdtemp(pattern.data());
  }
  ~SavedTree() override { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& content) const {
    const std::filesystem::path file = root + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content << '\n';
  }
  void write_v1(const std::string& directory, const std::string& quota,
                const std::string& period = "100000") const {
    write(directory + "/cpu.cfs_quota_us", quota);
    write(directory + "/cpu.cfs_period_us", period);
  }
  std::string root;
};
using Cgroup2 = SavedTree;
using Cgroup1 = SavedTree;

TEST_F(Cgroup2, MaxIsNoLimit) {
  write("/a/cpu.max", "max 100000");
  EXPECT_EQ(cgroup_cpus(root, "0::/a\n"), std::nullopt);
}
TEST_F(Cgroup2, AQuotaIsRoundedDownToWholeCpus) {
  const struct {
    const char* text;
    int cpus;
  } cases[] = {{"200000 100000", 2}, {"250000 100000", 2}, {"299999 100000", 2},
               {"50000 100000", 0},  {"10000 5000", 2},    {"12800000 100000", 128}};
  for (const auto& [text, cpus] : cases) {
    write("/a/cpu.max", text);
    EXPECT_EQ(cgroup_cpus(root, "0::/a\n"), cpus) << text;
  }
}
TEST_F(Cgroup2, TheSmallestQuotaOnTheWayUpCounts) {
  write("/a/cpu.max", "300000 100000");
  write("/a/b/cpu.max", "max 100000");
  write("/a/b/c/cpu.max", "800000 100000");
  EXPECT_EQ(cgroup_cpus(root, "0::/a/b/c\n"), 3);
  write("/a/b/c/cpu.max", "200000 100000");
  EXPECT_EQ(cgroup_cpus(root, "0::/a/b/c\n"), 2);
  EXPECT_EQ(cgroup_cpus(root, "0::/a/b\n"), 3);
  EXPECT_EQ(cgroup_cpus(root, "0::/\n"), std::nullopt);
}
TEST_F(Cgroup2, InAContainerItsOwnGroupIsTheRootOfTheMount) {
  write("/cpu.max", "150000 100000");
  EXPECT_EQ(cgroup_cpus(root, "0::/\n"), 1);
  EXPECT_EQ(cgroup_cpus(root, "0::/kubepods/pod12/abc\n"), 1);  // a path of the host
}
TEST_F(Cgroup2, FilesThatMakeNoSenseAreNoLimit) {
  for (const char* text : {"", "x", "100000", "100000 0", "-1 100000", "100000 x"}) {
    write("/a/cpu.max", text);
    EXPECT_EQ(cgroup_cpus(root, "0::/a\n"), std::nullopt) << text;
  }
  std::filesystem::create_directories(root + "/d/cpu.max");
  EXPECT_EQ(cgroup_cpus(root, "0::/d\n"), std::nullopt);
}
TEST_F(Cgroup1, MinusOneIsNoLimit) {
  write_v1("/cpu,cpuacct/a", "-1");
  EXPECT_EQ(cgroup_cpus(root, "4:cpu,cpuacct:/a\n"), std::nullopt);
}
TEST_F(Cgroup1, AQuotaIsFoundUnderEitherNameOfTheMount) {
  write_v1("/cpu,cpuacct/a", "350000");
  write_v1("/cpu/b", "20000", "10000");
  EXPECT_EQ(cgroup_cpus(root, "11:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n"), 3);
  EXPECT_EQ(cgroup_cpus(root, "4:cpuacct,cpu:/b\n"), 2);
  EXPECT_EQ(cgroup_cpus(root, "4:cpu:/b"), 2);
}
TEST_F(Cgroup1, OtherControllersAreNotAsked) {
  write_v1("/cpuset/a", "100000");
  write_v1("/cpuacct/a", "100000");
  EXPECT_EQ(cgroup_cpus(root, "3:cpuset:/a\n2:cpuacct:/a\n"), std::nullopt);
}
TEST_F(Cgroup1, TheSmallestQuotaOnTheWayUpCounts) {
  write_v1("/cpu", "900000");
  write_v1("/cpu/a", "200000");
  write_v1("/cpu/a/b", "-1");
  EXPECT_EQ(cgroup_cpus(root, "4:cpu:/a/b\n"), 2);
  EXPECT_EQ(cgroup_cpus(root, "4:cpu:/\n"), 9);
}
TEST_F(Cgroup1, BesideVersion2TheSmallerOfBothCounts) {
  write_v1("/cpu/a", "400000");
  write("/unified/a/cpu.max", "300000 100000");
  EXPECT_EQ(cgroup_cpus(root, "4:cpu:/a\n0::/a\n"), 3);
}
TEST_F(Cgroup1, NoMembershipAndNonsenseAreNoLimit) {
  for (const char* text : {"", "\n\n", "nonsense", "1:2", ":::", "4:cpu:"}) {
    EXPECT_EQ(cgroup_cpus(root, text), std::nullopt) << text;
  }
}

TEST(AvailableThreads, AreTheSmallerOfAffinityAndQuotaButOne) {
  EXPECT_EQ(available_threads(8, std::nullopt).threads, 8);
  EXPECT_EQ(available_threads(8, 3).threads, 3);
  EXPECT_EQ(available_threads(2, 3).threads, 2);
  EXPECT_EQ(available_threads(2, 0).threads, 1);
}
TEST(AvailableThreads, AreAtLeastOneHereAndNoMoreThanTheMask) {
  EXPECT_GE(available_threads(), 1);
  EXPECT_LE(available_threads(), affinity_cpus());
}
// What `taskset -c 0` does to a program.
TEST(AvailableThreads, AreOneOnOneCpu) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const int cpus = affinity_cpus();
  EXPECT_EQ(cpus, CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before))
    ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(affinity_cpus(), 1);
  EXPECT_EQ(available_threads(), 1);
  EXPECT_EQ(ThreadPool().size(), 1);
  const halfstep::Runtime runtime;
  EXPECT_EQ(runtime.threads(), 1);
  EXPECT_NE(runtime.describe().find("1 thread (1 by affinity"), std::string::npos)
      << runtime.describe();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(affinity_cpus(), cpus);
}
}  // namespace
