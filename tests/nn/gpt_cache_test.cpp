// SPDX-License-Identifier: MIT
#include <halfstep/nn/gpt_cache.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/nn/gpt.hpp>

namespace {

namespace hs = halfstep;

template <class T>
class GptCacheOf : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(GptCacheOf, Formats);

// 70 tokens: a whole tile of keys and one begun. Weights eight times GPT-2's, so that attention
// looks at few of them.
TYPED_TEST(GptCacheOf, GivesTheLogitsOfTheWholeForwardPassBitForBit) {
  using T = TypeParam;
  for (const auto isa : hs::core::available_isas()) {
    hs::Runtime runtime({.threads = 2, .seed = 3, .isa = isa});
    hs::Parameters<T> parameters(runtime);
    const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = 37,
                                          .context = 70,
                                          .layers = 2,
                                          .heads = 2,
                                          .width = 24,
                                          .bias = isa != hs::core::Isa::portable});
    for (T& weight : parameters.write_all())
      weight = static_cast<T>(static_cast<float>(weight) * 8.0F);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 70; ++i)
      tokens.push_back((i * i + 3 * i) % 37);
    hs::Tape tape(runtime);
    hs::nn::GptCache<T> cache(gpt);
    for (int pass = 0; pass < 2; ++pass) {  // the second over what the first has left
      int compared = 0;
      for (std::size_t n = 1; n <= tokens.size(); ++n) {
        const auto one = cache.read(tokens[n - 1]);
        ASSERT_EQ(cache.size(), static_cast<int>(n));
        if (pass == 1 && n > 3) break;
        if (n > 5 && n < 63) continue;
        tape.begin({.rows = 1}, hs::Record::nothing);
        const auto all = gpt(tape, std::span(tokens).first(n)).value().last(37);
        ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin(), all.end())) << n;
        ++compared;
      }
      EXPECT_GT(compared, 2);
      cache.clear();
    }
    // Prompts of all lengths around what is read at a time, and what comes after them.
    for (const std::size_t n : {2U, 63U, 64U, 65U, 69U}) {
      cache.clear();
      static_cast<void>(cache.read(std::span(tokens).first(n)));
      const auto one = cache.read(std::span(tokens).subspan(n));
      tape.begin({.rows = 1}, hs::Record::nothing);
      const auto all = gpt(tape, tokens).value().last(37);
      ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin(), all.end())) << n;
    }
  }
}

TEST(GptCache, ATokenCostsOneToken) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(
      parameters, {.vocabulary = 64, .context = 64, .layers = 2, .heads = 2, .width = 64});
  hs::Tape tape(runtime);
  hs::nn::GptCache<float> cache(gpt);
  const std::vector<std::int32_t> tokens(64, 7);
  std::uint64_t last = 0, sum = 0;
  for (const std::int32_t token : tokens) {
    const std::uint64_t before = runtime.counters().flops;
    static_cast<void>(cache.read(token));
    last = runtime.counters().flops - before;
    sum += last;
  }
  const std::uint64_t before = runtime.counters().flops;
  tape.begin({.rows = 1}, hs::Record::nothing);
  static_cast<void>(gpt(tape, tokens));
  EXPECT_EQ(sum, runtime.counters().flops - before);  // all of them are the whole pass, no more
  EXPECT_LT(last, sum / 50);                          // and each is its share of that
}

TEST(GptCache, OfSeveralTokensAtATimeComputesTheLogitsOfTheLastAlone) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(
      parameters, {.vocabulary = 64, .context = 8, .layers = 1, .heads = 1, .width = 16});
  const std::vector<std::int32_t> tokens{3, 1, 4, 1, 5};
  const auto read = [&](bool together) {
    hs::nn::GptCache<float> cache(gpt);
    const std::uint64_t before = runtime.counters().flops;
    std::span<const float> logits;
    if (together) {
      logits = cache.read(tokens);
    } else {
      for (const std::int32_t token : tokens) logits = cache.read(token);
    }
    return std::pair{std::vector(logits.begin(), logits.end()), runtime.counters().flops - before};
  };
  const auto [one, cost_of_one] = read(true);
  const auto [each, cost_of_each] = read(false);
  EXPECT_EQ(one, each);
  EXPECT_GE(cost_of_each - cost_of_one, 4U * 2 * 16 * 64);  // and its norms
}

// A layer's products, of 130 rows: queries, keys with values, out, up, down; and the head.
TEST(GptCache, KeepsKeysAndValuesAloneAndReadsAPrompt64TokensAtATime) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(
      parameters, {.vocabulary = 64, .context = 130, .layers = 3, .heads = 2, .width = 16});
  const auto activations = [&] {
    return runtime.ledger().live(hs::core::Category::activations);
  };
  const auto products = [&] {
    std::uint64_t sum = 0;
    for (const std::uint64_t of_path : runtime.counters().products) sum += of_path;
    return sum;
  };
  const std::int64_t before = activations();
  hs::nn::GptCache<float> cache(gpt);
  const std::int64_t rows = 64 * (3 * 16 + 4 * 16 + 2) + 64;
  EXPECT_EQ(activations() - before, 4 * (3 * 130 * 2 * 16 + rows));
  const std::uint64_t none = products();
  static_cast<void>(cache.read(std::vector<std::int32_t>(130, 1)));
  EXPECT_EQ(products() - none, 3U * 3 * 5 + 1);  // 64, 64 and 2 tokens
}

TEST(GptCache, SaysWhenItIsFullAndWhatItDoesNotKnow) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(
      parameters, {.vocabulary = 5, .context = 2, .layers = 1, .heads = 1, .width = 4});
  hs::nn::GptCache<float> cache(gpt);
  EXPECT_THROW(static_cast<void>(cache.read(5)), hs::DataError);
  EXPECT_THROW(static_cast<void>(cache.read(std::vector<std::int32_t>{1, 5})), hs::DataError);
  EXPECT_THROW(static_cast<void>(cache.read(std::vector<std::int32_t>{1, 1, 1})), hs::StateError);
  EXPECT_EQ(cache.size(), 0) << "what is refused is not read";
  static_cast<void>(cache.read(1));
  static_cast<void>(cache.read(1));
  try {
    static_cast<void>(cache.read(1));
    FAIL();
  } catch (const hs::StateError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("2 tokens are read, 1 more are given, and the "
                                                "context is 2"));
  }
  cache.clear();
  EXPECT_THROW(static_cast<void>(cache.read(std::vector<std::int32_t>{})), hs::DataError);
  EXPECT_EQ(cache.read(1).size(), 5U);
}

}  // namespace
