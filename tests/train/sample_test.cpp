// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/sample.hpp>

namespace hs = halfstep;
using hs::train::draw_token;
using testing::HasSubstr;

namespace {

TEST(DrawToken, PicksByCumulativeProbability) {
  const std::array<float, 3> logits{0.0F, std::log(2.0F), 0.0F};  // 1/4, 1/2, 1/4
  const auto draw = [&](double uniform) { return draw_token<float>(logits, 1.0F, uniform); };
  EXPECT_EQ(draw(0.0), 0);
  EXPECT_EQ(draw(0.2499), 0);
  EXPECT_EQ(draw(0.2501), 1);
  EXPECT_EQ(draw(0.7499), 1);
  EXPECT_EQ(draw(0.7501), 2);
  EXPECT_EQ(draw(0x1.fffffffffffffp-1), 2);
}

TEST(DrawToken, TemperatureSharpensAndZeroTakesTheFirstOfTheLargest) {
  const std::array<float, 3> logits{1.0F, 3.0F, 3.0F};
  EXPECT_EQ(draw_token<float>(logits, 0.0F, 0.99), 1);
  EXPECT_EQ(draw_token<float>(logits, 1e-3F, 0.0), 1);   // the weight of token 0 underflows
  EXPECT_EQ(draw_token<float>(logits, 100.0F, 0.1), 0);  // nearly uniform
  const std::array<float, 2> large{3e38F, -3e38F};
  EXPECT_EQ(draw_token<float>(large, 1.0F, 0.9), 0);
}

TEST(DrawToken, RefusesWhatIsNoDistribution) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::array<float, 2> logits{0.0F, bad};
    EXPECT_THROW(static_cast<void>(draw_token<float>(logits, 1.0F, 0.5)), hs::NumericError);
  }
}

/// Always says the token after the last one, and remembers how much it was shown.
struct Next {
  int vocabulary;
  std::vector<std::size_t>* seen;
  [[nodiscard]] int context() const { return 4; }
  hs::Variable<float> operator()(hs::Tape& tape, std::span<const std::int32_t> ids) const {
    seen->push_back(ids.size());
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(vocabulary));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      logits[i * static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>((ids[i] + 1) % vocabulary)] = 50.0F;
    }
    return hs::constant<float>(tape, {1, static_cast<std::int64_t>(ids.size()), vocabulary}, logits);
  }
};

TEST(Sample, ContinuesThePromptAndSlidesItsWindow) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  const auto tokenizer = hs::data::Tokenizer::characters("abcdefgh");
  std::vector<std::size_t> seen;
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "ab", {.length = 8}), "cdefghab");
  EXPECT_EQ(seen, (std::vector<std::size_t>{2, 3, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "", {.length = 2}), "bc");
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "a", {.length = 0}), "");
}

TEST(Sample, ShowsOnlyWholeCharacters) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  std::vector<std::size_t> seen;
  std::vector<std::string> pieces;
  const auto keep = [&](std::string_view piece) { pieces.emplace_back(piece); };
  // From byte 0xC1 on the bytes count up: C2 begins a character that C3 does not continue.
  const std::string out = hs::train::sample(Next{256, &seen}, tape, hs::data::Tokenizer::bytes(), "\xC1",
                                            {.length = 2, .on_text = keep});
  EXPECT_EQ(out, "\xEF\xBF\xBD\xEF\xBF\xBD");
  std::string joined;
  for (const auto& piece : pieces) {
    joined += piece;
    EXPECT_EQ(hs::data::utf8_valid_until(piece), piece.size());
  }
  EXPECT_EQ(joined, out);
}

TEST(Sample, IsAFunctionOfItsSeed) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const auto text = hs::data::Text::from_string("some text to take characters from, nothing more");
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = text.vocabulary(), .context = 8, .layers = 1, .heads = 1, .width = 8});
  const auto with_seed = [&](std::uint64_t seed) {
    return hs::train::sample(gpt, parameters, text, "so", {.length = 30, .seed = seed});
  };
  EXPECT_EQ(with_seed(3), with_seed(3));
  EXPECT_NE(with_seed(3), with_seed(4));
}

TEST(Sample, SaysWhatItCannotDo) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  std::vector<std::size_t> seen;
  const auto tokenizer = hs::data::Tokenizer::characters("abc");
  const auto message = [&](std::string_view prompt, const hs::train::SampleOptions& options) {
    try {
      static_cast<void>(hs::train::sample(Next{3, &seen}, tape, tokenizer, prompt, options));
    } catch (const hs::Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message("z", {}), HasSubstr("is not one of the 3 symbols"));
  EXPECT_THAT(message("a", {.length = -1}), HasSubstr("length is -1"));
  EXPECT_THAT(message("a", {.temperature = -1.0F}), HasSubstr("temperature is -1"));
  EXPECT_THAT(message("a", {.temperature = std::numeric_limits<float>::quiet_NaN()}), HasSubstr("temperature is nan"));
}

}  // namespace
