// SPDX-License-Identifier: MIT
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/nn/block.hpp>
#include <halfstep/nn/causal_attention.hpp>
#include <halfstep/nn/embedding.hpp>
#include <halfstep/nn/layer_norm.hpp>
#include <halfstep/nn/linear.hpp>

namespace hs = halfstep;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Linear, IsXTimesTheTransposedWeightPlusBias) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Linear<float> layer(parameters.scope() / "a", 3, 2);
  const auto w = parameters.write(layer.weight.id);
  for (std::size_t i = 0; i < 6; ++i) w[i] = static_cast<float>(i + 1);  // [[1, 2, 3], [4, 5, 6]]
  const auto b = parameters.write(layer.bias.id);
  b[0] = 10.0F;
  b[1] = 20.0F;
  hs::Tape tape(runtime);
  tape.begin();
  const std::array<float, 3> x{1.0F, 10.0F, 100.0F};
  const auto y = layer(hs::constant<float>(tape, {1, 3}, x));
  EXPECT_THAT(y.value(), ElementsAre(331.0F, 674.0F));
}

TEST(Linear, StartsAtOneOverTheRootOfItsInputsUnlessTold) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Linear<float> plain(parameters.scope() / "plain", 64, 3);
  const hs::nn::Linear<float> told(parameters.scope() / "told", 64, 3, {.bias = false, .deviation = 0.02F});
  EXPECT_EQ(plain.weight.info().init.deviation, 0.125F);
  EXPECT_EQ(told.weight.info().init.deviation, 0.02F);
  EXPECT_EQ(told.bias.store, nullptr);
  EXPECT_EQ(parameters.size(), 3U);
}

TEST(Linear, NamesTheLayerWhenAnInputDoesNotFit) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Linear<float> layer(parameters.scope() / "blocks" / 3 / "up", 4, 2);
  hs::Tape tape(runtime);
  tape.begin();
  const std::array<float, 3> x{};
  const auto input = hs::constant<float>(tape, {1, 3}, x);
  EXPECT_THAT(message_of([&] { static_cast<void>(layer(input)); }), HasSubstr("blocks.3.up"));
  EXPECT_THAT(message_of([&] { static_cast<void>(hs::nn::Linear<float>(parameters.scope() / "b", 0, 2)); }),
              HasSubstr("nn::Linear 'b': 0 inputs and 2 outputs"));
}

TEST(LayerNorm, StartsAsTheIdentityOfWhatIsNormalised) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::LayerNorm<float> norm(parameters.scope() / "norm", 4);
  hs::Tape tape(runtime);
  tape.begin();
  const std::array<float, 4> x{1.0F, 1.0F, 3.0F, 3.0F};  // mean 2, deviation 1
  const auto y = norm(hs::constant<float>(tape, {1, 4}, x)).value();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], i < 2 ? -1.0F : 1.0F, 1e-4F);
  EXPECT_THAT(message_of([&] { static_cast<void>(hs::nn::LayerNorm<float>(parameters.scope() / "m", 0)); }),
              HasSubstr("nn::LayerNorm 'm': width is 0"));
}

TEST(Embedding, LooksRowsUp) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Embedding<float> table(parameters.scope() / "tokens", 3, 2);
  const auto values = parameters.write(table.table.id);
  for (std::size_t i = 0; i < 6; ++i) values[i] = static_cast<float>(i);
  hs::Tape tape(runtime);
  tape.begin({.rows = 1});
  const std::array<std::int32_t, 3> tokens{2, 0, 2};
  const auto y = table(tape, tokens);
  EXPECT_EQ(y.shape(), (hs::Shape{1, 3, 2}));
  EXPECT_THAT(y.value(), ElementsAre(4.0F, 5.0F, 0.0F, 1.0F, 4.0F, 5.0F));
  EXPECT_THAT(message_of([&] { static_cast<void>(hs::nn::Embedding<float>(parameters.scope() / "e", 3, 0)); }),
              HasSubstr("nn::Embedding 'e': 3 rows of width 0"));
}

TEST(CausalAttention, OfOnePositionIsItsOwnValue) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::CausalAttention<float> attention(parameters.scope() / "attention", 4, 2, {.bias = false});
  const auto qkv = parameters.write(attention.qkv.weight.id);
  for (float& w : qkv) w = 0.0F;
  for (std::size_t i = 0; i < 4; ++i) qkv[(8 + i) * 4 + i] = 1.0F;  // values are the input itself
  const auto out = parameters.write(attention.out.weight.id);
  for (std::size_t i = 0; i < 16; ++i) out[i] = i % 5 == 0 ? 2.0F : 0.0F;
  hs::Tape tape(runtime);
  tape.begin();
  const std::array<float, 8> x{1, 2, 3, 4, 5, 6, 7, 8};
  const auto y = attention(hs::constant<float>(tape, {1, 2, 4}, x)).value();
  // With all scores 0 the second position is the mean of both.
  EXPECT_THAT(y, ElementsAre(2.0F, 4.0F, 6.0F, 8.0F, 6.0F, 8.0F, 10.0F, 12.0F));
}

TEST(Block, WithProjectionsOfZeroPassesItsInputOn) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Block<float> block(parameters.scope() / "block", {.width = 6, .heads = 3, .residual_deviation = 0.0F});
  hs::Tape tape(runtime);
  tape.begin();
  std::vector<float> x(3 * 6);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2.0F;
  const auto y = block(hs::constant<float>(tape, {1, 3, 6}, x)).value();
  EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin()));
}

}  // namespace
