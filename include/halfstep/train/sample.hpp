// SPDX-License-Identifier: MIT
// Text from a language model, token by token: temperature, seeded draws, valid UTF-8 whatever the
// model writes. Not for speed: each token is a pass over the whole window.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/data/tokenizer.hpp>
#include <halfstep/numeric/elementary.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/evaluate.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::train {

struct SampleOptions {
  int length = 200;            ///< tokens to write
  float temperature = 0.8F;    ///< logits are divided by it; 0: always the likeliest token
  std::uint64_t seed = 1;      ///< of the draws; token i of the sample is a function of (seed, i)
  int context = 0;             ///< tokens that the model sees at most; 0: the model's context
  /// Called with each piece of text as it comes, always whole characters; may be empty.
  std::function<void(std::string_view)> on_text{};
  std::function<bool()> should_stop{};  ///< asked before each token; true ends the text there
};

/// A token by its probability softmax(logits / temperature): the first whose cumulative sum, in
/// double and in token order, exceeds `uniform` times the total. Temperature 0: the largest logit,
/// the first of equals.
/// @throws NumericError if a logit is NaN or +infinity.
template <class A>
[[nodiscard]] std::int32_t draw_token(std::span<const A> logits, float temperature, double uniform) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto x = static_cast<double>(logits[i]);
    if (!(x < 1e300)) {
      core::fail<NumericError>("sample: the logit of token ", i, " is ", x,
                               ". Did the training that made these weights diverge?");
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (temperature == 0.0F) return static_cast<std::int32_t>(best);
  const auto weight = [&](std::size_t i) {
    return numeric::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[best])) /
                        static_cast<double>(temperature));
  };
  double total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) total += weight(i);
  const double wanted = core::rounded(uniform * total);
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += weight(i);
    if (sum > wanted) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(best);  // only rounding leads here
}

/// Continues `prompt`; returns what was written, without the prompt. When the window is full its
/// oldest token leaves, and all the rest is computed again at its new position.
///
/// An empty prompt starts after a newline, or after token 0 where there is none.
/// @throws OptionError for a negative length, or a temperature that is negative or not finite;
/// DataError if the prompt holds what the tokenizer does not know.
template <class Model>
[[nodiscard]] std::string sample(const Model& model, Tape& tape, const data::Tokenizer& tokenizer,
                                 std::string_view prompt, const SampleOptions& options = {}) {
  if (options.length < 0) {
    core::fail<OptionError>("sample: length is ", options.length, "; wanted at least 0");
  }
  if (!(options.temperature >= 0.0F && options.temperature < 1e30F)) {
    core::fail<OptionError>("sample: temperature is ", options.temperature,
                            "; wanted 0 (always the likeliest token) or more, 0.8 usually");
  }
  const auto context =
      static_cast<std::size_t>(detail::length_of(model, options.context, "sample"));
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) {
    const auto symbols = tokenizer.symbols();
    std::size_t start = 0;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i] == U'\n') start = i;
    }
    tokens.push_back(static_cast<std::int32_t>(start));
  }
  data::StreamDecoder decoder(tokenizer);
  std::string out;
  const auto show = [&](const std::string& piece) {
    out += piece;
    if (options.on_text) options.on_text(piece);
  };
  constexpr std::uint64_t stream = core::stream("train.sample", "token");
  for (int i = 0; i < options.length; ++i) {
    if (options.should_stop && options.should_stop()) break;
    const std::size_t seen = tokens.size() < context ? tokens.size() : context;
    tape.begin(MicroBatch{.rows = 1}, Record::nothing);
    const auto logits = model(tape, std::span<const std::int32_t>(tokens).last(seen));
    const auto values = logits.value();
    const std::size_t vocabulary = values.size() / seen;
    const std::int32_t token =
        draw_token(values.last(vocabulary), options.temperature,
                   core::uniform64(options.seed, stream, static_cast<std::uint64_t>(i)));
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
