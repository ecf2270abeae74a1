// SPDX-License-Identifier: MIT
#include <halfstep/data/text.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <require.hpp>

namespace {

using namespace halfstep;
using data::Order;
using data::Text;

template <class E, class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the message is: " << (text)

/// n different characters in ascending order: token i is at position i, so that a duplicate or a
/// gap shows.
std::string consecutive(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) data::append_utf8(text, static_cast<char32_t>(0x100 + i));
  return text;
}

MicroBatch micro(std::int64_t first_sample, int rows) { return {0, 0, first_sample, rows}; }

TEST(Text, IsSplitByPositionAsIntOfTheProduct) {
  for (const int n : {10, 11, 19, 20, 21, 999}) {
    const auto text = Text::from_string(consecutive(n), {.held_out = 0.1});
    EXPECT_EQ(text.vocabulary(), n);
    EXPECT_EQ(text.train().size(), static_cast<std::size_t>(n * 9 / 10)) << n;
    EXPECT_EQ(text.train().size() + text.held_out().size(), static_cast<std::size_t>(n));
    EXPECT_EQ(text.train().front(), 0);
    EXPECT_EQ(text.held_out().back(), n - 1);
    EXPECT_EQ(text.held_out().front(), text.train().back() + 1);
  }
}

TEST(Text, ARowIsTheCropOfItsSampleAndTheTargetsAreOneOn) {
  for (const auto order : {Order::random, Order::epochs}) {
    const auto text = Text::from_string(consecutive(500), {.seed = 3, .order = order});
    for (const int length : {1, 7, 64, 449}) {
      const auto batch = text.batch(micro(11, 5), length);
      ASSERT_EQ(batch.rows, 5);
      ASSERT_EQ(batch.length, length);
      ASSERT_EQ(batch.inputs.size(), static_cast<std::size_t>(5 * length));
      ASSERT_EQ(batch.targets.size(), batch.inputs.size());
      for (int i = 0; i < 5 * length; ++i) {
        const auto wanted = text.start_of(11 + i / length, length) + i % length;
        ASSERT_EQ(batch.inputs[static_cast<std::size_t>(i)], wanted);
        ASSERT_EQ(batch.targets[static_cast<std::size_t>(i)], wanted + 1);
        ASSERT_LT(wanted + 1, 450) << "a target is from the held-out part";
      }
    }
  }
}

// Expected values by an independent Philox4x32-10 and 128-bit product in Python.
TEST(Text, CropsAreTheseOnEveryMachine) {
  const std::string letters(1'115'394, 'x');
  const auto text = Text::from_string(letters, {.seed = 7});
  EXPECT_EQ(text.start_of(0, 64), 297100);
  EXPECT_EQ(text.start_of(1, 64), 492413);
  EXPECT_EQ(text.start_of(2, 64), 848673);
  EXPECT_EQ(text.start_of(3, 64), 133265);
  EXPECT_EQ(text.start_of(10'000'000'000, 64), 57488);
  EXPECT_EQ(Text::from_string(letters, {.seed = 8}).start_of(0, 64), 386423);
}

TEST(Text, ASampleDoesNotDependOnHowTheSamplesAreCutIntoMicroBatches) {
  for (const auto order : {Order::random, Order::epochs}) {
    const auto text = Text::from_string(consecutive(900), {.seed = 5, .order = order});
    const auto whole = text.batch(micro(96, 12), 16);
    std::vector<std::int32_t> inputs, targets;
    const std::vector<std::pair<int, int>> cuts{{96, 5}, {101, 1}, {102, 6}};
    for (const auto& [first, rows] : cuts) {
      const auto part = text.batch(micro(first, rows), 16);
      inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
      targets.insert(targets.end(), part.targets.begin(), part.targets.end());
    }
    EXPECT_EQ(whole.inputs, inputs);
    EXPECT_EQ(whole.targets, targets);
    // The difference: other samples, another seed, another order.
    EXPECT_NE(whole.inputs, text.batch(micro(97, 12), 16).inputs);
    EXPECT_NE(whole.inputs, Text::from_string(consecutive(900), {.seed = 6, .order = order})
                                .batch(micro(96, 12), 16).inputs);
  }
  EXPECT_NE(Text::from_string(consecutive(900), {.order = Order::random})
                .batch(micro(96, 12), 16).inputs,
            Text::from_string(consecutive(900), {.order = Order::epochs})
                .batch(micro(96, 12), 16).inputs);
}

TEST(Text, RandomCropsReachBothEndsAndAreUniform) {
  const auto text = Text::from_string(consecutive(100));  // 90 for training
  std::vector<int> hits(81);                              // starts 0 to 80 for 9 and a target
  const int draws = 81 * 1000;
  for (int g = 0; g < draws; ++g) ++hits.at(static_cast<std::size_t>(text.start_of(g, 9)));
  double chi2 = 0.0;
  for (const int n : hits) chi2 += (n - 1000.0) * (n - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 80 + 5 * std::sqrt(160.0));  // 80 degrees of freedom, 5 standard deviations
  EXPECT_EQ(Text::from_string(consecutive(20), {.held_out = 0.5}).start_of(3, 9), 0);  // just fits
}

TEST(Text, AnEpochShowsEachPieceOnceAndTheNextInAnotherOrder) {
  const auto text = Text::from_string(consecutive(1000), {.seed = 9, .order = Order::epochs});
  for (const int length : {1, 8, 10, 64, 899}) {
    const auto n = text.samples_per_epoch(length);
    ASSERT_EQ(n, 899 / length);  // 900 tokens, one of them only a target
    std::vector<std::vector<std::int64_t>> epochs;
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> seen;
      epochs.emplace_back();
      for (std::int64_t i = 0; i < n; ++i) {
        const auto start = text.start_of(epoch * n + i, length);
        ASSERT_EQ(start % length, 0);
        ASSERT_LE(start + length, 899);
        seen.insert(start);
        epochs.back().push_back(start);
      }
      ASSERT_EQ(seen.size(), static_cast<std::size_t>(n)) << "length " << length;
    }
    if (n > 10) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_NE(epochs[1], epochs[2]);
    }
  }
}

TEST(Text, ABatchThatIsReusedIsNotAllocatedAgain) {
  const auto text = Text::from_string(consecutive(500));
  data::Batch batch;
  text.batch(micro(0, 8), 16, batch);
  const auto* inputs = batch.inputs.data();
  const auto* targets = batch.targets.data();
  text.batch(micro(8, 8), 16, batch);
  text.batch(micro(16, 3), 16, batch);
  EXPECT_EQ(batch.inputs.data(), inputs);
  EXPECT_EQ(batch.targets.data(), targets);
  EXPECT_EQ(batch.inputs, text.batch(micro(16, 3), 16).inputs);
}

TEST(Text, EveryHeldOutTokenButTheFirstIsPredictedExactlyOnce) {
  for (const int n : {20, 21, 100, 999}) {
    const auto text = Text::from_string(consecutive(n), {.held_out = 0.5});
    for (const int length : {1, 2, 3, 9, 10, 64}) {
      if (static_cast<std::size_t>(length) >= text.train().size()) continue;
      std::int64_t next = text.held_out().front();
      for (const auto& window : text.windows(length)) {
        ASSERT_EQ(window.inputs.size(), window.targets.size());
        ASSERT_LE(window.inputs.size(), static_cast<std::size_t>(length));
        ASSERT_FALSE(window.inputs.empty());
        for (std::size_t i = 0; i < window.inputs.size(); ++i) {
          ASSERT_EQ(window.inputs[i], next);
          ASSERT_EQ(window.targets[i], ++next);
        }
      }
      ASSERT_EQ(next, n - 1) << "length " << length;
    }
  }
}

TEST(Text, WindowsThatOverlapStillPredictEachTokenOnceAndKnowWhatTheWindowBeforeHas) {
  for (int n = 2; n < 40; ++n) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
    std::iota(tokens.begin(), tokens.end(), 0);
    for (int length = 1; length < 12; ++length) {
      for (int stride = 1; stride <= length; ++stride) {
        std::int32_t next = 1;
        int start = 0;
        for (const auto& window : data::windows_of(tokens, length, stride)) {
          ASSERT_EQ(window.inputs.front(), start);
          ASSERT_EQ(window.targets.front(), start + 1);
          ASSERT_EQ(window.seen, static_cast<std::size_t>(start == 0 ? 0 : length - stride));
          ASSERT_LT(window.seen, window.targets.size());
          ASSERT_EQ(window.targets[window.seen], next);
          ASSERT_EQ(window.fresh().front(), next);
          next = window.targets.back() + 1;
          start += stride;
        }
        ASSERT_EQ(next, n) << "length " << length << ", stride " << stride;
      }
    }
  }
}

TEST(Text, WindowsRefuseALengthOrAStrideOutOfRange) {
  EXPECT_TRUE(data::windows_of({}, 4).empty());
  EXPECT_SAYS(message<OptionError>([] { (void)data::windows_of({}, 0); }), "length is 0");
  EXPECT_SAYS(message<OptionError>([] { (void)data::windows_of({}, 4, 5); }),
              "windows of 4 tokens begin 5 apart");
  EXPECT_SAYS(message<OptionError>([] { (void)data::windows_of({}, 4, -1); }), "begin -1 apart");
}

TEST(Text, TheVocabularyIsThatOfTheWholeTextHeldOutPartIncluded) {
  const auto text = Text::from_string("aaaaaaaaaz");
  EXPECT_EQ(text.vocabulary(), 2);
  EXPECT_EQ(text.held_out().front(), 1);
}

TEST(Text, AGivenTokenizerIsUsed) {
  const auto tokenizer = data::Tokenizer::characters("abcdef");
  const auto text = Text::from_string("fade", {.held_out = 0.5}, tokenizer);
  EXPECT_EQ(text.vocabulary(), 6);
  EXPECT_EQ(text.train().front(), 5);
  EXPECT_SAYS(message<DataError>([&] { (void)Text::from_string("fudge", {}, tokenizer); }),
              "U+75 'u' at byte 1");
}

TEST(Text, TheByteTokenizerIsAnOption) {
  const auto text = Text::from_string("\xC3\xA4nd", {.tokenizer = data::TokenizerKind::byte});
  EXPECT_EQ(text.vocabulary(), 256);
  EXPECT_EQ(text.tokens().size(), 4U);
  EXPECT_EQ(text.bytes(), 4);
}

TEST(Text, AHeldOutFractionOutsideZeroToOneIsRefused) {
  for (const double bad : {0.0, 1.0, -0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    const auto text =
        message<OptionError>([&] { (void)Text::from_string("hello", {.held_out = bad}); });
    EXPECT_SAYS(text, "must lie between 0 and 1");
  }
  EXPECT_SAYS(message<OptionError>([] { (void)Text::from_string("hello", {.held_out = 1.5}); }),
              "held_out is 1.5");
}

TEST(Text, ATextShorterThanAContextSaysWhatToDo) {
  const auto text = Text::from_string(consecutive(70));  // 63 for training
  const auto wanted =
      "the training part has 63 of 70 tokens, but a context of 64 needs at least 65";
  data::Batch batch;
  for (const auto& said : {message<DataError>([&] { text.require_context(64); }),
                           message<DataError>([&] { text.batch(micro(0, 1), 64, batch); }),
                           message<DataError>([&] { (void)text.start_of(0, 64); }),
                           message<DataError>([&] { (void)text.samples_per_epoch(64); })}) {
    EXPECT_SAYS(said, wanted);
    EXPECT_SAYS(said, "Use a longer text");
  }
  EXPECT_NO_THROW(text.require_context(62));
  EXPECT_THROW(text.require_context(63), DataError);
}

TEST(Text, AHeldOutPartWithNothingToPredictSaysWhatToDo) {
  const auto text = Text::from_string("helloworld");  // 9 and 1
  const auto said = message<DataError>([&] { (void)text.windows(4); });
  EXPECT_SAYS(said, "the held-out part has 1 of 10 tokens");
  EXPECT_SAYS(said, "larger held-out fraction (0.1 now)");
}

TEST(Text, ABadMicroBatchIsRefused) {
  const auto text = Text::from_string(consecutive(100));
  EXPECT_SAYS(message<OptionError>([&] { (void)text.batch(micro(0, 0), 4); }), "has 0 rows");
  EXPECT_SAYS(message<OptionError>([&] { (void)text.batch(micro(-1, 2), 4); }), "sample -1");
  EXPECT_SAYS(message<OptionError>([&] { (void)text.batch(micro(0, 1), 0); }), "context of 0");
  EXPECT_SAYS(message<OptionError>([&] { (void)text.start_of(-2, 4); }), "sample -2 is negative");
}

TEST(Text, AMissingOrEmptyFileSaysWhatToDo) {
  std::string folder = (std::filesystem::temp_directory_path() / "halfstep-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/text.txt";
  EXPECT_SAYS(message<FileError>([&] { (void)Text::open(path); }),
              "cannot open '" + path + "': No such file or directory. Is the path right?");
  core::write_file_atomically(path, "");
  EXPECT_SAYS(message<FileError>([&] { (void)Text::open(path); }),
              "'" + path + "' is empty. Give a file with text in it");
  EXPECT_SAYS(message<DataError>([&] { (void)Text::from_string(""); }), "the text is empty");
  EXPECT_SAYS(message<FileError>([&] { (void)Text::open(folder); }), "is a directory");
  core::write_file_atomically(path, "some text");
  EXPECT_EQ(Text::open(std::filesystem::path(path)).tokens().size(), 9U);
  std::filesystem::remove_all(folder);
}

TEST(Text, TheHashIsFnv1aOfTheBytes) {
  EXPECT_EQ(data::data_hash(""), 0xCBF29CE484222325U);  // the published vectors
  EXPECT_EQ(data::data_hash("a"), 0xAF63DC4C8601EC8CU);
  EXPECT_EQ(data::data_hash("foobar"), 0x85944171F73967E8U);
  EXPECT_EQ(Text::from_string("foobar").hash(), 0x85944171F73967E8U);
}

TEST(SharedText, TinyShakespeareIsSplitAsNanoGptSplitsIt) {
  const char* shared = std::getenv("HALFSTEP_SHARED");
  const std::string path = (shared != nullptr ? std::string(shared)
                                              : std::string(HALFSTEP_SOURCE_DIR "/../shared")) +
                           "/data/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) {
    HALFSTEP_SKIP_OR_FAIL("no " << path << "; set HALFSTEP_SHARED");
  }
  const auto text = Text::open(path);
  EXPECT_EQ(text.tokens().size(), 1'115'394U);
  EXPECT_EQ(text.vocabulary(), 65);
  EXPECT_EQ(text.train().size(), 1'003'854U);
  EXPECT_EQ(text.held_out().size(), 111'540U);
  EXPECT_EQ(text.hash(), 0x4016C93C3BE74C18U);  // by an independent FNV-1a
  EXPECT_EQ(text.windows(64).size(), 1743U);    // 111539 predictions by 64, rounded up
}

}  // namespace
