// SPDX-License-Identifier: MIT
#include <halfstep/data/ngram.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <require.hpp>

namespace {

using namespace halfstep;
using data::Ngram;

std::string pseudo_text(std::size_t n, std::uint32_t state) {
  std::string out;
  while (out.size() < n) {
    state = state * 1664525U + 1013904223U;
    out += "aab\xFF\0cd e"[(state >> 28) % 9];
    if ((state >> 20) % 5 == 0) out += "the ";
  }
  out.resize(n);
  return out;
}

/// Witten-Bell read once more, with maps of strings and no sharing between orders.
double obvious(const std::string& training, std::string context, char next) {
  if (context.size() > training.size()) return obvious(training, context.substr(1), next);
  double total = 0, hits = 0;
  std::set<char> kinds;
  for (std::size_t i = 0; i + context.size() < training.size(); ++i) {
    if (training.compare(i, context.size(), context) != 0) continue;
    const char follower = training[i + context.size()];
    total += 1;
    hits += follower == next ? 1 : 0;
    kinds.insert(follower);
  }
  const double below = context.empty() ? 1.0 / 256 : obvious(training, context.substr(1), next);
  if (total == 0) return below;
  const auto t = static_cast<double>(kinds.size());
  return (hits + t * below) / (total + t);
}

TEST(Ngram, OfATextOfThreeBytesIsThisByHand) {
  const Ngram ngram("aab", 1);
  const double a = (2 + 2 / 256.0) / 5, b = (1 + 2 / 256.0) / 5;  // 3 bytes, 2 kinds
  EXPECT_DOUBLE_EQ(ngram.probability("", 'a'), a);
  EXPECT_DOUBLE_EQ(ngram.probability("", 'z'), 2 / 256.0 / 5);
  EXPECT_DOUBLE_EQ(ngram.probability("a", 'b'), (1 + 2 * b) / 4);  // a is followed by a and by b
  EXPECT_DOUBLE_EQ(ngram.probability("xa", 'a'), (1 + 2 * a) / 4);
  EXPECT_DOUBLE_EQ(ngram.probability("b", 'a'), a);  // b is followed by nothing
}

TEST(Ngram, AgreesWithAnObviousReadingAtEveryOrder) {
  const std::string training = pseudo_text(300, 1), test = pseudo_text(60, 2);
  for (int order = 0; order <= 6; ++order) {
    const Ngram ngram(training, order);
    for (std::size_t i = 0; i < test.size(); ++i) {
      const std::size_t k = std::min(i, static_cast<std::size_t>(order));
      ASSERT_NEAR(ngram.probability(std::string_view(test).substr(0, i), test[i]),
                  obvious(training, test.substr(i - k, k), test[i]), 1e-15)
          << "order " << order << ", position " << i;
    }
  }
}

TEST(Ngram, ProbabilitiesSumToOne) {
  const std::string training = pseudo_text(1000, 3);
  for (const int order : {0, 1, 4, 6}) {
    const Ngram ngram(training, order);
    for (const char* history : {"", "a", "the ", "zzzz", "b the th"}) {
      double sum = 0;
      for (int c = 0; c < 256; ++c) sum += ngram.probability(history, static_cast<char>(c));
      EXPECT_NEAR(sum, 1.0, 1e-12);
    }
  }
}

TEST(Ngram, WithoutATrainingTextIsUniform) {
  const Ngram ngram("", 4);
  EXPECT_DOUBLE_EQ(ngram.score("hello").bits_per_byte(), 8.0);
}

TEST(Ngram, EveryByteFromBeginOnIsPredictedOnceWithTheTextBeforeItInView) {
  const std::string text = pseudo_text(2000, 4);
  const Ngram ngram(std::string_view(text).substr(0, 1800), 4);
  double sum = 0;
  for (std::size_t i = 1800; i < 2000; ++i) {
    sum -= std::log(ngram.probability(std::string_view(text).substr(i - 4, 4), text[i]));
  }
  const auto score = data::held_out_ngram(text, 1800);
  EXPECT_EQ(score.count, 200);
  EXPECT_NEAR(score.nats, sum, 1e-9);
  EXPECT_NE(score.nats, ngram.score(std::string_view(text).substr(1800)).nats);
}

TEST(Ngram, BadArgumentsAreNamed) {
  for (const int order : {-1, 7}) {
    try {
      (void)Ngram("x", order);
      FAIL();
    } catch (const OptionError& error) {
      EXPECT_EQ(error.what(), "Ngram: order " + std::to_string(order) + " is not in [0, 6]");
    }
  }
  try {
    (void)Ngram("x").score("abc", 3);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing to predict"), std::string::npos);
  }
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

double nats_on_the_last_tenth(const std::string& text) {
  const auto split = static_cast<std::size_t>(static_cast<double>(text.size()) * 0.9);
  return data::held_out_ngram(text, split).nats_per_byte();
}

TEST(SharedNgram, TinyShakespeareTakes1_6688NatsAByte) {
  const char* shared = std::getenv("HALFSTEP_SHARED");
  const std::string path = (shared != nullptr ? std::string(shared)
                                              : std::string(HALFSTEP_SOURCE_DIR "/../shared")) +
                           "/data/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) {
    HALFSTEP_SKIP_OR_FAIL("no " << path << "; set HALFSTEP_SHARED");
  }
  EXPECT_NEAR(nats_on_the_last_tenth(read(path)), 1.6688, 0.00005);
}

TEST(Ngram, TheKingJamesTextTakes1_3443NatsAByteAnd1_5976WithItsLabels) {
  FILE* pipe = ::popen("bible -f 'gen1:1-rev22:21' 2>/dev/null", "r");
  ASSERT_NE(pipe, nullptr);
  std::string labels;
  char buffer[65536];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    labels.append(buffer, got);
  }
  if (::pclose(pipe) != 0 || labels.empty()) {
    HALFSTEP_SKIP_OR_FAIL("no King James text: apt-get install bible-kjv bible-kjv-text");
  }
  // s/^[A-Za-z0-9]*[0-9]:[0-9]* // without a regular expression: up to the first space of a line.
  std::string text;
  for (std::size_t at = 0; at < labels.size();) {
    const std::size_t end = labels.find('\n', at);
    const std::size_t space = labels.find(' ', at);
    text.append(labels, space + 1, end - space);
    at = end + 1;
  }
  EXPECT_EQ(labels.size(), 4'404'412U);
  EXPECT_EQ(text.size(), 4'137'850U);
  EXPECT_NEAR(nats_on_the_last_tenth(text), 1.3443, 0.00005);
  EXPECT_NEAR(nats_on_the_last_tenth(labels), 1.5976, 0.00005);
}

}  // namespace
