// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "../examples/capstone/leaked.hpp"

namespace {

using capstone::leaked;

TEST(Leaked, ALossOfTheFloorOrMoreIsNone) {
  EXPECT_FALSE(leaked(0.75, 0.0, 0.75));
  EXPECT_FALSE(leaked(0.76, 0.0, 0.75));
  EXPECT_FALSE(leaked(4.0, 0.125, 0.75));
}
TEST(Leaked, ThreeStandardErrorsBelowTheFloorAreChance) {
  EXPECT_FALSE(leaked(0.625, 0.125, 0.75));
  EXPECT_FALSE(leaked(0.375, 0.125, 0.75));  // exactly three
}
TEST(Leaked, MoreThanThreeStandardErrorsBelowTheFloorAreNot) {
  EXPECT_TRUE(leaked(0.374, 0.125, 0.75));
  EXPECT_TRUE(leaked(0.0, 0.125, 0.75));
  EXPECT_TRUE(leaked(0.749, 0.0, 0.75));
}

}  // namespace
