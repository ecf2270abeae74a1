// SPDX-License-Identifier: MIT
#include <halfstep/numeric/format.hpp>

#include <string>

#include <gtest/gtest.h>

namespace {

TEST(WithFormat, CallsTheBodyWithTheTypeOfThatName) {
  const auto name = []<class T> { return std::string(halfstep::format_name<T>); };
  EXPECT_EQ(halfstep::with_format("float", name), "float");
  EXPECT_EQ(halfstep::with_format("bf16", name), "bf16");
  EXPECT_EQ(halfstep::with_format("fp16", name), "fp16");
  EXPECT_EQ(halfstep::with_format("fp16", []<class T> { return sizeof(T); }), 2U);
}

std::string refusal(const char* name) {
  try {
    halfstep::with_format(name, []<class T> {});
  } catch (const halfstep::OptionError& error) {
    return error.what();
  }
  return "";
}
TEST(WithFormat, RefusesOtherNamesAndListsTheFormats) {
  EXPECT_EQ(refusal("BF16"),
            "with_format: \"BF16\" is not a format that trains; there are float, bf16 and fp16. "
            "Was it meant as a dtype name (F32, BF16, F16)?");
  EXPECT_EQ(
      refusal("fp8_e5m2"),
      "with_format: \"fp8_e5m2\" is not a format that trains; there are float, bf16 and fp16. "
      "fp8 is for storage and telemetry in this release.");
}

}  // namespace
