// SPDX-License-Identifier: MIT
#include <halfstep/core/aligned.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace {
using namespace halfstep::core;

bool aligned_to(const void* data, std::int64_t unit) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(unit) == 0;
}

TEST(AlignedBuffer, StartsAtACacheLineAndLargeOnesAtAHugePage) {
  for (const std::int64_t bytes : {1L, 63L, 64L, 65L, 4097L, (2L << 20) - 1}) {
    const AlignedBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_TRUE(aligned_to(buffer.data(), alignment)) << bytes;
  }
  EXPECT_TRUE(aligned_to(AlignedBuffer(huge_page).data(), huge_page));
  EXPECT_TRUE(aligned_to(AlignedBuffer(3 * huge_page + 1).data(), huge_page));
}
TEST(AlignedBuffer, IsZeroToTheEndOfItsLastLineIfAskedTo) {
  for (const std::int64_t bytes : {1, 64, 1000, 5'000'000}) {
    {
      AlignedBuffer dirty(bytes);
      std::fill_n(dirty.data(), bytes, std::byte{0xAB});
    }
    const AlignedBuffer buffer(bytes, Fill::zero);
    const std::byte* const end = buffer.data() + round_up(bytes, alignment);
    EXPECT_TRUE(std::all_of(buffer.data(), end, [](std::byte b) { return b == std::byte{0}; }));
  }
}
TEST(AlignedBuffer, OfNoBytesIsNull) {
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
  EXPECT_EQ(AlignedBuffer().size(), 0);
  EXPECT_TRUE(AlignedBuffer(0).as<float>().empty());
}
TEST(AlignedBuffer, Moves) {
  static_assert(!std::is_copy_constructible_v<AlignedBuffer>);
  AlignedBuffer first(100, Fill::zero);
  const std::byte* const data = first.data();
  AlignedBuffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  AlignedBuffer third(5);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 100);
}
TEST(AlignedBuffer, ShowsItsBytesAsWholeElements) {
  AlignedBuffer buffer(11, Fill::zero);
  EXPECT_EQ(buffer.as<float>().size(), 2U);
  buffer.as<float>()[1] = 2.5F;
  EXPECT_EQ(std::as_const(buffer).as<float>()[1], 2.5F);
}
TEST(AlignedBuffer, RefusesSizesThatAreNone) {
  try {
    AlignedBuffer buffer(-4);
    FAIL();
  } catch (const halfstep::ShapeError& error) {
    EXPECT_STREQ(
        error.what(),
        "AlignedBuffer: asked for -4 bytes, which is no size of a buffer. Did a product of "
        "sizes overflow?");
  }
  EXPECT_THROW(AlignedBuffer{INT64_MAX}, halfstep::ShapeError);
}
#if !SANITIZED  // which end the program there, and take memory of their own
TEST(AlignedBuffer, IsResidentInWholePagesNotInWholeHugeOnes) {
  const std::int64_t page = sysconf(_SC_PAGESIZE), bytes = 2 * huge_page + page + 1;
  const AlignedBuffer buffer(bytes, Fill::zero);
  std::vector<unsigned char> pages(static_cast<std::size_t>(3 * huge_page / page));
  ASSERT_EQ(mincore(const_cast<std::byte*>(buffer.data()), static_cast<std::size_t>(3 * huge_page),
                    pages.data()),
            0);
  EXPECT_EQ(std::count_if(pages.begin(), pages.end(), [](auto p) { return (p & 1U) != 0; }),
            2 * huge_page / page + 2);
}
TEST(AlignedBuffer, SaysSoWhenTheSystemHasNoMemory) {
  try {
    AlignedBuffer buffer(std::int64_t{1} << 60);
    FAIL();
  } catch (const halfstep::MemoryError& error) {
    EXPECT_STREQ(
        error.what(),
        "AlignedBuffer: the system has no 1152921504606846976 bytes left for this process. "
        "Is the batch or the model too large?");
  }
}
#endif
}  // namespace
