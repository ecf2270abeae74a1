// SPDX-License-Identifier: MIT
// The weights after 20 steps of a small run, per format, pinned. Whatever changes a sum, a rounding
// point, a random number or the order of data changes them.
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <halfstep/core/isa.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/data/grammar.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/numeric/fp16.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/train/fit.hpp>

namespace {

namespace hs = halfstep;

// Sizes that are multiples of nothing, dropout, accumulation, clipping, decay, a warm-up that ends
// and, in fp16, the loss scaler: every part of a step.
template <class T>
hs::train::FitResult run(const hs::RuntimeOptions& options, float dropout = 0.1F) {
  hs::Runtime runtime(options);
  const auto text = hs::data::Text::from_string(hs::data::Grammar::sentences().generate(7, 20'000));
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(),
                                        .context = 33,
                                        .layers = 2,
                                        .heads = 3,
                                        .width = 48,
                                        .dropout = dropout});
  return hs::train::fit(gpt, parameters, text,
                        {.steps = 20,
                         .lr = 3e-3F,
                         .min_lr = 3e-4F,
                         .warmup = 5,
                         .clip = 1.0F,
                         .rows = 4,
                         .accumulate = 2});
}

std::string hex(std::uint64_t hash) {
  std::ostringstream out;
  out << std::hex << hash;
  return out.str();
}

// Lines "format hash"; the rest of a line after # is a comment.
std::map<std::string, std::string> pinned() {
  std::ifstream file(HALFSTEP_SOURCE_DIR "/tests/golden/hashes.txt");
  std::map<std::string, std::string> result;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string format, hash;
    if (words >> format >> hash) result[format] = hash;
  }
  return result;
}

template <class T>
class Golden : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(Golden, Formats);

TYPED_TEST(Golden, TwentyStepsEndWithThePinnedWeights) {
  const auto expected = pinned();
  const std::string format(hs::format_name<TypeParam>);
  ASSERT_EQ(expected.count(format), 1U) << "tests/golden/hashes.txt has no line for " << format;
  const auto result = run<TypeParam>({.seed = 7});
  EXPECT_EQ(result.steps, 20);
  EXPECT_EQ(result.micro_batches, 40);
  EXPECT_EQ(hex(result.weights_hash), expected.at(format))
      << "the line that these weights would have:\n"
      << format << ' ' << hex(result.weights_hash);
}

TYPED_TEST(Golden, AnotherSeedOrDropoutEndsWithOthers) {
  const auto expected = pinned();
  const std::string format(hs::format_name<TypeParam>);
  ASSERT_EQ(expected.count(format), 1U);
  EXPECT_NE(hex(run<TypeParam>({.seed = 8}).weights_hash), expected.at(format));
  EXPECT_NE(hex(run<TypeParam>({.seed = 7}, 0.2F).weights_hash), expected.at(format));
}

TYPED_TEST(Golden, EveryPathAndNumberOfThreadsEndsWithThem) {
  const auto expected = pinned();
  const std::string format(hs::format_name<TypeParam>);
  ASSERT_EQ(expected.count(format), 1U);
  for (const hs::core::Isa isa : hs::core::available_isas()) {
    for (const int threads : {1, 3}) {
      const auto result = run<TypeParam>({.threads = threads, .seed = 7, .isa = isa});
      EXPECT_EQ(hex(result.weights_hash), expected.at(format))
          << hs::core::to_string(isa) << ", " << threads << " threads";
    }
  }
}

TEST(GoldenFile, TheThreeFormatsEndWithThreeDifferentWeights) {
  const auto expected = pinned();
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_NE(expected.at("float"), expected.at("bf16"));
  EXPECT_NE(expected.at("bf16"), expected.at("fp16"));
  EXPECT_NE(expected.at("fp16"), expected.at("float"));
}

}  // namespace
