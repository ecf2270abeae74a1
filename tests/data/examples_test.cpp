// SPDX-License-Identifier: MIT
#include <halfstep/data/examples.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace halfstep;
using data::ExampleBatch;
using data::Examples;
using data::Tail;

/// Example i has features i and -i and class i, so that a row tells which it is.
Examples<std::int32_t> counted(int n, std::uint64_t seed = 4) {
  std::vector<float> features;
  std::vector<std::int32_t> classes;
  for (int i = 0; i < n; ++i) {
    features.insert(features.end(), {static_cast<float>(i), static_cast<float>(-i)});
    classes.push_back(i);
  }
  return {std::move(features), std::move(classes), {.width = 2, .seed = seed}};
}

TEST(ExamplesOrder, IsAPermutationAnEpochAnotherOneEachAndDoesNotDependOnTheBatch) {
  const auto data = counted(21);
  std::vector<std::int64_t> order;
  for (std::int64_t g = 0; g < 63; ++g)
    order.push_back(data.index_of(g));
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int64_t> sorted(order.begin() + 21 * epoch, order.begin() + 21 * (epoch + 1));
    std::sort(sorted.begin(), sorted.end());
    for (std::int64_t i = 0; i < 21; ++i)
      EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
  }
  EXPECT_FALSE(std::equal(order.begin(), order.begin() + 8, order.begin() + 21));
  EXPECT_NE(counted(21, 5).index_of(0) * 441 + counted(21, 5).index_of(1) * 21 +
                counted(21, 5).index_of(2),
            order[0] * 441 + order[1] * 21 + order[2]);
  for (const int rows : {1, 4, 9, 63}) {  // batches run over the seam between epochs
    ExampleBatch<std::int32_t> batch;
    for (std::int64_t first = 0; first + rows <= 63; first += rows) {
      data.batch(MicroBatch{0, 0, first, rows}, batch);
      for (int row = 0; row < rows; ++row) {
        const auto wanted = order[static_cast<std::size_t>(first + row)];
        const auto r = static_cast<std::size_t>(row);
        ASSERT_EQ(batch.targets[r], wanted);
        ASSERT_EQ(batch.features[2 * r], static_cast<float>(wanted));
        ASSERT_EQ(batch.features[2 * r + 1], static_cast<float>(-wanted));
      }
    }
  }
}

// 10 by 4, as in the reports of evaluations that see 12: dropped 8, kept 10, masked 10 of 12.
TEST(ExamplesOrder, OfAnEpochInBatchesDropsKeepsOrMasksTheEnd) {
  const auto data = counted(10);
  const auto rows = [&](Tail tail, std::int64_t epoch) {
    std::vector<std::int32_t> classes;
    ExampleBatch<std::int32_t> batch;
    for (const auto& one : data::epoch_batches(data.size(), epoch, 4, tail)) {
      data.batch(one, batch);
      classes.insert(classes.end(), batch.targets.begin(), batch.targets.end());
      for (int row = one.valid; row < one.rows; ++row)
        EXPECT_EQ(batch.features[static_cast<std::size_t>(2 * row)], 0.0F);
    }
    return classes;
  };
  for (const std::int64_t epoch : {0, 1}) {
    std::vector<std::int32_t> whole;
    for (std::int64_t i = 0; i < 10; ++i)
      whole.push_back(static_cast<std::int32_t>(data.index_of(10 * epoch + i)));
    EXPECT_EQ(rows(Tail::keep, epoch), whole);
    EXPECT_EQ(rows(Tail::drop, epoch), std::vector(whole.begin(), whole.begin() + 8));
    whole.insert(whole.end(), {-1, -1});
    EXPECT_EQ(rows(Tail::mask, epoch), whole);
  }
  EXPECT_NE(rows(Tail::keep, 0), rows(Tail::keep, 1));
  EXPECT_TRUE(data::epoch_batches(3, 0, 4, Tail::drop).empty());
  for (const Tail tail : {Tail::drop, Tail::keep, Tail::mask})
    EXPECT_EQ(data::epoch_batches(8, 0, 4, tail).size(), 2U);
}

TEST(ExamplesOrder, OfValuesTakesSeveralARow) {
  const Examples<float> data({1, 2, 3}, {10, 11, 20, 21, 30, 31}, {.targets = 2});
  ExampleBatch<float> batch;
  data.batch(MicroBatch{0, 0, 0, 3}, batch);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(batch.targets[2 * row], 10 * batch.features[row]);
    EXPECT_EQ(batch.targets[2 * row + 1], 10 * batch.features[row] + 1);
  }
}

TEST(ExamplesOrder, SaysWhatDoesNotFit) {
  const auto message = [](const auto& f) {
    try {
      f();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([] {
                Examples<float>({1, 2, 3}, {1}, {.width = 2});
              }),
              HasSubstr("3 features of width 2 and 1 targets"));
  EXPECT_THAT(message([] { Examples<float>({}, {}); }), HasSubstr("at least one"));
  EXPECT_THAT(message([] { Examples<float>({1}, {1}, {.width = 0}); }), HasSubstr("width 0"));
  EXPECT_THAT(message([] { (void)counted(3).index_of(-1); }), HasSubstr("sample -1 is negative"));
  EXPECT_THAT(message([] { (void)data::epoch_batches(3, 0, 0, Tail::keep); }),
              HasSubstr("batches of 0"));
  ExampleBatch<std::int32_t> out;
  EXPECT_THAT(message([&] {
                counted(3).batch(data::EpochBatch{0, 2, 2, 2}, out);
              }),
              HasSubstr("there are 3"));
}

}  // namespace
