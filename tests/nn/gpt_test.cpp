// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/gradient_check.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/nn/gpt.hpp>

namespace hs = halfstep;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::int32_t> some_tokens(int n, int vocabulary, std::uint32_t start = 1) {
  std::vector<std::int32_t> tokens;
  std::uint32_t x = start;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525U + 1013904223U;
    tokens.push_back(static_cast<std::int32_t>((x >> 16) % static_cast<std::uint32_t>(vocabulary)));
  }
  return tokens;
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Gpt, NamesItsParametersByWhereTheyStand) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = 5, .context = 3, .layers = 1, .heads = 2, .width = 4});
  std::vector<std::string> names;
  for (const auto& info : parameters.infos()) names.push_back(info.name + " " + to_string(info.shape));
  EXPECT_THAT(names,
              ElementsAre("tokens.table [5, 4]", "positions.table [3, 4]", "blocks.0.norm1.gain [4]",
                          "blocks.0.norm1.bias [4]", "blocks.0.attention.qkv.weight [12, 4]",
                          "blocks.0.attention.qkv.bias [12]", "blocks.0.attention.out.weight [4, 4]",
                          "blocks.0.attention.out.bias [4]", "blocks.0.norm2.gain [4]", "blocks.0.norm2.bias [4]",
                          "blocks.0.up.weight [16, 4]", "blocks.0.up.bias [16]", "blocks.0.down.weight [4, 16]",
                          "blocks.0.down.bias [4]", "norm.gain [4]", "norm.bias [4]"));
}

TEST(Gpt, WithoutBiasesHasNoneAnywhere) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.bias = false});
  for (const auto& info : parameters.infos()) EXPECT_NE(info.role, hs::Role::bias) << info.name;
}

TEST(Gpt, HasAsManyParametersAsTheFormulaSays) {
  for (const bool bias : {false, true}) {
    for (const int layers : {1, 3}) {
      hs::Runtime runtime;
      hs::Parameters<float> parameters(runtime);
      const hs::nn::GptOptions options{.vocabulary = 11, .context = 7, .layers = layers, .heads = 3, .width = 9, .bias = bias};
      const hs::nn::Gpt<float> gpt(parameters, options);
      EXPECT_EQ(parameters.count(), hs::nn::count_parameters(options));
    }
  }
}

// nanoGPT prints 0.80M for its CPU run of shakespeare_char (65 characters), positions left out.
TEST(Gpt, CountsNanoGptsCpuModelAsNanoGptDoes) {
  const hs::nn::GptOptions options{.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128, .bias = false};
  EXPECT_EQ(hs::nn::count_parameters(options) - 64 * 128, 795904);
  // And GPT-2's smallest, positions and biases included.
  EXPECT_EQ(hs::nn::count_parameters({.vocabulary = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768}),
            124439808);
}

TEST(Gpt, StartsWithGpt2sDeviations) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = 65, .layers = 8, .width = 96});
  const auto deviation = [&](const char* name) {
    const auto values = parameters.values(parameters.find(name));
    double squares = 0.0;
    for (const float x : values) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  // 27648 and more draws: the standard error is below 0.5 %.
  EXPECT_NEAR(deviation("blocks.3.attention.qkv.weight"), 0.02, 0.02 * 0.02);
  EXPECT_NEAR(deviation("blocks.3.up.weight"), 0.02, 0.02 * 0.02);
  EXPECT_NEAR(deviation("tokens.table"), 0.02, 0.02 * 0.05);
  EXPECT_NEAR(deviation("blocks.3.attention.out.weight"), 0.02 / 4.0, 0.005 * 0.03);  // sqrt(2 x 8) = 4
  EXPECT_NEAR(deviation("blocks.3.down.weight"), 0.02 / 4.0, 0.005 * 0.03);
  EXPECT_EQ(deviation("blocks.3.norm1.gain"), 1.0);
  EXPECT_EQ(deviation("blocks.3.up.bias"), 0.0);
}

template <class T>
double first_loss(int vocabulary) {
  hs::Runtime runtime;
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = vocabulary, .context = 48, .layers = 2, .heads = 2, .width = 32});
  hs::Tape tape(runtime);
  tape.begin({.rows = 4}, hs::Record::nothing);
  const auto tokens = some_tokens(4 * 48, vocabulary), targets = some_tokens(4 * 48, vocabulary, 7);
  return hs::cross_entropy(gpt(tape, tokens), targets).mean();
}

TEST(Gpt, FirstLossIsNearTheLogarithmOfTheVocabulary) {
  for (const int vocabulary : {65, 256}) {
    EXPECT_NEAR(first_loss<float>(vocabulary), std::log(vocabulary), 0.3) << vocabulary;
    EXPECT_NEAR(first_loss<hs::bf16>(vocabulary), std::log(vocabulary), 0.3) << vocabulary;
    EXPECT_NEAR(first_loss<hs::fp16>(vocabulary), std::log(vocabulary), 0.3) << vocabulary;
  }
}

// A causal model: what is said at a position does not depend on what comes after it.
TEST(Gpt, LossIsThatOfItsLogitsBitForBit) {
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<hs::bf16> parameters(runtime);
  const hs::nn::Gpt<hs::bf16> gpt(parameters, {.vocabulary = 50, .context = 16, .layers = 1, .heads = 2, .width = 32});
  hs::Tape tape(runtime);
  tape.begin({0, 0, 0, 2});
  const auto ids = some_tokens(32, 50), targets = some_tokens(32, 50, 9);
  const hs::Loss apart = hs::cross_entropy(gpt(tape, ids), targets), loss = gpt.loss(tape, ids, targets);
  EXPECT_EQ(loss.sum, apart.sum);
  EXPECT_EQ(loss.count, 32.0);
  EXPECT_NE(gpt.loss(tape, ids, ids).sum, apart.sum);
}

TEST(Gpt, LogitsBeforeAChangedTokenKeepTheirBits) {
  constexpr int vocabulary = 13, length = 17, rows = 2;
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = vocabulary, .context = length, .layers = 2, .heads = 3, .width = 12});
  hs::Tape tape(runtime);
  const auto logits_of = [&](const std::vector<std::int32_t>& tokens) {
    tape.begin({.rows = rows}, hs::Record::nothing);
    const auto values = gpt(tape, tokens).value();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto tokens = some_tokens(rows * length, vocabulary);
  const auto before = logits_of(tokens);
  for (int at = 0; at < length; ++at) {
    auto changed = tokens;
    auto& token = changed[static_cast<std::size_t>(length + at)];  // in row 1
    token = (token + 1) % vocabulary;
    const auto after = logits_of(changed);
    const std::size_t first = static_cast<std::size_t>(length + at) * vocabulary;
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(first), after.begin())) << at;
    // And the change is seen where it may be: at its own position and at the last.
    EXPECT_NE(std::vector(before.begin() + static_cast<std::ptrdiff_t>(first),
                          before.begin() + static_cast<std::ptrdiff_t>(first + vocabulary)),
              std::vector(after.begin() + static_cast<std::ptrdiff_t>(first),
                          after.begin() + static_cast<std::ptrdiff_t>(first + vocabulary)));
    EXPECT_NE(std::vector(before.end() - vocabulary, before.end()), std::vector(after.end() - vocabulary, after.end()));
  }
}

TEST(Gpt, GradientIsThatOfFiniteDifferences) {
  for (const bool bias : {true, false}) {
    for (const float dropout : {0.0F, 0.2F}) {
      hs::Runtime runtime;
      const auto tokens = some_tokens(2 * 5, 7), targets = some_tokens(2 * 5, 7, 3);
      hs::gradient_check<hs::nn::Gpt>(
          runtime, hs::GradientCheckOptions{.elements = 12, .micro = {0, 0, 0, 2}},
          [&]<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) { return hs::cross_entropy(gpt(tape, tokens), targets); },
          hs::nn::GptOptions{.vocabulary = 7, .context = 5, .layers = 2, .heads = 2, .width = 6, .dropout = dropout, .bias = bias})
          .require();
    }
  }
}

TEST(Gpt, DropoutActsInTrainingAloneAndIsKeyedBySampleAndPlace) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = 7, .context = 6, .layers = 2, .heads = 2, .width = 8, .dropout = 0.3F});
  hs::Tape tape(runtime);
  const auto tokens = some_tokens(6, 7);
  const auto logits_of = [&](std::int64_t sample, hs::Record record) {
    tape.begin({0, 0, sample, 1}, record);
    const auto values = gpt(tape, tokens).value();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto plain = logits_of(0, hs::Record::nothing);
  EXPECT_EQ(plain, logits_of(5, hs::Record::nothing));
  const auto dropped = logits_of(0, hs::Record::gradients);
  EXPECT_NE(plain, dropped);
  EXPECT_EQ(dropped, logits_of(0, hs::Record::gradients));
  EXPECT_NE(dropped, logits_of(1, hs::Record::gradients));
  // Three layers of streams, no two the same: else masks would repeat.
  std::vector<std::uint64_t> streams{gpt.dropout_stream};
  for (const auto& block : gpt.blocks) {
    streams.push_back(block.dropout_stream);
    streams.push_back(block.attention.dropout_stream);
  }
  std::sort(streams.begin(), streams.end());
  EXPECT_EQ(std::adjacent_find(streams.begin(), streams.end()), streams.end());
}

TEST(Gpt, SaysWhatIsWrongWithItsOptions) {
  hs::Runtime runtime;
  const auto build = [&](const hs::nn::GptOptions& options) {
    return message_of([&] {
      hs::Parameters<float> parameters(runtime);
      const hs::nn::Gpt<float> gpt(parameters, options);
    });
  };
  EXPECT_THAT(build({.heads = 4, .width = 50}), HasSubstr("'blocks.0.attention': width 50 does not divide into 4 heads"));
  EXPECT_THAT(build({.heads = 4, .width = 50}), HasSubstr("48 or 52"));
  EXPECT_THAT(build({.heads = 8, .width = 4}), HasSubstr("width 4 does not divide into 8 heads"));
  EXPECT_THAT(build({.layers = 0}), HasSubstr("layers is 0; wanted at least 1"));
  EXPECT_THAT(build({.vocabulary = 0}), HasSubstr("vocabulary is 0"));
  EXPECT_THAT(build({.context = -1}), HasSubstr("context is -1"));
  EXPECT_THAT(build({.dropout = 1.0F}), HasSubstr("dropout is 1; wanted a share in [0, 1)"));
}

TEST(Gpt, SaysWhatIsWrongWithItsTokens) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = 7, .context = 6, .layers = 1, .heads = 1, .width = 4});
  hs::Tape tape(runtime);
  tape.begin({.rows = 2});
  const auto long_rows = some_tokens(14, 7);
  EXPECT_THAT(message_of([&] { static_cast<void>(gpt(tape, long_rows)); }),
              HasSubstr("rows of 7 tokens (14 in 2 rows), but the context is 6"));
  const std::vector<std::int32_t> foreign{0, 1, 2, 7, 0, 0};
  EXPECT_THAT(message_of([&] { static_cast<void>(gpt(tape, foreign)); }), HasSubstr("7"));
  EXPECT_THROW(static_cast<void>(gpt(tape, foreign)), hs::DataError);
}

}  // namespace
