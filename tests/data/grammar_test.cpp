// SPDX-License-Identifier: MIT
#include <halfstep/data/grammar.hpp>
#include <halfstep/data/ngram.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace halfstep;
using data::Grammar;

std::string refusal(std::vector<data::Rule> rules) {
  try {
    (void)Grammar(std::move(rules));
  } catch (const OptionError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the message is: " << (text)

TEST(Grammar, ABiasedCoinHasTheBinaryEntropy) {
  const Grammar coin({{"s", {{"a", 1, "s"}, {"b", 3, "s"}}}});
  EXPECT_NEAR(coin.entropy_per_character(), -0.25 * std::log(0.25) - 0.75 * std::log(0.75), 1e-15);
  const Grammar words({{"s", {{"ab", 1, "s"}, {"ccc", 1, "s"}}}});
  EXPECT_NEAR(words.entropy_per_character(), std::log(2.0) / 2.5, 1e-15);
}

TEST(Grammar, AMarkovChainHasItsStationaryDistribution) {
  // s -> t for sure; t -> s with 1/3, t with 2/3: pi = (1/4, 3/4).
  const Grammar chain({{"s", {{"a", 7, "t"}}}, {"t", {{"bb", 1, "s"}, {"c", 2, "t"}}}});
  EXPECT_NEAR(chain.stationary()[0], 0.25, 1e-15);
  EXPECT_NEAR(chain.stationary()[1], 0.75, 1e-15);
  const double choice = std::log(3.0) - 2.0 / 3.0 * std::log(2.0);
  EXPECT_NEAR(chain.entropy_per_character(), 0.75 * choice / (0.25 + 0.75 * 4.0 / 3.0), 1e-15);
}

// The same rate in another way: every character as a state (rule, text since its start), whose
// frequencies come by iterating the chain of characters.
TEST(Grammar, TheEntropyIsThatOfTheChainOfCharacters) {
  const Grammar grammar = Grammar::sentences();
  using State = std::pair<std::string, std::string>;
  std::map<State, double> mass;
  std::map<State, std::map<char, double>> out;
  std::map<std::pair<State, char>, State> go;
  for (const auto& rule : grammar.rules()) {
    double total = 0;
    for (const auto& p : rule.productions) total += p.weight;
    for (const auto& p : rule.productions) {
      for (std::size_t i = 0; i < p.text.size(); ++i) {
        const State from{rule.name, p.text.substr(0, i)};
        out[from][p.text[i]] += p.weight / total;
        go[{from, p.text[i]}] = i + 1 == p.text.size() ? State{p.next, ""}
                                                       : State{rule.name, p.text.substr(0, i + 1)};
      }
    }
  }
  for (const auto& [state, followers] : out) mass[state] = 1.0 / static_cast<double>(out.size());
  for (int step = 0; step < 3000; ++step) {
    std::map<State, double> next;
    for (const auto& [state, m] : mass) {
      double all = 0;
      for (const auto& [c, w] : out[state]) all += w;
      for (const auto& [c, w] : out[state]) next[go[{state, c}]] += 0.5 * m * w / all;
      next[state] += 0.5 * m;  // lazily, so that it converges whatever the period
    }
    mass = std::move(next);
  }
  double entropy = 0;
  for (const auto& [state, m] : mass) {
    double all = 0;
    for (const auto& [c, w] : out[state]) all += w;
    for (const auto& [c, w] : out[state]) entropy -= m * w / all * std::log(w / all);
  }
  EXPECT_NEAR(grammar.entropy_per_character(), entropy, 1e-9);
  EXPECT_NEAR(grammar.entropy_per_character(), 0.35697, 0.00001);
}

TEST(Grammar, TheLanguagesOwnModelConvergesToItsEntropy) {
  const Grammar grammar = Grammar::sentences();
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const auto score = grammar.score(grammar.generate(seed, 400'000));
    EXPECT_EQ(score.count, 400'000);
    EXPECT_GT(score.standard_error, 0.0);
    EXPECT_LT(score.standard_error, 0.002);
    // 3.3 standard errors: six seeds together pass with a chance of 99.4 %, and always the same.
    EXPECT_LT(std::abs(score.nats_per_character() - grammar.entropy_per_character()),
              3.3 * score.standard_error)
        << "seed " << seed;
  }
}

TEST(Grammar, TheStandardErrorIsTheSpreadOfIndependentTexts) {
  const Grammar grammar = Grammar::sentences();
  const int texts = 200;
  double squares = 0, claimed = 0;
  for (int seed = 0; seed < texts; ++seed) {
    const auto score = grammar.score(grammar.generate(static_cast<std::uint64_t>(seed), 20'000));
    const double off = score.nats_per_character() - grammar.entropy_per_character();
    squares += off * off;
    claimed += score.standard_error * score.standard_error;
  }
  EXPECT_NEAR(std::sqrt(squares / claimed), 1.0, 0.2);  // 200 squares: standard deviation 0.05
}

TEST(Grammar, AnNgramCannotBeatTheFloor) {
  const Grammar grammar = Grammar::sentences();
  const std::string text = grammar.generate(11, 1'000'000);
  const auto floor = grammar.score(text, 900'000);
  for (const int order : {2, 4, 6}) {
    const auto ngram = data::held_out_ngram(text, 900'000, order);
    EXPECT_GT(ngram.nats_per_byte(), floor.nats_per_character() + 3 * floor.standard_error);
  }
  EXPECT_EQ(floor.count, 100'000);
}

TEST(Grammar, ATextIsAPureFunctionOfTheSeedAndAPrefixOfLongerOnes) {
  const Grammar grammar = Grammar::sentences();
  const std::string text = grammar.generate(5, 5000);
  for (const std::size_t n : {0U, 1U, 17U, 4999U}) {
    EXPECT_EQ(grammar.generate(5, n), text.substr(0, n));
  }
  EXPECT_NE(grammar.generate(6, 5000), text);
  EXPECT_EQ(std::set<char>(text.begin(), text.end()).size(), 27U);
  // Pinned: the offline run is the same text on every machine.
  EXPECT_EQ(Grammar::sentences().generate(1, 60),
            "the dog finds my apple; the dog sees a bread and some cat ru");
}

TEST(Grammar, EachCharacterIsPredictedFromAllBeforeIt) {
  const Grammar grammar({{"s", {{"ab", 1, "s"}, {"ac", 2, "s"}, {"d", 1, "s"}}}});
  const auto nats = grammar.nats("abdac");
  ASSERT_EQ(nats.size(), 5U);
  EXPECT_NEAR(nats[0], -std::log(3 / 4.0), 1e-15);
  EXPECT_NEAR(nats[1], -std::log(1 / 3.0), 1e-15);
  EXPECT_NEAR(nats[2], -std::log(1 / 4.0), 1e-15);
  EXPECT_NEAR(nats[3], -std::log(3 / 4.0), 1e-15);
  EXPECT_NEAR(nats[4], -std::log(2 / 3.0), 1e-15);
  EXPECT_NEAR(grammar.score("abdac", 2).nats, nats[2] + nats[3] + nats[4], 1e-15);
}

TEST(Grammar, WhatIsNotInTheLanguageHasNoProbability) {
  const Grammar grammar = Grammar::sentences();
  const auto nats = grammar.nats("the dog see ");
  EXPECT_TRUE(std::isfinite(nats[10]));  // "the dog see", which could become "sees"
  EXPECT_TRUE(std::isinf(nats[11]));     // but the subject is singular
  EXPECT_TRUE(std::isfinite(grammar.score("the dogs see ").nats));
  EXPECT_TRUE(std::isinf(grammar.score("the dog see ").nats));
}

TEST(Grammar, AGrammarWithoutOneKnownEntropyIsRefused) {
  EXPECT_SAYS(refusal({}), "no rules");
  EXPECT_SAYS(refusal({{"s", {}}}), "rule 's' has no productions");
  EXPECT_SAYS(refusal({{"s", {{"", 1, "s"}}}}), "a production without text");
  EXPECT_SAYS(refusal({{"s", {{"a", 0, "s"}}}}), "gives 'a' a weight of 0");
  EXPECT_SAYS(refusal({{"s", {{"a", 1, "t"}}}}), "rule 't', which there is not");
  EXPECT_SAYS(refusal({{"s", {{"a", 1, "s"}}}, {"s", {{"a", 1, "s"}}}}), "'s' is there twice");
  EXPECT_SAYS(refusal({{"s", {{"cat", 1, "s"}, {"cats", 1, "s"}}}}), "'cat', which begins 'cats'");
  EXPECT_SAYS(refusal({{"s", {{"a", 1, "s"}, {"a", 2, "s"}}}}), "which begins 'a'");
  EXPECT_SAYS(refusal({{"s", {{"a", 1, "s"}}}, {"t", {{"b", 1, "s"}}}}), "'t' cannot be reached");
  EXPECT_SAYS(refusal({{"s", {{"a", 1, "t"}}}, {"t", {{"b", 1, "t"}}}}), "'t' cannot get back");
}

}  // namespace
