// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <halfstep/tensor/shape.hpp>

namespace hs = halfstep;

TEST(Shape, SplitsIntoRowsAndWidth) {
  constexpr hs::Shape shape{4, 64, 128};
  static_assert(shape.rank() == 3 && shape.elements() == 4 * 64 * 128);
  EXPECT_EQ(shape.rows(), 256);
  EXPECT_EQ(shape.width(), 128);
  EXPECT_EQ(shape.with_width(5), (hs::Shape{4, 64, 5}));
  EXPECT_EQ(hs::to_string(shape), "[4, 64, 128]");
}

TEST(Shape, AnEmptyShapeIsAScalar) {
  EXPECT_EQ(hs::Shape{}.elements(), 1);
  EXPECT_EQ(hs::Shape{}.rows(), 1);
  EXPECT_EQ(hs::Shape{}.width(), 1);
  EXPECT_NE(hs::Shape{}, hs::Shape{1});
}

TEST(Shape, ASizeOfZeroHasNoElementsAndOverflowsNothing) {
  EXPECT_EQ((hs::Shape{0, 1'000'000'000'000}).elements(), 0);
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_THROW((hs::Shape{2, -1}), hs::ShapeError);
  EXPECT_THROW((hs::Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), hs::ShapeError);
  EXPECT_THROW((hs::Shape{1, 1, 1, 1, 1, 1, 1}), hs::ShapeError);
}
