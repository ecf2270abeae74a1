// SPDX-License-Identifier: MIT
#include <halfstep/core/error.hpp>

#include <clocale>
#include <cstdint>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include <halfstep/core/assert.hpp>

namespace {
using halfstep::core::fail;
using halfstep::core::text;

TEST(Text, JoinsStringsAndNumbers) {
  EXPECT_EQ(text("width ", 128, ", wants ", std::int64_t{-384}, ' ', std::string("(x)"), true),
            "width 128, wants -384 (x)true");
}
TEST(Text, WritesNumbersInTheShortestFormThatReadsBack) {
  EXPECT_EQ(text(0.1F, ' ', 0.1, ' ', 1e30, ' ', 65536.0F), "0.1 0.1 1e+30 65536");
  EXPECT_EQ(text(static_cast<double>(0.1F)), "0.10000000149011612");
}
TEST(Text, DoesNotFollowTheLocale) {
  // Not every machine has a locale with a decimal comma; where there is none, this shows nothing.
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"})
    std::setlocale(LC_ALL, name);
  EXPECT_EQ(text(1234567.5), "1234567.5");
  std::setlocale(LC_ALL, "C");
}
TEST(Text, WritesByteSizedIntegersAsNumbers) {
  EXPECT_EQ(text(std::uint8_t{65}, ' ', std::int8_t{-1}), "65 -1");
}

template <class E>
void throws_with_its_text() {
  try {
    fail<E>("f: saw ", 3, ", wanted ", 4, ".");
  } catch (const halfstep::Error& error) {
    EXPECT_STREQ(error.what(), "f: saw 3, wanted 4.");
    EXPECT_NE(dynamic_cast<const E*>(&error), nullptr);
    return;
  }
  FAIL() << "nothing was thrown";
}
TEST(Fail, ThrowsEachKindAsAHalfstepError) {
  throws_with_its_text<halfstep::ShapeError>();
  throws_with_its_text<halfstep::OptionError>();
  throws_with_its_text<halfstep::FileError>();
  throws_with_its_text<halfstep::DataError>();
  throws_with_its_text<halfstep::NumericError>();
  throws_with_its_text<halfstep::StateError>();
  throws_with_its_text<halfstep::MemoryError>();
}
TEST(Fail, ErrorsAreStandardRuntimeErrors) {
  EXPECT_THROW(fail<halfstep::ShapeError>("x"), std::runtime_error);
}

TEST(Assert, EndsTheProgramOnlyWhereAssertionsAreOn) {
#if HALFSTEP_ASSERTIONS
  EXPECT_DEATH(HALFSTEP_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3. This is a bug");
#else
  int evaluated = 0;
  HALFSTEP_ASSERT(++evaluated == 5);
  EXPECT_EQ(evaluated, 0);
#endif
  HALFSTEP_ASSERT(1 + 1 == 2);
}
}  // namespace
