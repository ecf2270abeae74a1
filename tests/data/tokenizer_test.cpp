// SPDX-License-Identifier: MIT
#include <halfstep/data/tokenizer.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace halfstep;
using data::Tokenizer;
using Tokens = std::vector<std::int32_t>;

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

std::string all_bytes() {
  std::string bytes;
  for (int i = 255; i >= 0; --i) bytes += static_cast<char>(i);
  return bytes;
}

TEST(Tokenizer, BytesAreTheirOwnTokens) {
  const auto tokenizer = Tokenizer::bytes();
  EXPECT_EQ(tokenizer.vocabulary(), 256);
  const auto tokens = tokenizer.encode(all_bytes());
  for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(tokens[i], 255 - static_cast<int>(i));
  EXPECT_EQ(tokenizer.decode(tokens), all_bytes());
  EXPECT_EQ(tokenizer.count_bytes(tokens), 256);
}

TEST(Tokenizer, CharactersAreTheDistinctCodePointsInAscendingOrder) {
  // n U+6E, ä U+E4, € U+20AC, 😀 U+1F600: one to four bytes, out of order, repeated.
  const std::string text = "\xF0\x9F\x98\x80n\xE2\x82\xAC\xC3\xA4n\xC3\xA4";
  const auto tokenizer = Tokenizer::characters(text);
  EXPECT_EQ(tokenizer.vocabulary(), 4);
  EXPECT_EQ(tokenizer.encode(text), (Tokens{3, 0, 2, 1, 0, 1}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.count_bytes(Tokens{3, 0, 2, 1}), 4 + 1 + 3 + 2);
}

TEST(Tokenizer, CharactersOfATextThatIsNotUtf8AreItsBytes) {
  const std::string text = "caf\xE9 caf\xE9";  // Latin-1
  const auto tokenizer = Tokenizer::characters(text);
  EXPECT_EQ(tokenizer.unit(), Tokenizer::Unit::byte);
  EXPECT_EQ(tokenizer.vocabulary(), 5);  // space a c f é
  EXPECT_EQ(tokenizer.encode("\xE9 "), (Tokens{4, 0}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, AnUnknownCharacterIsNamedWithItsPlace) {
  const auto tokenizer = Tokenizer::characters("abc\xC3\xA4");
  auto text = message<DataError>([&] { (void)tokenizer.encode("abz"); });
  EXPECT_SAYS(text, "character U+7a 'z' at byte 2 is not one of the 4 symbols");
  text = message<DataError>([&] { (void)tokenizer.encode("\xC3\xA4\xE2\x82\xAC"); });
  EXPECT_SAYS(text, "character U+20ac '\xE2\x82\xAC' at byte 2");
  text = message<DataError>([&] { (void)tokenizer.encode("ab\xFF"); });
  EXPECT_SAYS(text, "not UTF-8 at byte 2");
  EXPECT_SAYS(message<DataError>([&] { (void)Tokenizer::characters("a\xFF").encode("\n"); }),
              "byte 0xa at byte 0");
}

TEST(Tokenizer, ATokenOutOfRangeIsNamedWithItsPlace) {
  const auto tokenizer = Tokenizer::characters("abc");
  EXPECT_SAYS(message<DataError>([&] { (void)tokenizer.decode(Tokens{0, 3}); }),
              "Tokenizer::decode: token 3 at position 1 is not in [0, 3)");
  EXPECT_SAYS(message<DataError>([&] { (void)tokenizer.count_bytes(Tokens{-4}); }),
              "Tokenizer::count_bytes: token -4 at position 0");
  data::StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0), "a");
  EXPECT_SAYS(message<DataError>([&] { (void)decoder.push(3); }), "token 3 at position 1");
}

TEST(Tokenizer, AnEmptyTextHasNoCharacters) {
  EXPECT_SAYS(message<DataError>([] { (void)Tokenizer::characters(""); }), "empty");
}

TEST(Tokenizer, ADecoderShowsACharacterOnlyWhenItsBytesHaveCome) {
  data::StreamDecoder decoder(Tokenizer::bytes());  // a three-byte character over three tokens
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
}

TEST(TokenizerFile, IsOneLineForASymbolWhateverTheSymbol) {
  EXPECT_EQ(Tokenizer::characters("\n a\xF0\x9F\x98\x80").serialise(),
            "halfstep-tokenizer 1 code_point 4\na\n20\n61\n1f600\n");
}

TEST(TokenizerFile, EveryVocabularySurvivesARoundTrip) {
  for (const auto& tokenizer :
       {Tokenizer::bytes(), Tokenizer::characters(all_bytes()), Tokenizer::characters("\n"),
        Tokenizer::characters("a\r\n\xE2\x82\xAC"), Tokenizer::characters("\xE9\n")}) {
    const auto again = Tokenizer::parse(tokenizer.serialise());
    EXPECT_EQ(again, tokenizer);
    EXPECT_EQ(again.serialise(), tokenizer.serialise());
  }
  EXPECT_FALSE(Tokenizer::characters("a") == Tokenizer::characters("b"));
  EXPECT_FALSE(Tokenizer::characters("a") == Tokenizer::parse("halfstep-tokenizer 1 byte 1\n61\n"));
}

TEST(TokenizerFile, IsReadFromWhereItWasSaved) {
  std::string folder = (std::filesystem::temp_directory_path() / "halfstep-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto tokenizer = Tokenizer::characters("hello\xC3\xA4");
  tokenizer.save(folder + "/tokenizer.txt");
  EXPECT_EQ(Tokenizer::load(folder + "/tokenizer.txt"), tokenizer);
  EXPECT_SAYS(message<FileError>([&] { (void)Tokenizer::load(folder + "/no"); }), folder + "/no");
  std::filesystem::remove_all(folder);
}

TEST(TokenizerFile, AnythingElseIsRefusedWithItsLine) {
  const std::string head = "halfstep-tokenizer 1 ";
  const auto refuse = [](const std::string& file) {
    return message<FileError>([&] { (void)Tokenizer::parse(file, "'t'"); });
  };
  EXPECT_SAYS(refuse(""), "Tokenizer::parse: 't', line 1: the file ends here");
  EXPECT_SAYS(refuse("{}\n"), "wanted 'halfstep-tokenizer 1 UNIT COUNT'");
  EXPECT_SAYS(refuse("halfstep-tokenizer 2 byte 1\n61\n"), "line 1");
  EXPECT_SAYS(refuse(head + "word 1\n61\n"), "neither byte nor code_point");
  for (const char* count : {"", "0", "01", "-1", "1x", "257", "99999999999"}) {
    EXPECT_SAYS(refuse(head + "byte " + count + "\n61\n"), "is no count of symbols");
  }
  for (const char* symbol : {"", "g", "061", "+61", "0x61", "61 ", "100"}) {
    EXPECT_SAYS(refuse(head + "byte 1\n" + symbol + "\n"), "line 2: '");
  }
  for (const char* symbol : {"d800", "dfff", "110000"}) {
    EXPECT_SAYS(refuse(head + "code_point 1\n" + symbol + "\n"), "is no symbol");
  }
  EXPECT_SAYS(refuse(head + "byte 2\n62\n61\n"), "line 3: symbols are not in ascending order");
  EXPECT_SAYS(refuse(head + "byte 2\n61\n61\n"), "ascending");
  EXPECT_SAYS(refuse(head + "byte 2\n61\n62"), "without a newline");
  EXPECT_SAYS(refuse(head + "byte 2\n61\n"), "line 3: the file ends here");
  EXPECT_SAYS(refuse(head + "byte 1\n61\n62\n"), "line 3: more follows after 1 symbols");
}

TEST(TokenizerNumbers, AreTheirOwnTextAndSurviveARoundTrip) {
  const auto tokenizer = Tokenizer::numbers(3000);
  EXPECT_EQ(tokenizer.vocabulary(), 3000);
  const std::vector<std::int32_t> tokens{12, 0, 2999, 7};
  EXPECT_EQ(tokenizer.decode(tokens), "12 0 2999 7 ");
  EXPECT_EQ(tokenizer.encode(" 12 0\n2999 7"), tokens);
  EXPECT_EQ(tokenizer.count_bytes(tokens), 0);
  EXPECT_EQ(tokenizer.newline(), std::nullopt);
  EXPECT_EQ(Tokenizer::characters("a\nb").newline(), 0);
  EXPECT_EQ(Tokenizer::parse(tokenizer.serialise()), tokenizer);
  EXPECT_FALSE(tokenizer == Tokenizer::numbers(2999));
  EXPECT_SAYS(message<DataError>([&] { (void)tokenizer.encode("1 3000"); }), "token 3000 at byte 2");
  EXPECT_SAYS(message<DataError>([&] { (void)tokenizer.encode("1 x"); }), "no token number at byte 2");
  EXPECT_SAYS(message<DataError>([&] { (void)tokenizer.encode("-1"); }), "no token number at byte 0");
  EXPECT_SAYS(message<OptionError>([] { (void)Tokenizer::numbers(0); }), "a vocabulary of 0");
  EXPECT_SAYS(message<OptionError>([] { (void)Tokenizer::numbers((1 << 24) + 1); }), "of another width");
  EXPECT_SAYS(message<FileError>([] { (void)Tokenizer::parse("halfstep-tokenizer 1 number 2\n0\n5\n"); }),
              "number 1 is missing");
}

}  // namespace
