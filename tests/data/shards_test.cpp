// SPDX-License-Identifier: MIT
#include <halfstep/data/shards.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/data/text.hpp>

namespace {

using namespace halfstep;
using data::Order;
using data::ShardFormat;
using data::Shards;
using data::write_shard;
using testing::HasSubstr;

class ShardFiles : public testing::Test {
 protected:
  ShardFiles() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "halfstep-shards-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~ShardFiles() override { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string at(const std::string& name) const { return folder / name; }
  [[nodiscard]] std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(at(name), std::ios::binary) << bytes;
    return at(name);
  }
  std::filesystem::path folder;
};

template <class E, class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<std::int32_t> counting(int from, int n) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i)
    tokens.push_back(from + i);
  return tokens;
}

std::vector<std::int32_t> all_of(const Shards& shards) {
  std::vector<std::int32_t> tokens(shards.size());
  shards.read(0, tokens);
  return tokens;
}

// Bytes by hand from llm.c's published layout, none by our own writer.
TEST_F(ShardFiles, OfLlmCAndNanoGptAreReadByTheirPublishedLayout) {
  std::string header(1024, '\0');
  header.replace(
      0, 12,
      std::string("\x88\xD8\x34\x01\x01\x00\x00\x00\x03\x00\x00\x00", 12));  // 20240520, 1, 3
  const std::string sixteen("\x01\x00\xFF\xFF\x00\x01", 6);
  const std::string v1 = file("v1.bin", header + sixteen);
  header.replace(0, 8, std::string("\xA1\xD9\x34\x01\x07\x00\x00\x00", 8));  // 20240801, 7
  const std::string v7 =
      file("v7.bin", header + std::string("\x01\x00\x00\x00\x00\x00\x01\x00\x05\x00\x00\x00", 12));
  const std::string raw = file("raw.bin", sixteen);
  EXPECT_EQ(all_of(Shards({v1})), (std::vector<std::int32_t>{1, 65535, 256}));
  EXPECT_EQ(Shards({v1}).vocabulary(), 65536);
  EXPECT_EQ(all_of(Shards({v7})), (std::vector<std::int32_t>{1, 65536, 5}));
  EXPECT_EQ(all_of(Shards({raw}, {.format = ShardFormat::raw16})), all_of(Shards({v1})));
  EXPECT_EQ(Shards({raw}, {.format = ShardFormat::raw16}).hash(), Shards({v1}).hash());
  EXPECT_NE(Shards({v7}).hash(), Shards({v1}).hash());
}

// The sizes that llm.c's two shards of tinyshakespeare have.
TEST_F(ShardFiles, HaveThePublishedSizesAndComeBackInEveryFormat) {
  write_shard(at("val.bin"), std::vector<std::int32_t>(32768, 50256));
  EXPECT_EQ(std::filesystem::file_size(at("val.bin")), 66560U);
  write_shard(at("train.bin"), std::vector<std::int32_t>(305260, 0));
  EXPECT_EQ(std::filesystem::file_size(at("train.bin")), 611544U);
  const auto tokens = counting(65000, 500);
  for (const auto& [format, bits] :
       {std::pair{ShardFormat::llm_c, 16}, std::pair{ShardFormat::llm_c, 32},
        std::pair{ShardFormat::raw16, 16}, std::pair{ShardFormat::raw32, 32}}) {
    write_shard(at("x.bin"), tokens, format, bits);
    EXPECT_EQ(all_of(Shards({at("x.bin")}, {.format = format})), tokens);
  }
}

TEST_F(ShardFiles, AreOneStreamWhoseSamplesAreThoseOfTheSameTokensInMemory) {
  std::string text;
  for (int i = 0; i < 900; ++i)
    text += static_cast<char>('a' + (i * i + i / 7) % 23);
  for (const auto order : {Order::random, Order::epochs}) {
    const auto whole = data::Text::from_string(text, {.seed = 5, .order = order});
    write_shard(at("a"), whole.tokens().first(301));
    write_shard(at("b"), whole.tokens().subspan(301, 1));
    write_shard(at("c"), whole.tokens().subspan(302));
    const Shards shards(std::vector{at("a"), at("b"), at("c")}, {.seed = 5, .order = order});
    EXPECT_EQ(shards.vocabulary(), whole.vocabulary());
    EXPECT_EQ(shards.train_size(), whole.train().size());
    EXPECT_TRUE(std::equal(shards.held_out().begin(), shards.held_out().end(),
                           whole.held_out().begin(), whole.held_out().end()));
    EXPECT_EQ(shards.windows(16).size(), whole.windows(16).size());
    EXPECT_EQ(shards.samples_per_epoch(16), whole.samples_per_epoch(16));
    for (const std::int64_t first : {0, 7, 96, 1'000'000}) {
      const MicroBatch micro{0, 0, first, 9};
      EXPECT_EQ(shards.batch(micro, 16).inputs, whole.batch(micro, 16).inputs);
      EXPECT_EQ(shards.batch(micro, 16).targets, whole.batch(micro, 16).targets);
    }
    const Shards other(std::vector{at("a"), at("b"), at("c")}, {.seed = 6, .order = order});
    EXPECT_NE(shards.batch({0, 0, 0, 9}, 16).inputs, other.batch({0, 0, 0, 9}, 16).inputs);
    EXPECT_NE(all_of(Shards(std::vector{at("c"), at("b"), at("a")})), all_of(shards));
  }
}

// training.md 41: the first eight differ between epochs; 23: each is seen once.
TEST_F(ShardFiles, AnEpochShowsEachPieceOnceAndTheNextInAnotherOrder) {
  write_shard(at("x"), counting(0, 1000));
  const Shards shards({at("x")}, {.seed = 9});
  const auto n = shards.samples_per_epoch(8);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t g = 0; g < 2 * n; ++g)
    epochs[static_cast<std::size_t>(g / n)].push_back(shards.start_of(g, 8));
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(), static_cast<std::size_t>(n));
  EXPECT_FALSE(std::equal(epochs[0].begin(), epochs[0].begin() + 8, epochs[1].begin()));
}

// A file of holes: more than 2^32 bytes of tokens that are nowhere on the disk.
class NightlyShardFiles : public ShardFiles {};
TEST_F(NightlyShardFiles, BeyondFourGigabytesHave64BitOffsets) {
  const std::string path = at("long.bin");
  { std::ofstream create(path); }
  const std::uintmax_t tokens = (std::uintmax_t{1} << 30) + 7;
  std::filesystem::resize_file(path, 4 * tokens);
  std::fstream patch(path, std::ios::in | std::ios::out | std::ios::binary);
  patch.seekp(static_cast<std::streamoff>(4 * (tokens - 2)));
  patch.write("\x09\x00\x00\x00", 4);
  patch.close();
  const Shards shards({path}, {.format = ShardFormat::raw32, .vocabulary = 10, .held_out = 1e-8});
  std::vector<std::int32_t> last(3);
  shards.read(tokens - 3, last);
  EXPECT_EQ(last, (std::vector<std::int32_t>{0, 9, 0}));
}

TEST_F(ShardFiles, ThatCannotBeUsedAreNamedWithWhatIsWrong) {
  const auto says = [&](const std::string& path, const data::ShardsOptions& options = {}) {
    return message<Error>([&] { (void)Shards({path}, options); });
  };
  write_shard(at("good"), counting(0, 100));
  const std::string good = core::read_whole_file(at("good"));
  std::string other = good;
  other[0] = 'x';
  EXPECT_THAT(
      says(file("magic", other)),
      testing::AllOf(HasSubstr("magic'"), HasSubstr("wanted 20240520, 1"), HasSubstr("raw16")));
  other = good;
  other[4] = 2;
  EXPECT_THAT(says(file("version", other)), HasSubstr("version 2"));
  EXPECT_THAT(says(file("cut", good.substr(0, 1123))),
              HasSubstr("99 bytes of tokens, but its header says 100 tokens; wanted 200"));
  EXPECT_THAT(says(file("long", good + "ab")), HasSubstr("202 bytes of tokens"));
  EXPECT_THAT(says(file("short", good.substr(0, 1000))),
              HasSubstr("1000 bytes, less than a header"));
  EXPECT_THAT(says(file("no_tokens", good.substr(0, 1024))), HasSubstr("0 bytes of tokens"));
  EXPECT_THAT(says(file("odd", "abc"), {.format = ShardFormat::raw16}),
              HasSubstr("3 bytes of tokens; wanted a multiple of 2"));
  EXPECT_THAT(says(file("empty", "")), HasSubstr("empty' is empty"));
  EXPECT_THAT(says(at("nowhere")), HasSubstr("Is the path right?"));
  EXPECT_THAT(says(folder), HasSubstr("is a directory. Name a file in it."));
  EXPECT_THAT(says("/dev/null"), HasSubstr("is a device, not a regular file"));
  EXPECT_THAT(says(at("good"), {.vocabulary = 77}),
              HasSubstr("good', token 77 at byte 1178 is 77, but the vocabulary is 77"));
  EXPECT_THAT(says(at("good"), {.vocabulary = 119547}),
              HasSubstr("16 bits a token, which cannot hold a vocabulary of 119547"));
  EXPECT_THAT(says(at("good"), {.held_out = 1.0}), HasSubstr("held_out is 1"));
  EXPECT_THAT(message<OptionError>([&] {
                (void)Shards(std::vector{at("good"), at("good")});
              }),
              HasSubstr("named twice"));
  EXPECT_THAT(message<OptionError>([&] {
                (void)Shards(std::vector{at("good"), at("./good")});
              }),
              HasSubstr("by another path"));
  EXPECT_THAT(message<OptionError>([&] { (void)Shards(std::vector<std::string>{}); }),
              HasSubstr("no file"));
  const Shards shards({at("good")});
  EXPECT_THAT(message<DataError>([&] { shards.require_context(90); }),
              HasSubstr("Shards: the training part has 90 of 100"));
  // training.md 43: 119547 tokens of vocabulary were written to 16 bits, and 54012 came back wrong.
  EXPECT_THAT(message<DataError>([&] { write_shard(at("w"), counting(65530, 10)); }),
              HasSubstr("token 6 is 65536, which 16 bits do not hold"));
  EXPECT_THAT(message<DataError>([&] { write_shard(at("w"), counting(-1, 1)); }),
              HasSubstr("token 0 is -1"));
  EXPECT_THAT(
      message<OptionError>([&] { write_shard(at("w"), counting(0, 1), ShardFormat::raw16, 32); }),
      HasSubstr("32 bits"));
  EXPECT_THAT(message<DataError>([&] { write_shard(at("w"), {}); }), HasSubstr("no token for"));
  EXPECT_FALSE(std::filesystem::exists(at("w")));
}

}  // namespace
