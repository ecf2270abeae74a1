// SPDX-License-Identifier: MIT
// A small GPT trained by any number of ranks, with dropout, clipping, accumulation and, in fp16, a
// loss scale that overflows at first: what tests of equal bits repeat under other layouts, compiled
// once for all of them. Not part of the library.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

#include "dist/ranks.hpp"

namespace gpt_run {

namespace hs = halfstep;
namespace dist = halfstep::dist;
using ranks::Over;

struct Settings {
  int steps = 6;
  int micro_batches = 8;   ///< of a step, all ranks together
  std::uint64_t seed = 1;  ///< of weights, samples and dropout
  float clip = 0.5F;
  float dropout = 0.1F;
  float first_scale = 0.0F;  ///< of a dynamic loss scale; 0: none
  dist::DataParallelOptions parallel{};
  int segments = 1;          ///< of recompute
  int stage = 0;             ///< of ZeRO, on the ranks of a group
  bool one_host = false;     ///< ZeRO in memory that they share
  bool wrong_share = false;  ///< rank 1 computes what rank 0 does
};

struct Outcome {
  std::uint64_t hash = 0;
  double train_loss = 0.0, held_out = 0.0;
  std::int64_t micro_batches = 0;  ///< that this rank computed
  std::int64_t tokens = 0;         ///< of all ranks
  std::int64_t skipped = 0;
  std::int64_t parameters = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

[[nodiscard]] inline const hs::data::Text& text() {
  static const hs::data::Text made = [] {
    const char* list[] = {"the ", "river ", "king ", "went ", "under ", "a ", "stone ", "house.\n"};
    std::string words;
    for (std::uint64_t i = 0; words.size() < 6000; ++i)
      words += list[hs::core::uniform_below(5, 17, i, 8)];
    return hs::data::Text::from_string(words, {.seed = 1});
  }();
  return made;
}

/// Trains on the ranks of a group, or, without one, here alone. T is float, bf16 or fp16.
template <class T>
[[nodiscard]] Outcome run(hs::Runtime& runtime, dist::Group* group, const Settings& settings);

template <class T>
[[nodiscard]] Settings of_format(Settings settings) {
  // The first steps of fp16 overflow at this scale and are skipped.
  if constexpr (std::same_as<T, hs::fp16>) settings.first_scale = 0x1p24F;
  return settings;
}

template <class T>
Outcome alone(const Settings& settings) {
  hs::Runtime runtime({.threads = 1, .seed = settings.seed});
  return run<T>(runtime, nullptr, of_format<T>(settings));
}
/// What each rank comes to.
template <class T>
std::vector<Outcome> together(int n, Over over, const Settings& settings) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(n));
  ranks::run(n, over, [&](dist::Group& group) {
    hs::Runtime runtime({.threads = 1, .seed = settings.seed});
    outcomes[static_cast<std::size_t>(group.rank())] =
        run<T>(runtime, &group, of_format<T>(settings));
  });
  return outcomes;
}

/// n ranks come to what one process does, each having done 1/n of it.
template <class T>
void expect_as_alone(int n, Over over, const Settings& settings) {
  const Outcome one = alone<T>(settings);
  ASSERT_EQ(one.micro_batches, settings.steps * settings.micro_batches);
  for (Outcome rank : together<T>(n, over, settings)) {
    EXPECT_EQ(rank.micro_batches * n, one.micro_batches);
    rank.micro_batches = one.micro_batches;
    EXPECT_EQ(rank, one) << n << " ranks over " << ranks::to_string(over);
  }
}

}  // namespace gpt_run
