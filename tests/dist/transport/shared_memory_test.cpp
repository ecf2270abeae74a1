// SPDX-License-Identifier: MIT
#include <halfstep/dist/transport/shared_memory.hpp>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/threads.hpp>

#include "dist/ranks.hpp"

namespace {
namespace dist = halfstep::dist;
using dist::Segment;

TEST(Segment, IsSealedAndHasNoName) {
  const Segment segment = Segment::create(2, 4096);
  EXPECT_NE(ftruncate(segment.file(), 100), 0);
  EXPECT_NE(ftruncate(segment.file(), 1 << 30), 0);
  EXPECT_EQ(fcntl(segment.file(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(fcntl(segment.file(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  std::array<char, 256> link{};
  const std::string path = "/proc/self/fd/" + std::to_string(segment.file());
  ASSERT_GT(readlink(path.c_str(), link.data(), link.size() - 1), 0);
  EXPECT_STREQ(link.data(), "/memfd:halfstep (deleted)");
}
TEST(Segment, IsTheSameMemoryWhereItIsAttached) {
  const Segment one = Segment::create(3, 4096);
  const Segment two = Segment::attach(dup(one.file()));
  EXPECT_EQ(two.ranks(), 3);
  EXPECT_NE(one.bytes().data(), two.bytes().data());
  for (int rank = 0; rank < 3; ++rank) {
    one.arena(rank)[17] = static_cast<std::byte>(rank + 1);
    EXPECT_EQ(two.arena(rank)[17], static_cast<std::byte>(rank + 1));
  }
  EXPECT_EQ(two.failed_rank(), -1);
  one.fail(1, "failed: first");
  one.fail(2, "failed: second");
  EXPECT_EQ(two.failed_rank(), 1);
  EXPECT_EQ(two.failure(), "failed: first");
}
TEST(Segment, RefusesWhatIsNone) {
  EXPECT_THROW(static_cast<void>(Segment::attach(-1)), halfstep::FileError);
  const int file = memfd_create("other", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 1 << 20), 0);
  EXPECT_THROW(static_cast<void>(Segment::attach(file)), halfstep::FileError);
  EXPECT_THROW(static_cast<void>(Segment::create(65, 0)), halfstep::OptionError);
  EXPECT_THROW(static_cast<void>(Segment::create(2, 64)), halfstep::OptionError);
}
// Of a few hundred kilobytes on a system that is said to have less: one that is not refused harms
// nobody.
TEST(Segment, ThatDoesNotFitIsRefusedWhereverItWouldLie) {
  const auto bytes = std::ssize(Segment::in_process(2, 4096).bytes());
  for (const auto make : {Segment::create, Segment::in_process}) {
    EXPECT_EQ(std::ssize(make(2, 4096, 0, 2 * bytes).bytes()), bytes);
    EXPECT_THROW(static_cast<void>(make(2, 4096, 0, std::nullopt)), halfstep::MemoryError);
    try {
      static_cast<void>(make(2, 4096, 0, bytes));
      ADD_FAILURE() << "taken";
    } catch (const halfstep::MemoryError& error) {
      EXPECT_NE(std::string(error.what())
                    .find("2 ranks with arenas of 4096 bytes (LaunchOptions::arena_bytes)"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(SharedMemory, AllocatesLinesOfItsOwnUntilItsArenaIsFull) {
  Segment segment = Segment::in_process(2, 1024);
  dist::SharedMemory memory(segment, 1, "threads");
  const auto one = memory.allocate<float>(3);
  const auto two = memory.allocate<std::uint8_t>(1);
  EXPECT_EQ(one.size(), 3U);
  EXPECT_EQ(reinterpret_cast<std::byte*>(two.data()) - reinterpret_cast<std::byte*>(one.data()),
            128);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(one.data()) % 128, 0U);
  EXPECT_EQ(static_cast<void*>(one.data()), segment.arena(1).data());
  EXPECT_THROW(static_cast<void>(memory.allocate<double>(97)), halfstep::MemoryError);
  EXPECT_EQ(memory.allocate<double>(96).size(), 96U);
}
TEST(SharedMemory, GivesAllRanksTheSameMemoryInCommonBehindEveryArena) {
  Segment segment = Segment::in_process(2, 1024, 512);
  dist::SharedMemory one(segment, 0, "threads"), other(segment, 1, "threads");
  static_cast<void>(other.allocate<float>(256));
  for (int i = 0; i < 2; ++i) {
    const auto here = one.allocate_common<float>(33), there = other.allocate_common<float>(33);
    EXPECT_EQ(here.size(), 33U);
    EXPECT_EQ(here.data(), there.data());
    EXPECT_EQ(reinterpret_cast<std::byte*>(here.data()) - segment.arena(1).data(), 1024 + i * 256);
  }
  EXPECT_THROW(static_cast<void>(one.allocate_common<char>(1)), halfstep::MemoryError);
  EXPECT_THROW(static_cast<void>(Segment::create(2, 1024, 64)), halfstep::OptionError);
}

/// Any transport: a message larger than what it can hold on the way, both sending first.
void exchange_large(dist::Transport& transport) {
  const int peer = 1 - transport.rank();
  for (const std::size_t n : {0U, 1U, 63U, 64U, 100'000U, 3'000'001U}) {
    std::vector<unsigned char> mine(n, static_cast<unsigned char>(transport.rank() + 1)),
        theirs(n, 0);
    const dist::Outgoing out{peer, std::as_bytes(std::span(mine))};
    const dist::Incoming in{peer, std::as_writable_bytes(std::span(theirs))};
    transport.exchange(dist::label("swap", "U8", "", n + 1, static_cast<std::int64_t>(n)),
                       {&out, 1}, {&in, 1});
    EXPECT_EQ(theirs, std::vector<unsigned char>(n, static_cast<unsigned char>(peer + 1)));
  }
}
TEST(Exchange, OfTwoRanksThatBothSendFirstDoesNotDeadlock) {
  dist::run_threads({.ranks = 2}, exchange_large);
  ranks::run_sockets(2, exchange_large);
}
/// Everybody to everybody, with lengths that depend on both.
void exchange_all(dist::Transport& transport) {
  const int n = transport.size(), rank = transport.rank();
  const auto length = [](int from, int to) {
    return static_cast<std::size_t>(1000 * from + 10 * to);
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> sent, got;
    std::vector<dist::Outgoing> out;
    std::vector<dist::Incoming> in;
    for (int peer = 0; peer < n; ++peer) {
      sent.emplace_back(length(rank, peer), static_cast<std::byte>(rank + round));
      got.emplace_back(length(peer, rank));
    }
    for (int peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      out.push_back({peer, sent[static_cast<std::size_t>(peer)]});
      in.push_back({peer, got[static_cast<std::size_t>(peer)]});
    }
    transport.exchange(dist::label("all", "U8", "", static_cast<std::uint64_t>(round + 1), 1), out,
                       in);
    for (int peer = 0; peer < n; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(got[static_cast<std::size_t>(peer)],
                std::vector<std::byte>(length(peer, rank), static_cast<std::byte>(peer + round)));
    }
  }
}
TEST(Exchange, OfAllWithAllBringsEachMessageToItsPlace) {
  dist::run_threads({.ranks = 5, .wait = {.crowded = true}}, exchange_all);
  ranks::run_sockets(5, exchange_all);
}
TEST(Exchange, RefusesItselfAndTwoMessagesToOnePeer) {
  dist::run_threads({.ranks = 2}, [](dist::Transport& transport) {
    const dist::Label label = dist::label("x", "U8", "", 1, 0);
    const std::vector<dist::Outgoing> itself{{transport.rank(), {}}};
    const std::vector<dist::Outgoing> twice{{1 - transport.rank(), {}}, {1 - transport.rank(), {}}};
    EXPECT_THROW(transport.exchange(label, itself, {}), halfstep::OptionError);
    EXPECT_THROW(transport.exchange(label, twice, {}), halfstep::OptionError);
  });
}

}  // namespace
