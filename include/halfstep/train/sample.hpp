// SPDX-License-Identifier: MIT
// Text from a language model, token by token: temperature, top-k, top-p, seeded draws, valid UTF-8
// whatever the model writes. Not for: many texts at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/data/tokenizer.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/gpt_cache.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/elementary_double.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

struct SampleOptions {
  int length = 200;          ///< tokens to write
  float temperature = 0.8F;  ///< logits are divided by it; 0: always the likeliest token
  int top_k = 0;             ///< only the k likeliest tokens are drawn from; 0: all
  double top_p = 1.0;        ///< of those, only the likeliest with this share together, (0, 1]
  std::uint64_t seed = 1;    ///< of the draws; token i of the sample is a function of (seed, i)
  int context = 0;           ///< tokens that the model sees at most; 0: the model's context
  int slide = 0;             ///< oldest tokens that leave a full window together; 0: half of it
  /// Called with each piece of text as it comes, always whole characters; may be empty.
  std::function<void(std::string_view)> on_text{};
  std::function<bool()> should_stop{};  ///< asked before each token; true ends the text there
};

namespace detail {

/// Sets to zero the weights of all tokens but those that top_k and top_p leave. Without top_p
/// nothing is sorted; with it, pieces that grow up to ninefold: at most 9 times what is kept,
/// plus 64.
template <class A>
void drop_unlikely(std::span<const A> logits, const SampleOptions& options,
                   std::span<double> weights) {
  const std::size_t n = logits.size();
  const std::size_t keep =
      options.top_k > 0 ? std::min(n, static_cast<std::size_t>(options.top_k)) : n;
  if (keep == n && options.top_p >= 1.0) return;
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const auto drop = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      weights[order[i]] = 0.0;
  };
  if (keep < n) std::nth_element(at(0), at(keep), at(n), likelier);
  drop(keep, n);
  if (options.top_p >= 1.0) return;
  double total = 0.0, sum = 0.0;
  for (const double weight : weights)
    total += weight;
  const double wanted = core::rounded(options.top_p * total);
  std::size_t kept = 0, sorted = 0;
  do {
    if (kept == sorted) {
      sorted = std::min(keep, 8 * sorted + 64);
      if (sorted < keep) std::nth_element(at(kept), at(sorted), at(keep), likelier);
      std::sort(at(kept), at(sorted), likelier);
    }
    sum += weights[order[kept++]];
  } while (sum < wanted && kept < keep);
  drop(kept, keep);
}

/// The logits of the token after a window, by a pass over all of it.
template <class Model>
class NextLogits {
 public:
  NextLogits(const Model& model, Tape& tape) : model_(model), tape_(tape) {}
  [[nodiscard]] auto operator()(std::span<const std::int32_t> window, bool /*moved*/) {
    tape_.begin(MicroBatch{.rows = 1}, Record::nothing);
    const auto values = model_(tape_, window).value();
    return values.last(values.size() / window.size());
  }

 private:
  const Model& model_;
  Tape& tape_;
};
/// The same of a GPT, which reads only what it has not read yet, unless the window has moved.
template <numeric::real_element T>
class NextLogits<nn::Gpt<T>> {
 public:
  NextLogits(const nn::Gpt<T>& gpt, Tape& /*tape*/) : cache_(gpt) {}
  [[nodiscard]] auto operator()(std::span<const std::int32_t> window, bool moved) {
    if (moved) cache_.clear();
    return cache_.read(window.subspan(static_cast<std::size_t>(cache_.size())));
  }

 private:
  nn::GptCache<T> cache_;
};

inline void check(const SampleOptions& options, int context) {
  if (options.length < 0) {
    core::fail<OptionError>("sample: length is ", options.length, "; wanted at least 0");
  }
  if (!(options.temperature >= 0.0F && options.temperature < 1e30F)) {
    core::fail<OptionError>("sample: temperature is ", options.temperature,
                            "; wanted 0 (always the likeliest token) or more, 0.8 usually");
  }
  if (options.top_k < 0 || !(options.top_p > 0.0 && options.top_p <= 1.0)) {
    core::fail<OptionError>("sample: top_k is ", options.top_k, " and top_p ", options.top_p,
                            "; wanted 0 (all tokens) or more, and a share in (0, 1]");
  }
  if (options.slide < 0 || options.slide > context) {
    core::fail<OptionError>("sample: slide is ", options.slide, "; wanted 1 to the context of ",
                            context, ", or 0 for half of it");
  }
}

}  // namespace detail

/// A token by its probability, softmax(logits / temperature) over the tokens that are left: the
/// first whose cumulative sum, in double and in token order, exceeds `uniform` times the total.
/// Temperature 0: the largest logit, the first of equals.
///
/// Left are, of all tokens by falling logit, equals by rising number, the first top_k; and of these
/// the fewest from the front whose sum, from the front, reaches top_p times that of all top_k in
/// token order: at least one. Work for n tokens: n exponentials and O(n) comparisons, and with
/// top_p a sort of at most 9 times what is kept, plus 64. Memory: 8 bytes a token, 16 with top_k or
/// top_p.
/// @throws NumericError if a logit is NaN or +infinity, or none is more than -infinity.
template <class A>
[[nodiscard]] std::int32_t draw_token(std::span<const A> logits, const SampleOptions& options,
                                      double uniform) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto x = static_cast<double>(logits[i]);
    if (!(x < 1e300)) {
      core::fail<NumericError>("sample: the logit of token ", i, " is ", x,
                               ". Did the training that made these weights diverge?");
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || static_cast<double>(logits[best]) < -1e300) {
    core::fail<NumericError>("sample: of ", logits.size(), " logits none is more than -infinity. ",
                             "Does the model mask every token?");
  }
  if (options.temperature == 0.0F) return static_cast<std::int32_t>(best);
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = numeric::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[best])) /
                              static_cast<double>(options.temperature));
  }
  detail::drop_unlikely(logits, options, std::span(weights));
  double total = 0.0;
  for (const double weight : weights)
    total += weight;
  const double wanted = core::rounded(uniform * total);
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += weights[i];
    if (sum > wanted) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(best);  // only rounding leads here
}

/// Continues `prompt`; returns what was written, without the prompt.
///
/// The model sees a window of at most `context` tokens, the prompt's last ones at first. When it is
/// full, its `slide` oldest tokens leave, and all the rest is read again at its new places. An
/// nn::Gpt reads each token once otherwise (nn/gpt_cache.hpp), so that a token costs one token, and
/// with half a window at a time no more than two on average; another model reads the whole window
/// for each. The text does not depend on which.
///
/// An empty prompt starts after a newline, or after token 0 where there is none.
/// @throws OptionError for an option out of range; DataError if the prompt holds what the tokenizer
/// does not know.
template <class Model>
[[nodiscard]] std::string sample(const Model& model, Tape& tape, const data::Tokenizer& tokenizer,
                                 std::string_view prompt, const SampleOptions& options = {}) {
  const int wanted = detail::length_of(model, options.context, "sample");
  detail::check(options, wanted);
  const auto context = static_cast<std::size_t>(wanted);
  const auto slide =
      static_cast<std::size_t>(options.slide > 0 ? options.slide : std::max(1, wanted / 2));
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) tokens.push_back(tokenizer.newline().value_or(0));
  std::size_t begin = tokens.size() > context ? tokens.size() - context : 0;
  detail::NextLogits<Model> next(model, tape);
  data::StreamDecoder decoder(tokenizer);
  std::string out;
  const auto show = [&](const std::string& piece) {
    out += piece;
    if (options.on_text) options.on_text(piece);
  };
  constexpr std::uint64_t stream = core::stream("train.sample", "token");
  for (int i = 0; i < options.length; ++i) {
    if (options.should_stop && options.should_stop()) break;
    const bool moved = tokens.size() - begin > context;
    if (moved) begin += slide;
    const auto logits = next(std::span<const std::int32_t>(tokens).subspan(begin), moved);
    const std::int32_t token = draw_token(
        logits, options, core::uniform64(options.seed, stream, static_cast<std::uint64_t>(i)));
    tokens.push_back(token);
    show(decoder.push(token));
  }
  show(decoder.finish());
  return out;
}

/// As above, on a tape of its own, with the text's tokenizer.
template <class Model, class T>
[[nodiscard]] std::string sample(const Model& model, Parameters<T>& parameters,
                                 const data::Text& text, std::string_view prompt,
                                 const SampleOptions& options = {}) {
  Tape tape(parameters.runtime());
  return sample(model, tape, text.tokenizer(), prompt, options);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::train
