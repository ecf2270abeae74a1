// SPDX-License-Identifier: MIT
#include <halfstep/core/resident_memory.hpp>

#include <cstdint>

#include <gtest/gtest.h>

#include <halfstep/core/aligned.hpp>

using namespace halfstep::core;

TEST(ResidentMemory, GrowsByWhatIsTouchedAndNeverShrinks) {
  const std::int64_t bytes = std::int64_t{30} << 20;
  const std::int64_t before = peak_resident_memory();
  EXPECT_GT(before, 1 << 20);
  {
    const AlignedBuffer buffer(bytes, Fill::zero);
    asm volatile("" : : "r"(buffer.data()) : "memory");  // zeros that nobody reads are left out
  }
  const std::int64_t after = peak_resident_memory();
  EXPECT_GE(after, before + bytes - (std::int64_t{4} << 20)) << "beyond what was free before";
  { const AlignedBuffer small(1000, Fill::zero); }
  EXPECT_GE(peak_resident_memory(), after);
}
