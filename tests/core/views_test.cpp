// SPDX-License-Identifier: MIT
#include <halfstep/core/views.hpp>

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace {
using namespace halfstep::core;

TEST(RoundUp, IsTheNextMultiple) {
  static_assert(round_up(0, 64) == 0 && round_up(1, 64) == 64 && round_up(64, 64) == 64);
  static_assert(divide_up(0, 3) == 0 && divide_up(1, 3) == 1 && divide_up(3, 3) == 1 &&
                divide_up(4, 3) == 2);
}
TEST(MatrixView, ReadsRowMajorAndItsTranspose) {
  std::vector<int> data(3 * 5);
  std::iota(data.begin(), data.end(), 0);
  const MatrixView<int> view = row_major(data.data(), 3, 5);
  const MatrixView<int> turned = view.transposed();
  EXPECT_EQ(turned.rows, 5);
  EXPECT_EQ(turned.cols, 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_EQ(view(i, j), 5 * i + j);
      EXPECT_EQ(turned(j, i), 5 * i + j);
    }
  }
  EXPECT_EQ(view.size(), 15);
  EXPECT_EQ(view.row(2)[4], 14);
}
TEST(MatrixView, BlocksKeepTheStrides) {
  std::vector<int> data(4 * 6);
  std::iota(data.begin(), data.end(), 0);
  const auto block = row_major(data.data(), 4, 6).block(1, 2, 2, 3);
  EXPECT_EQ(block.rows, 2);
  EXPECT_EQ(block.cols, 3);
  EXPECT_EQ(block(1, 2), 6 * 2 + 4);
  EXPECT_EQ(block.transposed().block(1, 0, 1, 2)(0, 1), 6 * 2 + 3);
}
TEST(MatrixView, KnowsWhetherItHasGaps) {
  int data[24] = {};
  const auto view = row_major(data, 4, 6);
  EXPECT_TRUE(view.contiguous());
  EXPECT_TRUE(view.block(1, 0, 2, 6).contiguous());
  EXPECT_FALSE(view.block(0, 0, 4, 5).contiguous());
  EXPECT_TRUE(view.block(2, 1, 1, 3).contiguous());
  EXPECT_FALSE(view.transposed().contiguous());
}
TEST(MatrixView, BecomesConstByItself) {
  int data[4] = {1, 2, 3, 4};
  const MatrixView<const int> view = row_major(data, 2, 2);
  EXPECT_EQ(view(1, 1), 4);
  static_assert(!std::is_convertible_v<MatrixView<const int>, MatrixView<int>>);
}
}  // namespace
