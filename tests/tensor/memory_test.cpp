// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <halfstep/tensor/memory.hpp>

namespace hs = halfstep;
using hs::tensor::Memory;

TEST(Memory, IsZeroAlignedAndAccountedToTheByte) {
  hs::core::Ledger ledger;
  {
    Memory<float> memory(ledger, hs::core::Category::moments, 1001);
    EXPECT_EQ(ledger.live(hs::core::Category::moments), 4004);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
    for (const float x : memory.span()) ASSERT_EQ(x, 0.0F);
    Memory<float> moved = std::move(memory);
    EXPECT_EQ(ledger.live(), 4004);
    moved = Memory<float>(ledger, hs::core::Category::master, 10);
    EXPECT_EQ(ledger.live(), 40);
    EXPECT_EQ(ledger.live(hs::core::Category::moments), 0);
  }
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(ledger.peak(), 4044);
  EXPECT_EQ(ledger.at_peak()[static_cast<std::size_t>(hs::core::Category::moments)], 4004);
}
