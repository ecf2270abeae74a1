// SPDX-License-Identifier: MIT
#include <halfstep/tensor/parameter_table.hpp>

#include <string>

#include <gtest/gtest.h>

namespace {
namespace hs = halfstep;

TEST(UnitName, IsTheBlockOfALayerInABlockElseTheLayer) {
  const auto name = [](const char* full) {
    hs::tensor::ParameterInfo info;
    info.name = full;
    return std::string(hs::tensor::unit_name(info));
  };
  EXPECT_EQ(name("blocks.3.up.weight"), "blocks.3");
  EXPECT_EQ(name("blocks.12.experts.4.weight"), "blocks.12");
  EXPECT_EQ(name("encoder.blocks.0.norm1.gain"), "encoder.blocks.0");
  EXPECT_EQ(name("tokens.table"), "tokens");
  EXPECT_EQ(name("head.out.bias"), "head.out");
  EXPECT_EQ(name("layers.0"), "layers");
  EXPECT_EQ(name("l2.weight"), "l2");
  EXPECT_EQ(name("w"), "w");
}

}  // namespace
