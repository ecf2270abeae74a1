// SPDX-License-Identifier: MIT
#include <halfstep/dist/collective/gather.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>

#include "dist/ranks.hpp"
#include "kernels/fold_cases.hpp"

namespace {
using namespace fold_cases;
namespace dist = halfstep::dist;
using dist::Group;
using ranks::Over;

/// Counts per rank that are uneven and partly zero.
std::vector<std::int64_t> counts_of(int n, int kind) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < n; ++r) {
    const std::int64_t kinds[]{0, 1, 1000, r % 3 == 1 ? 0 : 17 * r + 3, r == n - 1 ? 70'001 : 0};
    counts.push_back(kinds[kind]);
  }
  return counts;
}
constexpr int kinds = 5;

class Gather : public testing::TestWithParam<Over> {};
INSTANTIATE_TEST_SUITE_P(Transport, Gather, testing::ValuesIn(ranks::all), [](const auto& made) {
  return std::string(ranks::to_string(made.param));
});

TEST_P(Gather, AllGatherPutsUnevenAndEmptyPartsInOrderOnEveryRank) {
  for (int n = 1; n <= 8; ++n) {
    ranks::run(n, GetParam(), [&](Group& group) {
      for (int kind = 0; kind < kinds; ++kind) {
        const auto counts = counts_of(n, kind);
        std::vector<std::vector<std::int32_t>> in;
        std::vector<std::int32_t> expected;
        for (int r = 0; r < n; ++r) {
          auto& one =
              in.emplace_back(static_cast<std::size_t>(counts[static_cast<std::size_t>(r)]));
          std::iota(one.begin(), one.end(), 100'000 * r);
          expected.insert(expected.end(), one.begin(), one.end());
        }
        ranks::Buffer<std::int32_t> mine(group, GetParam(),
                                         in[static_cast<std::size_t>(group.rank())]);
        std::vector<std::int32_t> out(expected.size());
        dist::all_gather(group, mine.read(), out, counts);
        EXPECT_EQ(out, expected) << n << " ranks, kind " << kind;
      }
    });
  }
}
TEST_P(Gather, AllGatherWorksInPlace) {
  ranks::run(3, GetParam(), [&](Group& group) {
    const std::vector<std::int64_t> counts{3, 0, 5};
    std::vector<float> values(8, -1.0F);
    const std::size_t begin = group.rank() == 0 ? 0 : 3,
                      length =
                          static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]);
    for (std::size_t i = begin; i < begin + length; ++i)
      values[i] = static_cast<float>(i);
    ranks::Buffer<float> data(group, GetParam(), values);
    dist::all_gather<float>(group, data.read().subspan(begin, length), data.span(), counts);
    EXPECT_EQ(data.copy(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  });
}

TEST_P(Gather, ReduceScatterGivesEachRankItsPartOfTheAllReduce) {
  for (int n = 1; n <= 8; ++n) {
    ranks::run(
        n, GetParam(),
        [&](Group& group) {
          for (int kind = 0; kind < kinds; ++kind) {
            for (const Reduction reduction : reductions) {
              const auto counts = counts_of(n, kind);
              const auto rank = static_cast<std::size_t>(group.rank());
              const std::int64_t sum =
                  std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
              const auto before =
                  std::accumulate(counts.begin(), counts.begin() + group.rank(), std::int64_t{0});
              const auto mine = order_sensitive<bf16>(group.rank(), sum, reduction);
              ranks::Buffer<bf16> in(group, GetParam(), mine), whole(group, GetParam(), mine);
              std::vector<bf16> out(static_cast<std::size_t>(counts[rank]));
              dist::reduce_scatter(group, in.read(), out, counts, reduction);
              dist::all_reduce(group, whole.span(), reduction);
              const auto all = whole.copy();
              EXPECT_TRUE(
                  same_bits(out, {all.begin() + before, all.begin() + before + counts[rank]}))
                  << n << " ranks, kind " << kind << ", "
                  << halfstep::kernels::to_string(reduction);
              EXPECT_TRUE(same_bits(in.copy(), mine)) << "the input changed";
            }
          }
        },
        {.arena_bytes = std::int64_t{32} << 20});
  }
}

TEST_P(Gather, BroadcastGivesAllWhatTheRootHasAndLeavesItsOwn) {
  for (int n = 1; n <= 8; ++n) {
    ranks::run(n, GetParam(),
               [&](Group& group) {
                 for (int root = 0; root < n; ++root) {
                   for (const std::int64_t count : {0, 1, 1000, 100'003}) {
                     const auto value = [&](int rank) {
                       return std::vector<std::int32_t>(static_cast<std::size_t>(count),
                                                        10 * rank + root);
                     };
                     ranks::Buffer<std::int32_t> data(group, GetParam(), value(group.rank()));
                     dist::broadcast(group, data.span(), root);
                     EXPECT_EQ(data.copy(), value(root));
                   }
                 }
               },
               {.arena_bytes = std::int64_t{32} << 20});
  }
}

TEST_P(Gather, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> come{0};
  ranks::run(4, GetParam(), [&](Group& group) {
    for (int round = 1; round <= 200; ++round) {
      ++come;
      dist::barrier(group);
      EXPECT_GE(come, 4 * round);
      dist::barrier(group);
    }
  });
}

TEST(GatherBytes, AreTheClosedForms) {
  const std::vector<std::int64_t> counts{3, 0, 5, 1024};
  const std::int64_t sum = 3 + 0 + 5 + 1024;
  ranks::run(4, Over::sockets, [&](Group& group) {
    const auto own = static_cast<std::uint64_t>(counts[static_cast<std::size_t>(group.rank())]);
    auto since = [&, last = std::uint64_t{0}]() mutable {
      const std::uint64_t before = std::exchange(last, group.traffic().bytes_sent);
      return last - before;
    };
    std::vector<double> part(own), whole(static_cast<std::size_t>(sum));
    dist::all_gather<double>(group, part, whole, counts);
    EXPECT_EQ(since(), 3 * own * 8);
    dist::reduce_scatter<double>(group, whole, part, counts);
    EXPECT_EQ(since(), (static_cast<std::uint64_t>(sum) - own) * 8);
    dist::broadcast(group, std::span(whole), 2);
    EXPECT_EQ(since(), group.rank() == 2 ? 3U * static_cast<std::uint64_t>(sum) * 8 : 0U);
    dist::barrier(group);
    EXPECT_EQ(since(), 0U);
  });
  ranks::run(4, Over::arena, [&](Group& group) {
    const auto own = static_cast<std::uint64_t>(counts[static_cast<std::size_t>(group.rank())]);
    ranks::Buffer<double> part(group, Over::arena, std::vector<double>(own));
    ranks::Buffer<double> whole(group, Over::arena,
                                std::vector<double>(static_cast<std::size_t>(sum)));
    dist::all_gather<double>(group, part.read(), whole.span(), counts);
    EXPECT_EQ(group.traffic().bytes_read, static_cast<std::uint64_t>(sum) * 8);
    dist::reduce_scatter<double>(group, whole.read(), part.span(), counts);
    EXPECT_EQ(group.traffic().bytes_read, static_cast<std::uint64_t>(sum) * 8 + 4 * own * 8);
    EXPECT_EQ(group.traffic().bytes_sent, 0U);
  });
}

TEST(GatherErrors, CountsThatDoNotFitAreNamed) {
  ranks::run(2, Over::heap, [&](Group& group) {
    std::vector<float> in(4), out(8);
    const std::vector<std::int64_t> few{4}, wrong{4, 5}, negative{-1, 9};
    EXPECT_THROW(dist::all_gather<float>(group, in, out, few), halfstep::ShapeError);
    EXPECT_THROW(dist::all_gather<float>(group, in, out, wrong), halfstep::ShapeError);
    EXPECT_THROW(dist::reduce_scatter<float>(group, out, in, negative), halfstep::ShapeError);
    EXPECT_THROW(dist::broadcast(group, std::span(in), 2), halfstep::OptionError);
    EXPECT_THROW(dist::broadcast(group, std::span(in), -1), halfstep::OptionError);
  });
}
TEST(GatherErrors, OtherCountsPerRankWithOneSumAreAMismatch) {
  std::atomic<int> named{0};
  ranks::run(2, Over::heap, [&](Group& group) {
    const std::vector<std::int64_t> counts =
        group.rank() == 0 ? std::vector<std::int64_t>{4, 4} : std::vector<std::int64_t>{5, 3};
    std::vector<float> in(static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())])),
        out(8);
    try {
      dist::all_gather<float>(group, in, out, counts);
    } catch (const halfstep::MismatchError& error) {
      named += std::string(error.what()).find("other counts per rank") != std::string::npos ? 1 : 0;
    }
  });
  EXPECT_EQ(named, 2);
}
TEST(GatherErrors, ARankThatThrowsIsNamedByTheOthersAndItsErrorComesOut) {
  std::atomic<int> named{0};
  try {
    ranks::run(4, Over::heap, [&](Group& group) {
      dist::barrier(group);
      if (group.rank() == 2) throw std::runtime_error("no more data");
      try {
        dist::barrier(group);
      } catch (const halfstep::PeerError& error) {
        named +=
            std::string(error.what()).find("rank 2 of 4 failed: no more data") != std::string::npos
                ? 1
                : 0;
        throw;
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no more data");
  }
  EXPECT_EQ(named, 3);
}
TEST_P(Gather, ARankThatDoesNotComeIsNamedAfterTheTimeout) {
  std::atomic<bool> named{false};
  ranks::run(2, GetParam(),
             [&](Group& group) {
               if (group.rank() == 1) {
                 while (!named)
                   std::this_thread::yield();
                 return;
               }
               try {
                 dist::barrier(group);
               } catch (const halfstep::TimeoutError& error) {
                 const std::string text = error.what();
                 EXPECT_NE(text.find("rank 0 of 2 waited 100 ms in barrier 1"), std::string::npos)
                     << text;
                 EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
               }
               named = true;
             },
             {.timeout = std::chrono::milliseconds(100)});
  EXPECT_TRUE(named);
}
TEST_P(Gather, AStartedAllGatherWaitsForNobodyAndIsCompleteWhenTheNextOperationBegins) {
  std::atomic<int> started{0};
  ranks::run(3, GetParam(), [&](Group& group) {
    const std::vector<std::int64_t> counts{3, 0, 20'000};
    std::vector<float> all(20'003, -1.0F);
    for (int round = 1; round <= 3; ++round) {
      const auto length = static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]);
      const std::vector<float> mine(length, static_cast<float>(round * 10 + group.rank()));
      // One after the other: rank 0 has started, and sent what it can, before rank 1 begins.
      while (started != 3 * (round - 1) + group.rank())
        std::this_thread::yield();
      dist::start_all_gather<float>(group, mine, all, counts);
      ++started;
      if (round == 2) {
        dist::barrier(group);
      } else {
        group.transport().advance();
        group.transport().finish();
      }
      group.transport().finish();  // of nothing
      std::vector<float> expected(3, static_cast<float>(round * 10));
      expected.resize(all.size(), static_cast<float>(round * 10 + 2));
      EXPECT_EQ(all, expected) << round;
    }
    std::vector<float> sums(5, 1.0F);  // slots and mailboxes are in step still
    dist::all_reduce(group, std::span(sums));
    EXPECT_EQ(sums, std::vector<float>(5, 3.0F));
  });
}
TEST_P(Gather, AStartedAllGatherOfOtherCountsIsAMismatchOnTheRankThatReceives) {
  std::atomic<int> named{0};
  ranks::run(2, GetParam(),
             [&](Group& group) {
               const std::vector<std::int64_t> counts{4, group.rank() == 0 ? 4 : 5};
               const std::vector<float> mine(group.rank() == 0 ? 4 : 5);
               std::vector<float> all(mine.size() + 4);
               try {
                 dist::start_all_gather<float>(group, mine, all, counts);
                 group.transport().finish();
               } catch (const halfstep::MismatchError& error) {
                 named += std::string(error.what()).find("all_gather") != std::string::npos ? 1 : 0;
               } catch (const halfstep::Error&) {  // the other has ended
               }
             },
             {.timeout = std::chrono::milliseconds(500)});
  EXPECT_GT(named, 0);
}
TEST_P(Gather, ManyRanksOnFewCoresStillMeet) {
  const auto start = std::chrono::steady_clock::now();
  ranks::run(8, GetParam(), [&](Group& group) {
    for (int i = 0; i < 200; ++i)
      dist::barrier(group);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Group, CountsWhatEachCollectiveMoves) {
  ranks::run(2, Over::sockets, [&](dist::Group& group) {
    std::vector<float> floats(10);
    std::vector<halfstep::bf16> halves(6);
    const std::vector<std::int64_t> counts{4, 2};
    dist::all_reduce(group, std::span(floats));
    dist::all_reduce(group, std::span(floats));
    const auto mine = std::span<const halfstep::bf16>(halves).subspan(
        0, static_cast<std::size_t>(counts[static_cast<std::size_t>(group.rank())]));
    std::vector<halfstep::bf16> all(6);
    dist::all_gather<halfstep::bf16>(group, mine, all, counts);
    const auto moved = group.collectives();
    ASSERT_EQ(moved.size(), 2U);
    EXPECT_EQ(moved[0].name(), "all_reduce F32");
    EXPECT_EQ(moved[0].calls, 2);
    EXPECT_EQ(moved[0].traffic.bytes_sent, 80U);
    EXPECT_EQ(moved[1].name(), "all_gather BF16");
    EXPECT_EQ(moved[1].calls, 1);
    EXPECT_EQ(moved[1].traffic.bytes_sent, group.rank() == 0 ? 8U : 4U);
    EXPECT_EQ(moved[0].traffic.bytes_sent + moved[1].traffic.bytes_sent,
              group.traffic().bytes_sent);
  });
}

}  // namespace
