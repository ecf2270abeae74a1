// SPDX-License-Identifier: MIT
// A language generated from a small grammar whose entropy per character is known exactly: what a
// run trains on without a text at hand, beside the loss that no model can beat.
// Not for: parsing, or grammars whose text leaves in doubt how it came about.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/random.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

/// One choice of a rule: write `text`, then go on with rule `next`.
struct Production {
  std::string text;
  std::uint32_t weight = 1;  ///< chosen weight / (sum of the rule's weights) of the time
  std::string next;
};
struct Rule {
  std::string name;
  std::vector<Production> productions;
};

/// How well the language's own probabilities predict one of its texts.
struct GrammarScore {
  double nats = 0.0;           ///< sum of -log p over the characters
  std::int64_t count = 0;      ///< characters
  double standard_error = 0.0; ///< of nats_per_character() as an estimate of the entropy rate
  [[nodiscard]] double nats_per_character() const { return nats / static_cast<double>(count); }
};

/// A right-linear grammar, run for ever from its first rule: a Markov chain over rules.
///
/// In each rule no production's text begins another's, so the text so far always tells which
/// productions were chosen, and each character's distribution given all characters before it is
/// known: a character ends or narrows the set of productions that fit. Hence the entropy per
/// character is, with pi the stationary distribution over rules,
///
///   h = sum_r pi(r) sum_a -p(a) log p(a)  /  sum_r pi(r) sum_a p(a) length(a)
///
/// (a renewal process; the logarithms are the C library's: the figure is for a report, and the
/// generated text does not depend on it). A model that sees a shorter history than the whole text
/// cannot, on average, be below it.
class Grammar {
 public:
  /// Checks and keeps the rules.
  /// @throws OptionError naming the rule for: no rules, a name twice, a rule without productions,
  /// an empty text, a weight of 0, an unknown next, a text that begins another of its rule, and a
  /// rule that cannot be reached from the first or cannot get back to it.
  explicit Grammar(std::vector<Rule> rules) : rules_(std::move(rules)) {
    if (rules_.empty()) core::fail<OptionError>("Grammar: no rules");
    for (const Rule& rule : rules_) {
      check(rule);
      totals_.push_back(0);
      next_.emplace_back();
      for (const Production& production : rule.productions) {
        totals_.back() += production.weight;
        next_.back().push_back(find(production.next));
      }
    }
    check_connected();
    solve();
  }

  /// The language of the offline run: sentences of 27 different characters, in which the number of
  /// the subject decides the verb's ending, often 20 and more characters later: a window of a few
  /// bytes is at a loss where a longer memory is not (0.357 nats a character, 4-gram 0.444).
  [[nodiscard]] static Grammar sentences();

  /// The first n characters: a pure function of (seed, n), and a prefix of those for a larger n.
  [[nodiscard]] std::string generate(std::uint64_t seed, std::size_t n) const {
    std::string out;
    std::size_t rule = 0;
    for (std::uint64_t choice = 0; out.size() < n; ++choice) {
      std::uint64_t draw =
          core::uniform_below(seed, core::stream("data.grammar", "choice"), choice, totals_[rule]);
      std::size_t a = 0;
      while (draw >= rules_[rule].productions[a].weight) {
        draw -= rules_[rule].productions[a++].weight;
      }
      out += rules_[rule].productions[a].text;
      rule = next_[rule][a];
    }
    out.resize(n);
    return out;
  }

  /// h of the class's docstring, in nats a character (a byte here). Exact to double rounding.
  [[nodiscard]] double entropy_per_character() const { return entropy_; }
  /// How often each rule is used, as a share of all uses; in the order of the rules.
  [[nodiscard]] std::span<const double> stationary() const { return stationary_; }
  [[nodiscard]] std::span<const Rule> rules() const { return rules_; }

  /// -log p of each character given all before it, for a text that starts at the first rule (a
  /// prefix of a generated one does). From the first character that the language does not allow
  /// there, all are infinite.
  [[nodiscard]] std::vector<double> nats(std::string_view text) const {
    std::vector<double> result(text.size(), std::numeric_limits<double>::infinity());
    walk(text, [&](std::size_t i, double nats, std::size_t) { result[i] = nats; });
    return result;
  }

  /// Sums nats() over text[begin, end of text). The standard error is that of a ratio over cycles
  /// between visits to the first rule, which are independent; 0 where fewer than two are whole.
  [[nodiscard]] GrammarScore score(std::string_view text, std::size_t begin = 0) const {
    GrammarScore result;
    double cycle = 0.0, squares = 0.0;
    std::int64_t cycles = -1;  // the first visit begins one and ends none
    std::size_t read = 0;
    walk(text, [&](std::size_t i, double nats, std::size_t rule_begun) {
      read = i + 1;
      if (i < begin) return;
      if (rule_begun == 0) {
        if (++cycles > 0) squares = core::fma(cycle, cycle, squares);
        cycle = 0.0;
      }
      cycle += nats - entropy_;
      result.nats += nats;
    });
    if (read < text.size()) result.nats = std::numeric_limits<double>::infinity();
    result.count = static_cast<std::int64_t>(text.size()) - static_cast<std::int64_t>(begin);
    if (cycles > 1) result.standard_error = std::sqrt(squares) / static_cast<double>(result.count);
    return result;
  }

 private:
  [[nodiscard]] std::size_t find(std::string_view name) const {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].name == name) return i;
    }
    core::fail<OptionError>("Grammar: a production goes on with rule '", name,
                            "', which there is not. Is the name spelled right?");
  }

  void check(const Rule& rule) const {
    const auto bad = [&](const auto&... why) {
      core::fail<OptionError>("Grammar: rule '", rule.name, "' ", why...);
    };
    if (std::count_if(rules_.begin(), rules_.end(),
                      [&](const Rule& other) { return other.name == rule.name; }) != 1) {
      bad("is there twice");
    }
    if (rule.productions.empty()) bad("has no productions");
    for (const Production& a : rule.productions) {
      if (a.text.empty()) bad("has a production without text");
      if (a.weight == 0) bad("gives '", a.text, "' a weight of 0; leave it out instead");
      for (const Production& b : rule.productions) {
        if (&a != &b && b.text.starts_with(a.text)) {
          bad("has '", a.text, "', which begins '", b.text,
              "': the text would not tell which was chosen. End both with a space, say");
        }
      }
    }
  }

  /// Every rule reached from the first, and the first from every rule.
  void check_connected() const {
    for (const bool backwards : {false, true}) {
      std::vector<bool> reached(rules_.size());
      reached[0] = true;
      for (std::size_t pass = 0; pass < rules_.size(); ++pass) {
        for (std::size_t from = 0; from < rules_.size(); ++from) {
          for (const std::size_t to : next_[from]) {
            if (reached[backwards ? to : from]) reached[backwards ? from : to] = true;
          }
        }
      }
      const auto missing = std::find(reached.begin(), reached.end(), false);
      if (missing != reached.end()) {
        core::fail<OptionError>(
            "Grammar: rule '", rules_[static_cast<std::size_t>(missing - reached.begin())].name,
            backwards ? "' cannot get back to the first rule, so the language has no one entropy"
                      : "' cannot be reached from the first rule; leave it out");
      }
    }
  }

  /// pi P = pi, sum pi = 1, by elimination with the equation of the first rule replaced by the
  /// sum; then h.
  void solve() {
    const std::size_t n = rules_.size();
    std::vector<std::vector<double>> m(n, std::vector<double>(n + 1, 0.0));
    std::vector<double> nats(n, 0.0), length(n, 0.0);
    for (std::size_t r = 0; r < n; ++r) {
      m[r][r] -= 1.0;
      for (std::size_t a = 0; a < next_[r].size(); ++a) {
        const Production& production = rules_[r].productions[a];
        const double p = production.weight / static_cast<double>(totals_[r]);
        m[next_[r][a]][r] += p;
        nats[r] = core::fma(-p, std::log(p), nats[r]);
        length[r] = core::fma(p, static_cast<double>(production.text.size()), length[r]);
      }
    }
    std::fill(m[0].begin(), m[0].end(), 1.0);
    for (std::size_t column = 0; column < n; ++column) {
      std::size_t pivot = column;
      for (std::size_t row = column; row < n; ++row) {
        if (std::abs(m[row][column]) > std::abs(m[pivot][column])) pivot = row;
      }
      std::swap(m[column], m[pivot]);
      for (std::size_t row = 0; row < n; ++row) {
        if (row == column) continue;
        const double factor = m[row][column] / m[column][column];
        for (std::size_t k = column; k <= n; ++k) {
          m[row][k] = core::fma(-factor, m[column][k], m[row][k]);
        }
      }
    }
    double sum_nats = 0.0, sum_length = 0.0;
    for (std::size_t r = 0; r < n; ++r) {
      stationary_.push_back(m[r][n] / m[r][r]);
      sum_nats = core::fma(stationary_[r], nats[r], sum_nats);
      sum_length = core::fma(stationary_[r], length[r], sum_length);
    }
    entropy_ = sum_nats / sum_length;
  }

  /// visit(position, nats, rule that begins here or npos) for each character, up to the first that
  /// is not in the language.
  template <class Visit>
  void walk(std::string_view text, const Visit& visit) const {
    std::size_t rule = 0, i = 0;
    while (i < text.size()) {
      const auto& productions = rules_[rule].productions;
      const std::size_t start = i;
      std::uint64_t fitting = totals_[rule];  // weight of the productions that fit so far
      for (std::size_t chosen = productions.size(); chosen == productions.size();) {
        if (i == text.size()) return;
        const std::string_view seen = text.substr(start, i + 1 - start);
        std::uint64_t weight = 0;
        for (std::size_t a = 0; a < productions.size(); ++a) {
          if (!std::string_view(productions[a].text).starts_with(seen)) continue;
          weight += productions[a].weight;
          if (productions[a].text.size() == seen.size()) chosen = a;  // prefix-free: the only one
        }
        if (weight == 0) return;
        const double p = static_cast<double>(weight) / static_cast<double>(fitting);
        visit(i, weight == fitting ? 0.0 : -std::log(p),
              i == start ? rule : std::string_view::npos);
        fitting = weight;
        ++i;
        if (chosen != productions.size()) {
          rule = next_[rule][chosen];
          break;
        }
      }
    }
  }

  std::vector<Rule> rules_;
  std::vector<std::uint64_t> totals_;           ///< sum of weights, by rule
  std::vector<std::vector<std::size_t>> next_;  ///< rule by rule and production
  std::vector<double> stationary_;
  double entropy_ = 0.0;
};

inline Grammar Grammar::sentences() {
  const auto noun_phrase = [](std::string name, const std::string& singular,
                              const std::string& plural) {
    Rule rule{std::move(name), {}};
    const char* words[] = {"cat", "dog", "horse", "king", "river", "stone", "bird", "queen"};
    std::uint32_t weight = 9;
    for (const char* word : words) {
      rule.productions.push_back({core::text(word, " "), weight, singular});
      rule.productions.push_back({core::text(word, "s "), weight / 2, plural});
      if (weight > 2) --weight;
    }
    for (const char* word : {"old ", "small ", "very ", "white ", "young "}) {
      rule.productions.push_back({word, 3, rule.name});
    }
    return rule;
  };
  const auto verb = [](std::string name, const std::string& ending) {
    Rule rule{std::move(name), {}};
    std::uint32_t weight = 12;
    for (const char* word : {"see", "hear", "know", "find", "follow", "want"}) {
      rule.productions.push_back({core::text(word, ending, " "), weight, "object"});
      weight -= 2;
    }
    rule.productions.push_back({core::text("sleep", ending), 7, "end"});
    rule.productions.push_back({core::text("run", ending), 5, "end"});
    // What stands between a subject and its verb says nothing of the subject's number.
    for (const char* place : {"near the old bridge ", "in the white tower ", "of the far north "}) {
      rule.productions.push_back({place, 5, rule.name});
    }
    return rule;
  };
  const auto last_words = [] {
    Rule rule{"object noun", {}};
    std::uint32_t weight = 10;
    for (const char* word : {"apple", "bread", "door", "gold", "moon", "road", "song", "water"}) {
      rule.productions.push_back({word, weight, "end"});
      weight -= 1;
    }
    return rule;
  };
  return Grammar({
      {"sentence", {{"the ", 6, "subject"}, {"no ", 2, "subject"}, {"some ", 2, "subject"}}},
      noun_phrase("subject", "singular", "plural"),
      verb("singular", "s"),
      verb("plural", ""),
      {"object", {{"the ", 5, "object noun"}, {"a ", 2, "object noun"}, {"my ", 1, "object noun"}}},
      last_words(),
      {"end", {{".\n", 6, "sentence"}, {"; ", 2, "sentence"}, {" and ", 3, "sentence"}}},
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
