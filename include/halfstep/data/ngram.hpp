// SPDX-License-Identifier: MIT
// A byte n-gram with Witten-Bell smoothing: the yardstick that a trained model's held-out loss is
// printed beside. Not for: sampling, or anything that reaches a weight.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::data {

namespace detail {

/// Counts by a non-zero 64-bit key: open addressing, at most half full, never shrinks.
class CountTable {
 public:
  /// The count of a key, made zero if it is new. The reference dies at the next call.
  [[nodiscard]] std::uint64_t& at(std::uint64_t key) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == 0) {
      slot.key = key;
      ++used_;
    }
    return slot.count;
  }
  [[nodiscard]] std::uint64_t get(std::uint64_t key) const {
    return slots_.empty() ? 0 : slots_[place(key)].count;
  }
  [[nodiscard]] std::size_t size() const { return used_; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint64_t count = 0;
  };
  [[nodiscard]] std::size_t place(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
    std::size_t at = static_cast<std::size_t>(hash) & (slots_.size() - 1);
    while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 1024 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[place(slot.key)] = slot;
    }
  }
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace detail

/// A sum of -log p over predicted symbols.
struct NgramScore {
  double nats = 0.0;
  std::int64_t count = 0;
  [[nodiscard]] double nats_per_byte() const { return nats / static_cast<double>(count); }
  [[nodiscard]] double bits_per_byte() const { return nats_per_byte() / 0.69314718055994530942; }
};

/// Interpolated Witten-Bell: with N(x) the times context x was followed by a byte in the training
/// text, T(x) by how many different ones, and x' the context without its oldest byte,
///
///   p(c | x) = (N(x c) + T(x) p(c | x')) / (N(x) + T(x)),   p(c | x') where x was never seen,
///
/// down to the empty context, whose p(c | x') is 1/256.
///
/// Cost: about 0.1 us a byte and order to build and to score. Memory: 32 to 64 bytes for each
/// different context and each different context with its follower.
/// The logarithms are the C library's: the score is for a report and may differ in its last digits
/// between machines.
/// Source: Witten & Bell, "The zero-frequency problem", IEEE Trans. Inf. Theory 37(4), 1991,
/// method C; interpolated as in Chen & Goodman 1998, 2.5.
class Ngram {
 public:
  /// Counts the contexts of 0 to `order` bytes in the training text, which is not kept.
  /// @throws OptionError if order is not in [0, 6].
  explicit Ngram(std::string_view training, int order = 4) : order_(order) {
    if (order < 0 || order > 6) {
      core::fail<OptionError>("Ngram: order ", order, " is not in [0, 6]");
    }
    for (std::size_t i = 0; i < training.size(); ++i) {
      for (std::size_t k = 0; k <= static_cast<std::size_t>(order) && k <= i; ++k) {
        const std::uint64_t context = key(training.substr(i - k, k));
        const std::uint64_t before = grams_.at(key(training.substr(i - k, k + 1)))++;
        // Total in the high half, kinds in the low one: one look-up finds both.
        contexts_.at(context) += kOne + (before == 0 ? 1U : 0U);
      }
    }
  }

  [[nodiscard]] int order() const { return order_; }

  /// p(next | the last `order` bytes of history). Sums to 1 over the 256 bytes, to rounding.
  [[nodiscard]] double probability(std::string_view history, char next) const {
    double p = 1.0 / 256.0;
    char gram[8];
    for (std::size_t k = 0; k <= static_cast<std::size_t>(order_) && k <= history.size(); ++k) {
      const std::string_view context = history.substr(history.size() - k);
      const std::uint64_t seen = contexts_.get(key(context));
      if (seen == 0) break;  // then no longer context was seen either
      const auto total = static_cast<double>(seen / kOne);
      const auto kinds = static_cast<double>(seen % kOne);
      context.copy(gram, k);
      gram[k] = next;
      const auto count = static_cast<double>(grams_.get(key(std::string_view(gram, k + 1))));
      p = (count + kinds * p) / (total + kinds);
    }
    return p;
  }

  /// Predicts every byte of text[begin, end of text) once, from the bytes before it, which may lie
  /// before `begin`: a held-out part is scored with the training part's end in view.
  /// @throws DataError if there is none.
  [[nodiscard]] NgramScore score(std::string_view text, std::size_t begin = 0) const {
    if (begin >= text.size()) {
      core::fail<DataError>("Ngram::score: byte ", begin, " is not inside a text of ", text.size(),
                            " bytes: nothing to predict. Is the held-out part empty?");
    }
    NgramScore result;
    for (std::size_t i = begin; i < text.size(); ++i) {
      result.nats -= std::log(probability(text.substr(0, i), text[i]));
    }
    result.count = static_cast<std::int64_t>(text.size() - begin);
    return result;
  }

 private:
  static constexpr std::uint64_t kOne = 1U << 9;  // kinds are at most 256

  /// At most 7 bytes, with their number in the eighth.
  [[nodiscard]] static std::uint64_t key(std::string_view bytes) {
    std::uint64_t result = bytes.size() + 1;
    for (const char c : bytes) result = result << 8 | static_cast<unsigned char>(c);
    return result;
  }

  int order_;
  detail::CountTable grams_;
  detail::CountTable contexts_;
};

/// The yardstick of a run: counts from text[0, split), score of the rest.
[[nodiscard]] inline NgramScore held_out_ngram(std::string_view text, std::size_t split,
                                               int order = 4) {
  return Ngram(text.substr(0, std::min(split, text.size())), order).score(text, split);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::data
