// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/numeric/elementary_double.hpp>
#include <halfstep/train/sample.hpp>

namespace hs = halfstep;
using hs::train::draw_token;
using testing::HasSubstr;

namespace {

TEST(DrawToken, PicksByCumulativeProbability) {
  const std::array<float, 3> logits{0.0F, std::log(2.0F), 0.0F};  // 1/4, 1/2, 1/4
  const auto draw = [&](double uniform) { return draw_token<float>(logits, {.temperature = 1.0F}, uniform); };
  EXPECT_EQ(draw(0.0), 0);
  EXPECT_EQ(draw(0.2499), 0);
  EXPECT_EQ(draw(0.2501), 1);
  EXPECT_EQ(draw(0.7499), 1);
  EXPECT_EQ(draw(0.7501), 2);
  EXPECT_EQ(draw(0x1.fffffffffffffp-1), 2);
}

TEST(DrawToken, TemperatureSharpensAndZeroTakesTheFirstOfTheLargest) {
  const std::array<float, 3> logits{1.0F, 3.0F, 3.0F};
  EXPECT_EQ(draw_token<float>(logits, {.temperature = 0.0F}, 0.99), 1);
  EXPECT_EQ(draw_token<float>(logits, {.temperature = 1e-3F}, 0.0), 1);   // the weight of token 0 underflows
  EXPECT_EQ(draw_token<float>(logits, {.temperature = 100.0F}, 0.1), 0);  // nearly uniform
  const std::array<float, 2> large{3e38F, -3e38F};
  EXPECT_EQ(draw_token<float>(large, {.temperature = 1.0F}, 0.9), 0);
}

// Probabilities 8, 4, 4, 2, 1, 1 of 20, in another order.
TEST(DrawToken, OfTheTopKOrOfAShareAloneKeepsTheLikeliestAndOfEqualsTheFirst) {
  const double weights[]{1, 4, 8, 4, 2, 1};
  std::array<float, 6> logits{};
  for (std::size_t i = 0; i < 6; ++i) logits[i] = static_cast<float>(std::log(weights[i]));
  const auto drawn = [&](const hs::train::SampleOptions& options) {
    std::array<int, 6> counts{};
    for (int i = 0; i < 2000; ++i) {
      ++counts[static_cast<std::size_t>(draw_token<float>(logits, options, (i + 0.5) / 2000))];
    }
    return counts;
  };
  using Counts = std::array<int, 6>;
  EXPECT_EQ(drawn({.temperature = 1}), (Counts{100, 400, 800, 400, 200, 100}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 9}), drawn({.temperature = 1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 1}), (Counts{0, 0, 2000, 0, 0, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3}), (Counts{0, 500, 1000, 500, 0, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2})[3], 0);  // an equal of token 1, but later
  EXPECT_NEAR(drawn({.temperature = 1, .top_k = 2})[1], 2000 / 3, 1);
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.01}), (Counts{0, 0, 2000, 0, 0, 0}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.79}), (Counts{0, 500, 1000, 500, 0, 0}));
  EXPECT_NEAR(drawn({.temperature = 1, .top_p = 0.85})[4], 2000 / 9, 1);
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.85})[0], 0);
  // Of the top three, whose shares are a half and two quarters; of all, 0.7 would leave three.
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3, .top_p = 0.7})[3], 0);
  // The share is that at the temperature: squared weights, 64 of 102.
  EXPECT_EQ(drawn({.temperature = 0.5F, .top_p = 0.6}), (Counts{0, 0, 2000, 0, 0, 0}));
}

/// draw_token's rule read plainly: every token sorted, stably, then cut.
std::int32_t drawn_of_all_sorted(const std::vector<float>& logits,
                                 const hs::train::SampleOptions& options, double uniform) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(n, static_cast<std::size_t>(options.top_k)));
  const auto weight = [&](std::size_t i) {
    return hs::numeric::exp((double{logits[i]} - double{logits[order[0]]}) /
                            double{options.temperature});
  };
  double all = 0.0, sum = 0.0, total = 0.0;
  std::vector<double> weights(n);
  for (const std::size_t i : order) weights[i] = weight(i);
  for (const double w : weights) all += w;
  const double wanted = hs::core::rounded(options.top_p * all);
  std::fill(weights.begin(), weights.end(), 0.0);
  for (const std::size_t i : order) {
    if (i != order[0] && sum >= wanted) break;
    weights[i] = weight(i);
    sum += weights[i];
  }
  for (const double w : weights) total += w;
  sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    sum += weights[i];
    if (sum > uniform * total) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(order[0]);
}

// Of as many tokens as GPT-2's: logits that are all different, that come in 64 values, that are one.
TEST(DrawToken, PicksWhatSortingTheWholeVocabularyPicks) {
  constexpr std::size_t n = 50257;
  for (const double steps : {1e9, 64.0, 1.0}) {
    std::vector<float> logits(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double uniform = hs::core::uniform64(1, 2, i);
      logits[i] = static_cast<float>(12.0 * std::floor(steps * uniform) / steps);
    }
    for (const int top_k : {0, 1, 40, 50256, 60000}) {
      for (const double top_p : {1e-300, 0.3, 0.9, 0x1.fffffffffffffp-1, 1.0}) {
        const hs::train::SampleOptions options{.temperature = 1, .top_k = top_k, .top_p = top_p};
        for (const double uniform : {0.37, 0x1.fffffffffffffp-1}) {
          ASSERT_EQ(draw_token<float>(logits, options, uniform),
                    drawn_of_all_sorted(logits, options, uniform))
              << steps << " steps, top_k " << top_k << ", top_p " << top_p << ", " << uniform;
        }
      }
    }
  }
}

TEST(DrawToken, RefusesWhatIsNoDistribution) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto draw = [](std::vector<float> logits) {
    return draw_token<float>(logits, {.temperature = 1.0F}, 0.5);
  };
  EXPECT_THROW(static_cast<void>(draw({0.0F, std::numeric_limits<float>::quiet_NaN()})), hs::NumericError);
  EXPECT_THROW(static_cast<void>(draw({0.0F, infinity})), hs::NumericError);
  EXPECT_THROW(static_cast<void>(draw({-infinity, -infinity})), hs::NumericError);
  EXPECT_THROW(static_cast<void>(draw({})), hs::NumericError);
  EXPECT_EQ(draw({-infinity, 0.0F}), 1);  // some tokens may be masked
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
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "ab", {.length = 8, .slide = 1}), "cdefghab");
  EXPECT_EQ(seen, (std::vector<std::size_t>{2, 3, 4, 4, 4, 4, 4, 4}));
  seen.clear();
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "ab", {.length = 8}), "cdefghab");
  EXPECT_EQ(seen, (std::vector<std::size_t>{2, 3, 4, 3, 4, 3, 4, 3}));
  seen.clear();
  EXPECT_EQ(hs::train::sample(Next{8, &seen}, tape, tokenizer, "abcdefg", {.length = 2}), "ha");
  EXPECT_EQ(seen, (std::vector<std::size_t>{4, 3}));
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

/// The same model, but sample does not know that it is a GPT.
template <class T>
struct Plain {
  const hs::nn::Gpt<T>* gpt;
  [[nodiscard]] int context() const { return gpt->context(); }
  auto operator()(hs::Tape& tape, std::span<const std::int32_t> ids) const { return (*gpt)(tape, ids); }
};

template <class T>
void expect_the_same_text_with_and_without_a_cache() {
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<T> parameters(runtime);
  const auto text = hs::data::Text::from_string("some text to take characters from, nothing more");
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(), .context = 12, .layers = 2, .heads = 2, .width = 16});
  hs::Tape tape(runtime);
  const auto written = [&](const auto& model, const hs::train::SampleOptions& options) {
    const std::uint64_t before = runtime.counters().flops;
    const auto out = hs::train::sample(model, tape, text.tokenizer(), "so", options);
    return std::pair{out, runtime.counters().flops - before};
  };
  for (const int slide : {0, 1, 5, 12}) {
    const hs::train::SampleOptions options{.length = 60, .top_k = 9, .top_p = 0.9, .slide = slide};
    const auto cached = written(gpt, options);
    const auto plain = written(Plain<T>{&gpt}, options);
    EXPECT_EQ(cached.first, plain.first) << slide;
    EXPECT_GT(cached.second, 0U);
    EXPECT_LT(cached.second, plain.second);
    if (slide == 0) {
      EXPECT_LT(3 * cached.second, plain.second);
    }
  }
  EXPECT_NE(written(gpt, {.length = 60, .slide = 1}).first, written(gpt, {.length = 60, .slide = 12}).first);
}
TEST(Sample, IsTheSameWithCachedKeysAndValuesAndCostsLess) {
  expect_the_same_text_with_and_without_a_cache<float>();
  expect_the_same_text_with_and_without_a_cache<hs::bf16>();
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
  EXPECT_THAT(message("a", {.top_k = -1}), HasSubstr("top_k is -1"));
  EXPECT_THAT(message("a", {.top_p = 0.0}), HasSubstr("top_p 0"));
  EXPECT_THAT(message("a", {.slide = 5}), HasSubstr("slide is 5; wanted 1 to the context of 4"));
  EXPECT_THAT(message("a", {.temperature = std::numeric_limits<float>::quiet_NaN()}), HasSubstr("temperature is nan"));
}

}  // namespace
