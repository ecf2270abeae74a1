// SPDX-License-Identifier: MIT
#include <halfstep/dist/collective/all_reduce.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>
#include <halfstep/dist/collective/gather.hpp>

#include "dist/ranks.hpp"
#include "kernels/fold_cases.hpp"

void all_reduce_oracle(int format, int kind, bool ring, const void* const* sources, int n,
                       void* out, std::int64_t count);

namespace {
using namespace fold_cases;
using halfstep::dist::Algorithm;
using halfstep::dist::Group;
using halfstep::dist::slice_of;
using ranks::Over;

const std::vector<std::int64_t> odd_sizes{0, 1, 2, 3, 63, 64, 65, 1000, 4097, 20'011};

std::vector<Algorithm> algorithms(Over over) {
  if (over == Over::sockets) return {Algorithm::direct, Algorithm::ring};
  return {Algorithm::push, Algorithm::direct, Algorithm::ring};
}

template <class E>
std::vector<E> oracle(Reduction reduction, bool ring, const std::vector<std::vector<E>>& in) {
  std::vector<const void*> sources;
  for (const auto& one : in)
    sources.push_back(one.data());
  std::vector<E> out(in[0].size());
  all_reduce_oracle(format_number<E>, static_cast<int>(reduction), ring, sources.data(),
                    static_cast<int>(in.size()), out.data(), std::ssize(out));
  return out;
}

/// Every size, reduction and algorithm of one format on n ranks, against the serial oracle. Returns
/// how many results were compared.
template <class E, class Make>
std::int64_t check(int n, Over over, Make make) {
  struct Case {
    Reduction reduction;
    std::vector<std::vector<E>> in;  // of each rank
    std::vector<E> tree, ring;
  };
  std::vector<Case> cases;
  for (const Reduction reduction : reductions) {
    for (const std::int64_t count : odd_sizes) {
      Case& one = cases.emplace_back();
      one.reduction = reduction;
      for (int rank = 0; rank < n; ++rank)
        one.in.push_back(make(rank, count, reduction));
      one.tree = oracle(reduction, false, one.in);
      one.ring = oracle(reduction, true, one.in);
    }
  }
  std::atomic<std::int64_t> compared{0};
  ranks::run(n, over,
             [&](Group& group) {
               for (const Case& one : cases) {
                 const std::vector<E>& mine = one.in[static_cast<std::size_t>(group.rank())];
                 for (const Algorithm algorithm : algorithms(over)) {
                   ranks::Buffer<E> buffer(group, over, mine);
                   halfstep::dist::all_reduce(group, buffer.span(), one.reduction, algorithm);
                   EXPECT_TRUE(
                       same_bits(buffer.copy(), algorithm == Algorithm::ring ? one.ring : one.tree))
                       << halfstep::kernels::to_string(one.reduction) << " of " << mine.size()
                       << " elements of format " << format_number<E> << " on " << n
                       << " ranks over " << ranks::to_string(over) << " by algorithm "
                       << static_cast<int>(algorithm);
                   ++compared;
                 }
               }
             },
             {.arena_bytes = std::int64_t{64} << 20});
  return compared;
}

class AllReduce : public testing::TestWithParam<Over> {};
INSTANTIATE_TEST_SUITE_P(Transport, AllReduce, testing::ValuesIn(ranks::all), [](const auto& made) {
  return std::string(ranks::to_string(made.param));
});

TEST_P(AllReduce, IsTheSerialTreeOrTheRingsRotationBitForBit) {
  std::int64_t compared = 0;
  for (int n = 1; n <= 8; ++n) {
    compared += check<float>(n, GetParam(), order_sensitive<float>);
    compared += check<bf16>(n, GetParam(), order_sensitive<bf16>);
    compared += check<fp16>(n, GetParam(), order_sensitive<fp16>);
    compared += check<double>(n, GetParam(), order_sensitive<double>);
  }
  const auto per_rank = static_cast<std::int64_t>(4 * reductions.size() * odd_sizes.size() *
                                                  algorithms(GetParam()).size());
  std::printf("%ld results, 0 mismatches, over %s\n", static_cast<long>(compared),
              std::string(ranks::to_string(GetParam())).c_str());
  EXPECT_EQ(compared, per_rank * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8));
}

TEST_P(AllReduce, OfExactDataIsExactByEveryAlgorithm) {
  const auto exact_check = [&]<class E>(E, int n) { return check<E>(n, GetParam(), exact<E>); };
  std::int64_t compared = 0;
  for (const int n : {2, 5, 8}) {
    compared += exact_check(0.0F, n) + exact_check(bf16(), n) + exact_check(fp16(), n) +
                exact_check(0.0, n);
  }
  EXPECT_GT(compared, 0);
  // That the sums are exact in any order: the two orders of the oracle agree on them.
  std::vector<std::vector<bf16>> in;
  for (int rank = 0; rank < 8; ++rank)
    in.push_back(exact<bf16>(rank, 1000, Reduction::sum));
  EXPECT_TRUE(same_bits(oracle(Reduction::sum, false, in), oracle(Reduction::sum, true, in)));
}

TEST_P(AllReduce, OnTwoRanksTheRingGivesTheBitsOfTheOthersAndOnThreeItDoesNot) {
  for (const int n : {2, 3}) {
    ranks::run(n, GetParam(), [&](Group& group) {
      const auto mine = order_sensitive<float>(group.rank(), 5000, Reduction::sum);
      ranks::Buffer<float> ring(group, GetParam(), mine), direct(group, GetParam(), mine);
      halfstep::dist::all_reduce(group, ring.span(), Reduction::sum, Algorithm::ring);
      halfstep::dist::all_reduce(group, direct.span(), Reduction::sum, Algorithm::direct);
      EXPECT_EQ(same_bits(ring.copy(), direct.copy()), n == 2);
    });
  }
}

TEST_P(AllReduce, OfTwoArraysAtOnceOrOneAfterTheOtherIsTheSame) {
  ranks::run(3, GetParam(), [&](Group& group) {
    const auto mine = order_sensitive<float>(group.rank(), 30'000, Reduction::sum);
    ranks::Buffer<float> whole(group, GetParam(), mine), cut(group, GetParam(), mine);
    halfstep::dist::all_reduce(group, whole.span());
    for (const std::size_t at : {0U, 1U, 70U, 1000U, 20'000U}) {
      const std::size_t next = at == 0      ? 1
                               : at == 1    ? 70
                               : at == 70   ? 1000
                               : at == 1000 ? 20'000
                                            : 30'000;
      halfstep::dist::all_reduce(group, cut.span().subspan(at, next - at));
    }
    EXPECT_TRUE(same_bits(whole.copy(), cut.copy()));
  });
}

TEST_P(AllReduce, OfTheFirstThousandDoesNotDependOnHowManyFollow) {
  ranks::run(4, GetParam(), [&](Group& group) {
    const auto mine = order_sensitive<bf16>(group.rank(), 200'000, Reduction::sum);
    ranks::Buffer<bf16> whole(group, GetParam(), mine);
    halfstep::dist::all_reduce(group, whole.span());
    // Around each threshold: the inline area, the chunk of a stage, the message.
    for (const std::int64_t n : {511L, 513L, 1000L, 4096L, 32'767L, 32'769L, 70'000L, 131'073L}) {
      ranks::Buffer<bf16> part(group, GetParam(), {mine.begin(), mine.begin() + n});
      halfstep::dist::all_reduce(group, part.span());
      const auto expected = whole.copy();
      EXPECT_TRUE(same_bits(part.copy(), {expected.begin(), expected.begin() + n})) << n;
    }
  });
}

TEST_P(AllReduce, OfDataOffItsAlignmentByOneElementIsTheSame) {
  ranks::run(3, GetParam(), [&](Group& group) {
    const auto mine = order_sensitive<fp16>(group.rank(), 9001, Reduction::sum);
    ranks::Buffer<fp16> aligned(group, GetParam(), mine),
        shifted(group, GetParam(), mine, group.rank());
    halfstep::dist::all_reduce(group, aligned.span());
    halfstep::dist::all_reduce(group, shifted.span());
    EXPECT_TRUE(same_bits(aligned.copy(), shifted.copy()));
  });
}

TEST_P(AllReduce, OfConstantsIsConstantAndTheSameOnEveryRank) {
  ranks::run(4, GetParam(), [&](Group& group) {
    constexpr std::array<float, 4> values{1e8F, 1.0F, -1e8F, 1.0F};
    ranks::Buffer<float> data(
        group, GetParam(),
        std::vector<float>(10'000, values[static_cast<std::size_t>(group.rank())]));
    halfstep::dist::all_reduce(group, data.span());
    EXPECT_TRUE(same_bits(data.copy(), std::vector<float>(10'000, 0.0F)));
  });
}

TEST_P(AllReduce, KnowsANanWhateverRankHasIt) {
  for (int bad = 0; bad < 4; ++bad) {
    ranks::run(4, GetParam(), [&](Group& group) {
      for (const Algorithm algorithm : algorithms(GetParam())) {
        for (const Reduction reduction : reductions) {
          std::vector<float> mine(300, static_cast<float>(group.rank() + 1));
          if (group.rank() == bad) mine[200] = std::numeric_limits<float>::quiet_NaN();
          ranks::Buffer<float> data(group, GetParam(), mine);
          halfstep::dist::all_reduce(group, data.span(), reduction, algorithm);
          EXPECT_TRUE(std::isnan(data.span()[200]));
          EXPECT_FALSE(std::isnan(data.span()[201]));
        }
      }
    });
  }
}

TEST(AllReduceBytes, InMessagesAreTheClosedForm) {
  for (const int n : {1, 2, 3, 4, 8}) {
    for (const std::int64_t count : odd_sizes) {
      for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
        std::atomic<std::uint64_t> sent{0}, received{0};
        ranks::run(n, Over::sockets, [&](Group& group) {
          std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
          halfstep::dist::all_reduce(group, std::span(data), Reduction::sum, algorithm);
          sent += group.traffic().bytes_sent;
          received += group.traffic().bytes_received;
          const auto own = slice_of(count, n, group.rank()),
                     next = slice_of(count, n, (group.rank() + 1) % n);
          const auto bytes = [](std::int64_t elements) {
            return static_cast<std::uint64_t>(elements) * sizeof(float);
          };
          const std::int64_t slice = own.end - own.begin, others = count - slice;
          // Direct: the slices of the others, and its own to each. The ring: in the first round all
          // slices but its own, in the second all but the next rank's.
          const std::int64_t elements = algorithm == Algorithm::direct
                                            ? others + (n - 1) * slice
                                            : others + count - (next.end - next.begin);
          EXPECT_EQ(group.traffic().bytes_sent, n == 1 ? 0 : bytes(elements)) << n << ' ' << count;
        });
        EXPECT_EQ(sent, static_cast<std::uint64_t>(2 * (n - 1) * count) * sizeof(float));
        EXPECT_EQ(received, sent);
      }
    }
  }
}
TEST(AllReduceBytes, OfSixteenBitsTravelAsFloatInTheRingsFirstRoundOnly) {
  std::atomic<std::uint64_t> direct{0}, ring{0};
  for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
    ranks::run(4, Over::sockets, [&](Group& group) {
      std::vector<bf16> data(4096);
      halfstep::dist::all_reduce(group, std::span(data), Reduction::sum, algorithm);
      (algorithm == Algorithm::direct ? direct : ring) += group.traffic().bytes_sent;
    });
  }
  EXPECT_EQ(direct, 3U * 4096U * (2 + 2));
  EXPECT_EQ(ring, 3U * 4096U * (4 + 2));
}
TEST(AllReduceBytes, OfAPushInSharedMemoryAreTwiceTheBuffersAndNothingIsSentOrStaged) {
  for (const int n : {2, 3, 4, 8}) {
    std::atomic<std::uint64_t> read{0}, written{0};
    constexpr std::int64_t count = 50'001;
    ranks::run(n, Over::arena, [&](Group& group) {
      ranks::Buffer<float> data(group, Over::arena, std::vector<float>(count, 1.0F));
      halfstep::dist::all_reduce(group, data.span());
      const auto own = slice_of(count, n, group.rank());
      const auto slice = static_cast<std::uint64_t>(own.end - own.begin) * sizeof(float);
      EXPECT_EQ(group.traffic().bytes_read, slice * static_cast<std::uint64_t>(n));
      read += group.traffic().bytes_read;
      written += group.traffic().bytes_written;
      EXPECT_EQ(group.traffic().bytes_sent + group.traffic().bytes_staged, 0U);
    });
    EXPECT_EQ(read + written, static_cast<std::uint64_t>(2 * n * count) * sizeof(float));
  }
}
TEST(AllReduceBytes, OfPrivateBuffersAreStaged) {
  ranks::run(2, Over::heap, [&](Group& group) {
    std::vector<float> data(50'000, 1.0F);
    halfstep::dist::all_reduce(group, std::span(data));
    EXPECT_EQ(group.traffic().bytes_staged, 2U * 50'000U * sizeof(float));
    EXPECT_EQ(data[49'999], 2.0F);
  });
}
TEST(AllReduceBytes, OneRankWithAPrivateBufferMakesAllStage) {
  ranks::run(3, Over::arena, [&](Group& group) {
    const auto mine = order_sensitive<float>(group.rank(), 40'000, Reduction::sum);
    ranks::Buffer<float> same(group, Over::arena, mine);
    ranks::Buffer<float> mixed(group, group.rank() == 1 ? Over::heap : Over::arena, mine);
    halfstep::dist::all_reduce(group, same.span());
    EXPECT_EQ(group.traffic().bytes_staged, 0U);
    halfstep::dist::all_reduce(group, mixed.span());
    EXPECT_EQ(group.traffic().bytes_staged, 2U * 40'000U * sizeof(float));
    EXPECT_TRUE(same_bits(same.copy(), mixed.copy()));
  });
}

/// What a call on two ranks that do not agree says, on both.
template <class Body>
void expect_mismatch(Over over, Body body, const std::vector<std::string>& words) {
  std::mutex lock;
  std::vector<std::string> said;
  ranks::run(2, over, [&](Group& group) {
    try {
      body(group);
      ADD_FAILURE() << "rank " << group.rank() << " went on";
    } catch (const halfstep::MismatchError& error) {
      const std::lock_guard guard(lock);
      said.emplace_back(error.what());
    } catch (const halfstep::PeerError&) {
      // Over sockets the other may have given up before its bytes came.
      const std::lock_guard guard(lock);
      said.emplace_back("");
    }
  });
  ASSERT_EQ(said.size(), 2U);
  int complete = 0;
  for (const std::string& one : said) {
    bool all = true;
    for (const std::string& word : words)
      all = all && one.find(word) != std::string::npos;
    complete += all ? 1 : 0;
  }
  EXPECT_GE(complete, over == Over::sockets ? 1 : 2) << said[0] << '\n' << said[1];
}
TEST_P(AllReduce, WithOtherCountsFailsOnBothRanksNamingBoth) {
  expect_mismatch(GetParam(),
                  [&](Group& group) {
                    std::vector<float> data(group.rank() == 0 ? 1024 : 512);
                    halfstep::dist::all_reduce(group, std::span(data));
                  },
                  {"sum of 1024 F32", "sum of 512 F32", "rank 0", "rank 1"});
}
TEST_P(AllReduce, WithAnotherReductionOrFormatFails) {
  expect_mismatch(GetParam(),
                  [&](Group& group) {
                    std::vector<float> data(100);
                    halfstep::dist::all_reduce(group, std::span(data),
                                               group.rank() == 0 ? Reduction::sum : Reduction::max);
                  },
                  {"sum of 100 F32", "max of 100 F32"});
  expect_mismatch(GetParam(),
                  [&](Group& group) {
                    std::vector<bf16> bf(64);
                    std::vector<fp16> fp(64);
                    if (group.rank() == 0) {
                      halfstep::dist::all_reduce(group, std::span(bf));
                    } else {
                      halfstep::dist::all_reduce(group, std::span(fp));
                    }
                  },
                  {"64 BF16", "64 F16"});
}
TEST_P(AllReduce, WhileTheOtherIsInABarrierFails) {
  expect_mismatch(GetParam(),
                  [&](Group& group) {
                    std::vector<float> data(100);
                    if (group.rank() == 0) {
                      halfstep::dist::all_reduce(group, std::span(data));
                    } else {
                      halfstep::dist::barrier(group);
                    }
                  },
                  {"all_reduce 1 (sum of 100 F32)", "barrier 1"});
}

TEST(AllReduceOptions, PushNeedsSharedMemory) {
  ranks::run(2, Over::sockets, [&](Group& group) {
    std::vector<float> data(10);
    EXPECT_THROW(
        halfstep::dist::all_reduce(group, std::span(data), Reduction::sum, Algorithm::push),
        halfstep::OptionError);
  });
}
TEST(AllReduceOptions, AreNamed) {
  EXPECT_EQ(halfstep::dist::algorithm("ring"), Algorithm::ring);
  EXPECT_THROW(static_cast<void>(halfstep::dist::algorithm("tree")), halfstep::OptionError);
}
TEST_P(AllReduce, OfNothingIsNothing) {
  ranks::run(2, GetParam(), [](Group& group) {
    halfstep::dist::all_reduce(group, std::span<float>());
    std::array<float, 1> one{1.0F};
    halfstep::dist::all_reduce(group, std::span<float>(one));
    EXPECT_EQ(one[0], 2.0F);
  });
}
// Operations of a number n and n + 2 share a place in the segment, so groups may not count alone.
TEST_P(AllReduce, OfGroupsThatShareATransportInTurnsIsOfEach) {
  ranks::run(2, GetParam(), [](Group& first) {
    halfstep::Runtime runtime({.threads = 1});
    Group second(first.transport(), runtime);
    const float mine = static_cast<float>(first.rank() + 1);
    for (int round = 0; round < 2000; ++round) {
      const float scale = static_cast<float>(round);
      std::array<float, 3> small{mine, scale * mine, 1.0F};
      halfstep::dist::all_reduce(first, std::span<float>(small));
      std::array<float, 3> other{-mine, scale, 4.0F};
      halfstep::dist::all_reduce(second, std::span<float>(other));
      ASSERT_EQ(small, (std::array<float, 3>{3.0F, scale * 3.0F, 2.0F})) << round;
      ASSERT_EQ(other, (std::array<float, 3>{-3.0F, scale * 2.0F, 8.0F})) << round;
    }
    const Group::Operation a(first, "a", "bytes", "", 0, 0);
    EXPECT_EQ(a.label().number, 4001U);
  });
}
TEST(AllReduceOptions, TwoThreadsOfOneRankMayNotUseOneTransport) {
  ranks::run(1, Over::heap, [&](Group& group) {
    const Group::Operation open(group, "first", "bytes", "", 0, 0);
    std::vector<float> data(10);
    EXPECT_THROW(halfstep::dist::all_reduce(group, std::span(data)), halfstep::StateError);
    halfstep::Runtime runtime({.threads = 1});
    Group second(group.transport(), runtime);
    EXPECT_THROW(halfstep::dist::all_reduce(second, std::span(data)), halfstep::StateError);
  });
}

TEST(NightlyAllReduce, AMillionTinyOnesDoNotDrift) {
  ranks::run(2, Over::heap, [&](Group& group) {
    for (int i = 0; i < 1'000'000; ++i) {
      std::array<float, 2> data{static_cast<float>(i % 1000), 1.0F};
      halfstep::dist::all_reduce(group, std::span<float>(data));
      ASSERT_EQ(data[0], static_cast<float>(2 * (i % 1000)));
    }
  });
}

}  // namespace
