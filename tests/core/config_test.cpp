// SPDX-License-Identifier: MIT
#include <halfstep/core/config.hpp>

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <halfstep/core/error.hpp>

namespace {
#define NAME_OF_(x) #x
#define NAME_OF(x) NAME_OF_(x)

// Units that differ in one of the three must not share a symbol; contract.link links two of them.
TEST(Config, TheNamespaceNamesEveryWayInWhichUnitsMayDiffer) {
  const std::string expected = std::string("v0_assert") + (HALFSTEP_ASSERTIONS ? "1" : "0") +
                               "_fma" + (HALFSTEP_TARGET_HAS_FMA ? "1" : "0") + "_fast" +
                               (HALFSTEP_FAST_MATH ? "1" : "0");
  EXPECT_EQ(expected, NAME_OF(HALFSTEP_CONFIG));
}
TEST(Config, TheNamespaceIsInlineAndInEverySymbol) {
  struct Local : halfstep::HALFSTEP_CONFIG::ShapeError {
    using ShapeError::ShapeError;
  };
  static_assert(std::is_base_of_v<halfstep::ShapeError, Local>);
  const std::string_view mangled = typeid(halfstep::ShapeError).name();
  EXPECT_NE(mangled.find(NAME_OF(HALFSTEP_CONFIG)), std::string_view::npos) << mangled;
}
TEST(Config, TheVersionTextIsItsNumbers) {
  EXPECT_EQ(halfstep::core::text(HALFSTEP_VERSION_MAJOR, '.', HALFSTEP_VERSION_MINOR, '.',
                                 HALFSTEP_VERSION_PATCH),
            HALFSTEP_VERSION);
}
}  // namespace
