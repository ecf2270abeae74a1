// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/train/evaluate.hpp>

namespace hs = halfstep;
using testing::HasSubstr;

namespace {

/// Says the same whatever it sees: token t has logit t * log 2, so p(t) = 2^t / (2^V - 1).
struct Fixed {
  int vocabulary = 3;
  [[nodiscard]] int context() const { return 4; }
  hs::Variable<float> operator()(hs::Tape& tape, std::span<const std::int32_t> ids) const {
    std::vector<float> logits;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (int t = 0; t < vocabulary; ++t) logits.push_back(static_cast<float>(t) * 0.6931472F);
    }
    const auto rows = static_cast<std::int64_t>(tape.micro().rows);
    return hs::constant<float>(tape, {rows, static_cast<std::int64_t>(ids.size()) / rows, vocabulary}, logits);
  }
};

TEST(Evaluate, IsTheSummedLossOverEveryTokenButTheFirst) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  const std::vector<std::int32_t> tokens{0, 2, 1, 0, 0, 1, 2, 2, 2, 1, 0};
  double wanted = 0.0;  // -log p(t) = log 7 - t log 2
  for (std::size_t i = 1; i < tokens.size(); ++i) wanted += std::log(7.0) - tokens[i] * std::log(2.0);
  const auto result = hs::train::evaluate_tokens(Fixed{}, tape, tokens, {.rows = 2});
  EXPECT_EQ(result.count, 10);
  EXPECT_NEAR(result.nats, wanted, 1e-5);
  EXPECT_EQ(result.correct, std::count(tokens.begin() + 1, tokens.end(), 2));
  EXPECT_DOUBLE_EQ(result.nats_per_token(), result.nats / 10.0);
  EXPECT_NEAR(result.perplexity(), std::exp(wanted / 10.0), 1e-5);
}

// 23 windows, the last one short, in 7 batches: of 4 processes one has one batch fewer to give.
TEST(Evaluate, IsTheSameBitsHoweverManyProcessesShareIt) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(
      parameters, {.vocabulary = 31, .context = 8, .layers = 1, .heads = 1, .width = 8});
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 180; ++i) tokens.push_back(i * i % 31);
  hs::Tape tape(runtime);
  const auto flops_of = [&](const auto& f) {
    const std::uint64_t before = runtime.counters().flops;
    f();
    return runtime.counters().flops - before;
  };
  hs::train::Evaluation alone;
  const std::uint64_t all = flops_of([&] {
    alone = hs::train::evaluate_tokens(gpt, tape, tokens, {.rows = 4});
  });
  for (const int ranks : {2, 3, 4, 9}) {
    std::vector<std::vector<double>> parts(static_cast<std::size_t>(ranks));
    for (int turn = 0; turn < 2; ++turn) {  // in the second, all know what the others have
      for (int rank = 0; rank < ranks; ++rank) {
        hs::train::Evaluation shared;
        int asked = 0;
        const auto sum = [&](std::span<double> numbers) {
          parts[static_cast<std::size_t>(rank)].assign(numbers.begin(), numbers.end());
          for (std::size_t i = 0; turn == 1 && i < numbers.size(); ++i) {
            numbers[i] = 0.0;
            for (const auto& part : parts) numbers[i] += part[i];
          }
        };
        const std::uint64_t some = flops_of([&] {
          shared = hs::train::evaluate_tokens(
              gpt, tape, tokens,
              {.rows = 4,
               .should_stop = [&] { return ++asked < 0; },
               .share = {.rank = rank, .ranks = ranks, .sum = sum}});
        });
        EXPECT_EQ(asked, (7 + ranks - 1) / ranks);
        EXPECT_LE(22 * some, all * 4 * static_cast<unsigned>(asked)) << "of 4 windows a batch";
        if (turn == 0) continue;
        EXPECT_EQ(shared.nats, alone.nats) << ranks;
        EXPECT_EQ(shared.standard_error, alone.standard_error);
        EXPECT_EQ(shared.count, alone.count);
        EXPECT_EQ(shared.correct, alone.correct);
      }
    }
  }
}

// Windows of 4, 4 and 2 targets with sums L: sqrt(sum (L - mean n)^2 x 3 / 2) / 10.
TEST(Evaluate, StandardErrorIsThatOfARatioOverWindows) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  const std::vector<std::int32_t> tokens{0, 2, 1, 0, 0, 1, 2, 2, 2, 1, 0};
  const double a = std::log(7.0), b = std::log(2.0);
  const double sums[]{4 * a - 3 * b, 4 * a - 7 * b, 2 * a - 1 * b};
  const double counts[]{4, 4, 2};
  const double mean = (10 * a - 11 * b) / 10;
  double squares = 0.0;
  for (int i = 0; i < 3; ++i) squares += (sums[i] - mean * counts[i]) * (sums[i] - mean * counts[i]);
  EXPECT_NEAR(hs::train::evaluate_tokens(Fixed{}, tape, tokens).standard_error, std::sqrt(squares * 1.5) / 10, 1e-6);
  const std::vector<std::int32_t> one_window{0, 1, 2};
  EXPECT_EQ(hs::train::evaluate_tokens(Fixed{}, tape, one_window).standard_error, 0.0);
}

template <class T>
void expect_one_result_for_every_batch() {
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<T> parameters(runtime);
  const auto text = hs::data::Text::from_string(std::string("the quick brown fox jumps over a lazy dog, ") +
                                                std::string(40, 'x') + " and then it sleeps for a while near the fence.",
                                                {.held_out = 0.8});
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(), .context = 7, .layers = 2, .heads = 2, .width = 8});
  const auto one = hs::train::evaluate(gpt, parameters, text, {.rows = 1});
  EXPECT_EQ(one.count, static_cast<std::int64_t>(text.held_out().size()) - 1);
  EXPECT_EQ(one.bytes, one.count);
  for (const int rows : {2, 3, 8, 100}) {
    const auto other = hs::train::evaluate(gpt, parameters, text, {.rows = rows});
    EXPECT_EQ(other.nats, one.nats) << rows;  // better than promised: the very bits
    EXPECT_EQ(other.count, one.count) << rows;
    EXPECT_EQ(other.correct, one.correct) << rows;
    EXPECT_EQ(other.standard_error, one.standard_error) << rows;
    EXPECT_EQ(other.perplexity(), one.perplexity()) << rows;
  }
  EXPECT_NE(hs::train::evaluate(gpt, parameters, text, {.length = 3}).nats, one.nats);
}
TEST(Evaluate, DoesNotDependOnHowManyRowsRunAtATime) {
  expect_one_result_for_every_batch<float>();
  expect_one_result_for_every_batch<hs::bf16>();
}

/// Knows a target by the number of tokens that it has seen: the logit of class 1 is position * log 2.
struct Position {
  [[nodiscard]] int context() const { return 4; }
  hs::Variable<float> operator()(hs::Tape& tape, std::span<const std::int32_t> ids) const {
    const std::int64_t rows = tape.micro().rows, length = std::ssize(ids) / rows;
    std::vector<float> logits;
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
      logits.push_back(0.0F);
      logits.push_back(static_cast<float>(i % length) * 0.6931472F);
    }
    return hs::constant<float>(tape, {rows, length, 2}, logits);
  }
};

// Of 10 targets, all of class 1, each is worth log(1 + 2^-position). Windows of 4, begun 2 apart:
// the first has positions 0 to 3, the three after it add positions 2 and 3 each.
TEST(Evaluate, ASmallerStrideCountsEachTargetOnceWhereItHasSeenMost) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  const std::vector<std::int32_t> tokens(11, 1);
  const auto worth = [](int position) { return std::log(1.0 + std::exp2(-position)); };
  const double fresh = worth(2) + worth(3);
  for (const int rows : {1, 2, 3, 8}) {
    const auto result = hs::train::evaluate_tokens(Position{}, tape, tokens, {.stride = 2, .rows = rows});
    EXPECT_EQ(result.count, 10);
    EXPECT_EQ(result.correct, 10);
    EXPECT_NEAR(result.nats, worth(0) + worth(1) + 4 * fresh, 1e-6);
  }
  const auto apart = hs::train::evaluate_tokens(Position{}, tape, tokens, {.stride = 4});
  EXPECT_EQ(apart.nats, hs::train::evaluate_tokens(Position{}, tape, tokens).nats);
  EXPECT_NEAR(apart.nats, 3 * (worth(0) + worth(1)) + 2 * fresh, 1e-6);
}

TEST(Evaluate, CountsTheBytesOfWhatIsPredicted) {
  hs::Runtime runtime;
  hs::Parameters<float> parameters(runtime);
  const auto text = hs::data::Text::from_string("abc\xC3\xA9\xC3\xA9xy\xC3\xA9z", {.held_out = 0.5});  // abcéé|xyéz… by characters
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = text.vocabulary(), .context = 3, .layers = 1, .heads = 1, .width = 4});
  const auto result = hs::train::evaluate(gpt, parameters, text, {.rows = 1});
  EXPECT_EQ(result.count, static_cast<std::int64_t>(text.held_out().size()) - 1);
  EXPECT_EQ(result.bytes, text.tokenizer().count_bytes(text.held_out().subspan(1)));
  EXPECT_GT(result.bytes, result.count);
  EXPECT_NEAR(result.bits_per_byte(), result.nats / static_cast<double>(result.bytes) / std::log(2.0), 1e-12);
}

TEST(Evaluate, SaysWhatItCannotDo) {
  hs::Runtime runtime;
  hs::Tape tape(runtime);
  const auto message = [&](std::span<const std::int32_t> tokens, const hs::train::EvaluateOptions& options) {
    try {
      static_cast<void>(hs::train::evaluate_tokens(Fixed{}, tape, tokens, options));
    } catch (const hs::Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const std::vector<std::int32_t> one{1}, many{0, 1, 2};
  EXPECT_THAT(message(one, {}), HasSubstr("1 tokens; at least 2 are needed"));
  EXPECT_THAT(message(many, {.rows = 0}), HasSubstr("rows is 0"));
  EXPECT_THAT(message(many, {.length = -1}), HasSubstr("length is -1"));
}

}  // namespace
