// SPDX-License-Identifier: MIT
#include <halfstep/io/file.hpp>
#include <halfstep/io/safetensors.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace halfstep;
using io::Metadata;
using io::SafeTensors;
using io::TensorEntry;
using numeric::DType;

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

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A file of this length field, header and data.
std::string file(std::uint64_t n, const std::string& header, const std::string& data = {}) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(n >> (8 * i) & 0xFF);
  return out + header + data;
}
std::string file(const std::string& header, const std::string& data = {}) {
  return file(header.size(), header, data);
}
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"t\":" + entry(dtype, shape, offsets) + "}";
}
std::string refusal(const std::string& bytes) {
  return message<FileError>([&] { (void)SafeTensors::parse(bytes, "f"); });
}

class SafeTensorsFile : public testing::Test {
 protected:
  SafeTensorsFile() {
    std::string pattern = (fs::temp_directory_path() / "halfstep-st-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~SafeTensorsFile() override { fs::remove_all(folder); }
  [[nodiscard]] std::string written(std::vector<TensorEntry> entries, const Metadata& meta = {}) {
    io::write_safetensors(path(), std::move(entries), meta);
    return io::read_whole_file(path());
  }
  [[nodiscard]] std::string path() const { return (folder / "a.safetensors").string(); }
  fs::path folder;
};

// The first four are what the reference implementation writes (its own tests' bytes).
TEST_F(SafeTensorsFile, IsByteForByteWhatTheReferenceWrites) {
  const std::string zeros(16, '\0');
  EXPECT_EQ(written({{"test", DType::i32, {2, 2}, bytes_of(zeros)}}),
            file(64, R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    )", zeros));
  EXPECT_EQ(written({}), file(8, "{}      "));
  EXPECT_EQ(written({}, {{"framework", "pt"}}),
            file(40, R"({"__metadata__":{"framework":"pt"}}     )"));
  const float values[] = {0, 1, 2, 3, 4, 5};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  EXPECT_EQ(written({{"attn0", DType::f32, {1, 1, 2, 3}, bytes_of(data)}}),
            file(72, R"({"attn0":{"dtype":"F32","shape":[1,1,2,3],"data_offsets":[0,24]}}       )",
                 data));
}

TEST_F(SafeTensorsFile, PutsTheWidestFormatFirstThenTheNamesInOrder) {
  const std::string wide(16, 'w'), half(2, 'h'), single(4, 's');
  std::vector<TensorEntry> entries{{"a", DType::f16, {}, bytes_of(half)},
                                   {"z", DType::f64, {2}, bytes_of(wide)},
                                   {"c", DType::f32, {1}, bytes_of(single)},
                                   {"b", DType::f32, {1}, bytes_of(single)},
                                   {"d", DType::bf16, {}, bytes_of(half)}};
  const std::string first = written(entries);
  std::swap(entries[0], entries[4]);
  std::swap(entries[1], entries[3]);
  EXPECT_EQ(written(entries), first);
  const auto read = io::read_safetensors(path());
  std::string order;
  for (const auto& e : read.entries()) order += e.name;
  EXPECT_EQ(order, "zbcda");
  EXPECT_EQ(first.substr(first.size() - 28), wide + single + single + half + half);
  EXPECT_EQ((first.size() - 28) % 8, 0U);
}

TEST_F(SafeTensorsFile, EveryFormatShapeAndNameSurvivesARoundTrip) {
  const std::string odd = "a \"quoted\"\\ \n\x01 name \xE2\x82\xAC";
  std::vector<std::string> storage;
  std::vector<TensorEntry> entries;
  storage.reserve(100);
  int k = 0;
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i8, DType::i16, DType::i32,
        DType::i64, DType::u8, DType::u16, DType::u32, DType::u64, DType::f8_e4m3, DType::f8_e5m2}) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{}, {3}, {2, 0}, {1, 2, 3}}) {
      std::size_t n = numeric::size_of(dtype);
      for (const auto extent : shape) n *= static_cast<std::size_t>(extent);
      storage.emplace_back(n, static_cast<char>(0xF0 + k % 16));  // NaNs among the floats
      entries.push_back({odd + std::to_string(k++), dtype, shape, bytes_of(storage.back())});
    }
  }
  io::write_safetensors(path(), entries, {{"key \"1\"", "v\xC3\xA4l\n"}, {"", ""}});
  const auto read = io::read_safetensors(path());
  ASSERT_EQ(read.entries().size(), 56U);
  EXPECT_EQ(read.metadata(), (Metadata{{"key \"1\"", "v\xC3\xA4l\n"}, {"", ""}}));
  for (const auto& wanted : entries) {
    const auto& got = read.at(wanted.name);
    EXPECT_EQ(got.dtype, wanted.dtype);
    EXPECT_EQ(got.shape, wanted.shape);
    ASSERT_EQ(got.bytes.size(), wanted.bytes.size());
    EXPECT_TRUE(std::equal(got.bytes.begin(), got.bytes.end(), wanted.bytes.begin()));
  }
}

TEST_F(SafeTensorsFile, WhatCannotBeWrittenIsNamedAndTheOldFileStays) {
  const std::string four(4, 'x'), before = written({});
  const auto refuse = [&](std::vector<TensorEntry> entries, const Metadata& meta = {}) {
    auto said =
        message<FileError>([&] { io::write_safetensors(path(), std::move(entries), meta); });
    EXPECT_EQ(io::read_whole_file(path()), before);
    EXPECT_SAYS(said, path());
    return said;
  };
  const auto x = bytes_of(four);
  EXPECT_SAYS(refuse({{"a", DType::f32, {1}, x}, {"a", DType::f32, {1}, x}}), "'a' is there twice");
  EXPECT_SAYS(refuse({{"a", DType::f32, {1}, x}, {"a", DType::i32, {1}, x}}), "'a' is there twice");
  EXPECT_SAYS(refuse({{"__metadata__", DType::f32, {1}, x}}), "the format's own");
  EXPECT_SAYS(refuse({{"a", DType::f32, {2}, x}}), "'a' has 4 bytes, but its shape [2] of F32");
  EXPECT_SAYS(refuse({{"a", DType::f32, {-1}, x}}), "negative extent, -1");
  EXPECT_SAYS(refuse({{"a", DType::f32, {0, -5}, {}}}), "negative extent, -5");
  EXPECT_SAYS(refuse({{"a", DType::u8, {std::int64_t{1} << 32, std::int64_t{1} << 32}, {}}}),
              "wants another number");  // wraps to 0
  EXPECT_SAYS(refuse({{"a\xFF", DType::f32, {1}, x}}), "not UTF-8");
  EXPECT_SAYS(refuse({}, {{"k", "\xFF"}}), "not UTF-8");
}

TEST_F(SafeTensorsFile, AFullDiskLeavesTheOldFile) {
  const std::string before = written({});
  fs::create_symlink("/dev/full", path() + ".tmp");
  const std::string data(1 << 20, 'x');
  const auto said = message<FileError>([&] {
    io::write_safetensors(path(), {{"a", DType::u8, {1 << 20}, bytes_of(data)}});
  });
  EXPECT_SAYS(said, "No space left on device. Free some space");
  EXPECT_EQ(io::read_whole_file(path()), before);
  EXPECT_FALSE(fs::exists(fs::symlink_status(path() + ".tmp")));
}

TEST_F(SafeTensorsFile, AMissingFileIsNamed) {
  EXPECT_SAYS(message<FileError>([&] { (void)io::read_safetensors(path()); }), path());
}

TEST(SafeTensors, CopiesAMisalignedTensorByItsType) {
  const float values[] = {1.5F, -2.0F};
  std::string data = "x" + std::string(reinterpret_cast<const char*>(values), 8);
  const auto read = SafeTensors::parse(
      file("{\"a\":" + entry("U8", "[1]", "[0,1]") + ",\"b\":" + entry("F32", "[2]", "[1,9]") + "}",
           data), "f");
  float out[2] = {};
  read.copy_to<float>("b", out);
  EXPECT_EQ(out[0], 1.5F);
  EXPECT_EQ(out[1], -2.0F);
  std::int32_t integers[2];
  EXPECT_SAYS(message<FileError>([&] { read.copy_to<std::int32_t>("b", integers); }),
              "'b' holds F32, but I32 was wanted");
  float three[3];
  EXPECT_SAYS(message<ShapeError>([&] { read.copy_to<float>("b", three); }),
              "'b' has shape [2], but 3 elements were wanted");
  EXPECT_SAYS(message<FileError>([&] { read.copy_to<float>("c", out); }),
              "'f' has no tensor 'c' among its 2");
  EXPECT_EQ(read.find("c"), nullptr);
}

TEST(SafeTensors, StaysWholeWhenMoved) {
  auto first = SafeTensors::parse(file("{\"a\":" + entry("U8", "[1]", "[0,1]") + "}", "x"));
  const SafeTensors second = std::move(first);
  EXPECT_EQ(second.at("a").bytes[0], std::byte{'x'});
}

// Class numbers are those of the reader's rules: what must be refused.
TEST(SafeTensors, Refuses01AFileTooShortForALength) {
  for (std::size_t n = 0; n < 8; ++n) EXPECT_SAYS(refusal(std::string(n, '\0')), "Was it cut?");
}

TEST(SafeTensors, Refuses02AHeaderBeyond100MillionBytes) {
  EXPECT_SAYS(refusal(file(0xFFFF'FF00'0000'003C, "")), "Is it a safetensors file?");
  EXPECT_SAYS(refusal(file(100'000'001, "{}")), "at most 100000000 are allowed");
  EXPECT_SAYS(refusal(file(~0ULL, "{}")), "are allowed");  // 8 + N would wrap to 7
  EXPECT_SAYS(refusal(file(100'000'000, "{}")), "Was it cut?");
}

TEST(SafeTensors, Refuses03AHeaderThatEndsBehindTheFile) {
  EXPECT_SAYS(refusal(file(60, "")), "should have 60 bytes, but 0 are there");
  EXPECT_SAYS(refusal(file(3, "{}")), "should have 3 bytes, but 2 are there");
  EXPECT_SAYS(refusal(file(1000, one("I32", "[2,2]", "[0,16]"), std::string(16, '\0'))), "cut");
}

TEST(SafeTensors, Refuses04AHeaderThatIsNotUtf8) {
  EXPECT_SAYS(refusal(file("\xFF")), "no JSON at byte 1");
  EXPECT_SAYS(refusal(file("{\"\xFF\":1}")), "no JSON");
  EXPECT_SAYS(refusal(file("{\"\xED\xA0\x80\":1}")), "no JSON");  // a surrogate
  EXPECT_SAYS(refusal(file("\xEF\xBB\xBF{}")), "byte order mark");
}

TEST(SafeTensors, Refuses05WhatIsNotOneJsonObject) {
  for (const char* bad : {"", " ", "{", "}", "{]", "{}{}", "{} x", "{},", "{\"a\"}", "{'a':1}",
                          "{\"__metadata__\":{},}", "// c\n{}",
                          "{\"__metadata__\":{\"a\":\"\\ud800\"}}"}) {
    EXPECT_SAYS(refusal(file(bad)), "no JSON");
  }
  EXPECT_SAYS(refusal(file("[]")), "the header is a list, but must be an object");
  for (const char* bad : {"1", "-1", "1.5", "\"a\"", "null", "true"}) {
    EXPECT_SAYS(refusal(file(bad)), "must be an object");
  }
  EXPECT_SAYS(refusal(file(std::string("{}\0{}", 5))), "NUL");
  EXPECT_SAYS(refusal(file(std::string(100'000, '['))), "the header is a list");
  EXPECT_SAYS(refusal(file("{\"t\":{\"x\":" + std::string(100'000, '['))), "nested too deep");
}

TEST(SafeTensors, Refuses06AnEntryWithoutItsFieldsOrOfOtherTypes) {
  const std::string d = "\"dtype\":\"U8\"", s = "\"shape\":[1]", o = "\"data_offsets\":[0,1]";
  const auto with = [](const std::string& fields) {
    return refusal(file("{\"t\":{" + fields + "}}", "x"));
  };
  EXPECT_EQ(with(d + "," + s + "," + o), "nothing was thrown");
  EXPECT_SAYS(with(s + "," + o), "the entry 't' has no dtype");
  EXPECT_SAYS(with(d + "," + o), "the entry 't' has no shape");
  EXPECT_SAYS(with(d + "," + s), "the entry 't' has no data_offsets");
  EXPECT_SAYS(with("\"dtype\":1," + s + "," + o), "dtype of the entry 't' is the number 1");
  EXPECT_SAYS(with("\"dtype\":null," + s + "," + o), "dtype of the entry 't' is null");
  EXPECT_SAYS(with(d + ",\"shape\":1," + o), "shape of the entry 't' is the number 1");
  EXPECT_SAYS(with(d + ",\"shape\":{}," + o), "shape of the entry 't' is an object");
  EXPECT_SAYS(with(d + ",\"shape\":[[1]]," + o), "holds a list");
  EXPECT_SAYS(with(d + ",\"shape\":[\"1\"]," + o), "holds a string");
  EXPECT_SAYS(with(d + "," + s + ",\"data_offsets\":\"0,1\""), "is a string");
  for (const char* dtype : {"F33", "f32", "U8 ", "", "FLOAT"}) {
    EXPECT_SAYS(refusal(file(one(dtype, "[1]", "[0,1]"), "x")), "has the unknown dtype");
  }
  EXPECT_SAYS(refusal(file("{\"t\":1}")), "the entry 't' is the number 1");
  EXPECT_SAYS(refusal(file("{\"t\":null}")), "the entry 't' is null");
  EXPECT_SAYS(refusal(file("{\"t\":[]}")), "the entry 't' is a list");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":{\"a\":1}}")), "__metadata__ 'a' is the number 1");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":{\"a\":{}}}")), "__metadata__ 'a' is an object");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":{\"a\":null}}")), "__metadata__ 'a' is null");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":\"a\"}")), "__metadata__ is a string");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":[]}")), "__metadata__ is a list");
}

TEST(SafeTensors, Refuses07NumbersThatAreNotUnsignedIntegers) {
  for (const char* bad : {"-1", "-0", "1.0", "1e0", "0.5", "18446744073709551616", "1E2"}) {
    EXPECT_SAYS(refusal(file(one("U8", std::string("[") + bad + "]", "[0,1]"), "x")),
                "may hold only unsigned integers");
    EXPECT_SAYS(refusal(file(one("U8", "[1]", std::string("[0,") + bad + "]"), "x")),
                "may hold only unsigned integers");
  }
  for (const char* bad : {"01", "+1", "0x1", "1_0"}) {
    EXPECT_SAYS(refusal(file(one("U8", std::string("[") + bad + "]", "[0,1]"), "x")), "no JSON");
  }
}

TEST(SafeTensors, Refuses08OffsetsThatAreNotABeginAndAnEnd) {
  for (const char* bad : {"[]", "[0]", "[0,1,1]"}) {
    EXPECT_SAYS(refusal(file(one("U8", "[1]", bad), "x")), "needs begin and end");
  }
  EXPECT_SAYS(refusal(file(one("U8", "[1]", "[1,0]"), "x")), "lies at bytes 1 to 0");
}

TEST(SafeTensors, Refuses09TensorsThatOverlapOrLeaveGaps) {
  EXPECT_SAYS(refusal(file(one("U8", "[1]", "[1,2]"), "xx")), "must begin at 0");
  const auto two = [](const std::string& first, const std::string& second) {
    return refusal(file("{\"a\":" + entry("U8", "[2]", first) + ",\"b\":" +
                        entry("U8", "[2]", second) + "}", "xxxxx"));
  };
  EXPECT_SAYS(two("[0,2]", "[3,5]"), "'b' lies at bytes 3 to 5 of the data, but must begin at 2");
  EXPECT_SAYS(two("[0,2]", "[1,3]"), "'b' lies at bytes 1 to 3");
  EXPECT_SAYS(two("[0,2]", "[0,2]"), "'b' lies at bytes 0 to 2");
  std::string many = "{";
  for (int i = 0; i < 10; ++i) {
    many += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + "\":" + entry("I32", "[2,2]", "[0,16]");
  }
  EXPECT_SAYS(refusal(file(many + "}", std::string(16, 'x'))), "must begin at 16");
}

TEST(SafeTensors, Refuses10DataThatIsLongerOrShorterThanItsTensors) {
  const std::string header = one("I32", "[2,2]", "[0,16]");
  EXPECT_EQ(refusal(file(header, std::string(16, 'x'))), "nothing was thrown");
  EXPECT_SAYS(refusal(file(header, std::string(16 + 34, 'x'))), "Was something appended?");
  EXPECT_SAYS(refusal(file(header, std::string(14, 'x'))), "Was the file cut?");
  EXPECT_SAYS(refusal(file("{}", "x")), "Was something appended?");
}

TEST(SafeTensors, Refuses11ShapesWhoseSizeOverflows) {
  for (const char* shape : {"[2,9223372036854775807]", "[4611686018427387904,4,0]",
                            "[4294967296,4294967296]", "[9223372036854775807,9223372036854775807]",
                            "[2305843009213693952]"}) {
    for (const char* offsets : {"[0,0]", "[0,16]"}) {  // the third wraps to exactly 0
      const std::string data(offsets[3] == '0' ? 0 : 16, 'x');
      EXPECT_SAYS(refusal(file(one("I32", shape, offsets), data)), "overflows 64 bits");
    }
  }
  EXPECT_SAYS(refusal(file(one("I32", "[2,18446744073709551614]", "[0,16]"), std::string(16, 'x'))),
              "beyond 2^63 - 1");
}

TEST(SafeTensors, Refuses12ASizeThatIsNotThatOfTheShape) {
  EXPECT_SAYS(refusal(file(one("I32", "[2,2]", "[0,4]"), "xxxx")), "its shape wants 16");
  EXPECT_SAYS(refusal(file(one("I32", "[]", "[0,0]"))), "its shape wants 4");
  EXPECT_SAYS(refusal(file(one("F4", "[3]", "[0,2]"), "xx")), "does not end at a whole byte");
  EXPECT_SAYS(refusal(file(one("F6_E2M3", "[3]", "[0,3]"), "xxx")), "whole byte");
}

TEST(SafeTensors, Refuses13KeysThatAreThereTwice) {
  const std::string e = entry("U8", "[0]", "[0,0]");
  EXPECT_SAYS(refusal(file("{\"a\":" + e + ",\"a\":" + e + "}")), "the name 'a' is there twice");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":{},\"__metadata__\":{}}")), "is there twice");
  EXPECT_SAYS(refusal(file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}")),
              "the key 'k' is there twice in __metadata__");
  EXPECT_SAYS(refusal(file("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],"
                           "\"data_offsets\":[0,0]}}")),
              "the key 'dtype' is there twice in the entry 't'");
}

TEST(SafeTensors, RefusesAFormatWithoutACounterpartAsUnsupported) {
  for (const char* dtype :
       {"BOOL", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    EXPECT_SAYS(refusal(file(one(dtype, "[4]", "[0,4]"), "xxxx")), "valid but unsupported");
  }
  EXPECT_SAYS(refusal(file(one("C64", "[1]", "[0,8]"), "xxxxxxxx")), "valid but unsupported");
  EXPECT_SAYS(refusal(file(one("F4", "[2]", "[0,1]"), "x")), "valid but unsupported");
}

TEST(SafeTensors, AcceptsWhatTheReferenceReaderAccepts) {
  const auto accepted = [](const std::string& bytes) { return SafeTensors::parse(bytes); };
  for (const char* header : {"{}", "{}\r \t\n", "\t\n{}\r ", "{\"__metadata__\":{}}",
                             "{\"__metadata__\":null}"}) {
    EXPECT_TRUE(accepted(file(header)).entries().empty());
  }
  EXPECT_EQ(accepted(file(one("I32", "[]", "[0,4]"), "xxxx")).entries()[0].shape.size(), 0U);
  EXPECT_EQ(accepted(file(one("I32", "[2,0]", "[0,0]"))).entries()[0].bytes.size(), 0U);
  EXPECT_EQ(accepted(file(one("U8", "[0,9223372036854775807]", "[0,0]"))).entries().size(), 1U);
  // Keys in any order, fields of tomorrow, metadata behind, data in another order than names.
  const auto read = accepted(file(
      "{\"b\":{\"shape\":[1],\"new\":{\"x\":[1,{\"y\":null}],\"shape\":2},\"data_offsets\":[0,1],"
      "\"dtype\":\"U8\"},\"a\":" + entry("U8", "[2]", "[1,3]") + ",\"e\":" +
      entry("U8", "[0]", "[1,1]") + ",\"__metadata__\":{\"k\":\"v\"}}", "xyz"));
  ASSERT_EQ(read.entries().size(), 3U);
  EXPECT_EQ(read.entries()[0].name, "b");
  EXPECT_EQ(read.entries()[1].name, "e");
  EXPECT_EQ(read.at("a").bytes[0], std::byte{'y'});
  EXPECT_EQ(read.metadata().at("k"), "v");
}

TEST(SafeTensors, EveryCutAndEveryChangedByteIsRefusedOrReadWithinBounds) {
  const std::string whole = file("{\"__metadata__\":{\"k\":\"v\"},\"a\":" +
                                 entry("F32", "[2,1]", "[0,8]") + ",\"b\":" +
                                 entry("U8", "[3]", "[8,11]") + "}", "01234567abc");
  ASSERT_EQ(refusal(whole), "nothing was thrown");
  for (std::size_t n = 0; n < whole.size(); ++n) {
    ASSERT_NE(refusal(whole.substr(0, n)), "nothing was thrown") << n;
  }
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string changed = whole;
      changed[i] = static_cast<char>(value);
      try {
        const auto read = SafeTensors::parse(changed);
        std::size_t sum = 0;
        for (const auto& e : read.entries()) sum += e.bytes.size();
        ASSERT_EQ(sum, 11U);
        ++accepted;
      } catch (const FileError&) {
      }
    }
  }
  EXPECT_GT(accepted, 11U * 256);  // any data at all, and other names
}

}  // namespace
