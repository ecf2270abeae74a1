// SPDX-License-Identifier: MIT
#include <string>

#include <gtest/gtest.h>

#include <halfstep/train/telemetry.hpp>

namespace hs = halfstep;

namespace {

hs::train::TelemetryInfo some_telemetry() {
  hs::train::TelemetryInfo info{.iteration = 250, .step = 248, .scale = 2.0F};
  info.gradients = {{"a", {}}, {"b", {}}};
  for (const double g : {0.5, 0.0, 0x1p-25, 0x1p-26}) info.gradients[0].magnitudes.add(g);
  info.gradients[1].magnitudes.add(0x1p-30);
  info.updates = {{.name = "a", .weights = 4, .updated = 3, .below_half = 1, .largest = 0.25},
                  {.name = "b", .weights = 1, .updated = 1, .below_half = 0, .largest = 0.125}};
  return info;
}

TEST(Telemetry, IsOneJsonObjectOfAllParametersTogether) {
  EXPECT_EQ(hs::train::metrics_line(some_telemetry()),
            R"({"schema":1,"kind":"telemetry","iteration":250,"step":248,"scale":2,"largest_gradient":0.5,)"
            R"("smallest_gradient":9.313225746154785e-10,"zero_gradients":1,"fp16_lost":0.75,)"
            R"("fp16_lost_at_scale":0.5,"fp16_advised_scale":64,"bf16_lost":0,"largest_update":0.25,)"
            R"("updates_below_half_ulp":0.25})"
            "\n");
}
TEST(Telemetry, IsTextOfHistogramTableAndUpdates) {
  const std::string text = hs::train::to_string(some_telemetry());
  EXPECT_TRUE(text.starts_with("gradients of iteration 250, by magnitude\n"));
  EXPECT_NE(text.find("   2^-25   25.00 %"), std::string::npos) << text;
  EXPECT_NE(text.find("\nall "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\nupdates below half an ulp of their weight: 1 of 4\n")) << text;
}

}  // namespace
