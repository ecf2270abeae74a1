// SPDX-License-Identifier: MIT
// Checkpoints with states of our own making: what is in them, which is taken, which stay. Whole
// runs are in tests/capstone/resume.sh and tests/train/resume_test.cpp.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/core/file.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/manifest.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/numeric/bf16.hpp>

namespace {

namespace fs = std::filesystem;
using namespace halfstep;
using io::Manifest;
using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// A state in the manner of the library's: two tensors and two scalars.
struct Part {
  std::string name;
  std::array<float, 6> wide{};
  std::array<bf16, 3> narrow{};  // 6 bytes: no multiple of 8
  std::int64_t count = 0;
  double real = 0.0;
  std::int64_t rows = 2;

  void fill(int from) {
    for (float& x : wide)
      x = static_cast<float>(from++);
    for (bf16& x : narrow)
      x = bf16(static_cast<float>(from++));
    count = from++;
    real = 0.1 * from;
  }
  template <class Visitor>
  void visit_state(Visitor& visitor) {
    visitor.tensor(tensor::StateTensor{name + ".wide", numeric::DType::f32, Shape{rows, 6 / rows},
                                       0, std::as_writable_bytes(std::span(wide))});
    visitor.tensor(tensor::StateTensor{name + ".narrow", numeric::DType::bf16, Shape{3}, 0,
                                       std::as_writable_bytes(std::span(narrow))});
    visitor.scalar(name + ".count", count);
    visitor.scalar(name + ".real", real);
  }
  [[nodiscard]] std::int64_t steps() const { return count; }
  friend bool operator==(const Part& a, const Part& b) {
    return a.wide == b.wide && a.count == b.count && a.real == b.real &&
           std::equal(a.narrow.begin(), a.narrow.end(), b.narrow.begin(),
                      [](bf16 x, bf16 y) { return x.bits() == y.bits(); });
  }
};

/// A range of a tensor "x" of `size` elements.
struct Piece {
  std::int64_t first, count, size;
  std::array<float, 6> values{};
  template <class Visitor>
  void visit_state(Visitor& visitor) {
    visitor.tensor(tensor::StateTensor{
        "x", numeric::DType::f32, Shape{size}, first,
        std::as_writable_bytes(std::span(values).first(static_cast<std::size_t>(count)))});
  }
};

class RunDirectory : public testing::Test {
 protected:
  RunDirectory() {
    std::string pattern = (fs::temp_directory_path() / "halfstep-run-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~RunDirectory() override { fs::remove_all(folder); }

  [[nodiscard]] io::RunOptions options(const std::string& config = R"({"lr": 0.1})") {
    return {.directory = (folder / "run").string(),
            .keep = 2,
            .config = config,
            .data_hash = 77,
            .report = [this](std::string_view line) { reports.emplace_back(line); }};
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder / "run"))
      out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder / "run" / name).string();
  }

  fs::path folder;
  std::vector<std::string> reports;
  Part weights{.name = "a"}, moments{.name = "b"};
};

TEST_F(RunDirectory, WhatWasSavedComesBackBitForBit) {
  weights.fill(1);
  moments.fill(100);
  moments.real = -std::numeric_limits<double>::infinity();
  weights.real = 0.1 + 0.2;
  {
    io::Run run(options(), weights, moments);
    EXPECT_EQ(run.iteration(), 0);
    run.save(5, 1.25);
  }
  Part a{.name = "a"}, b{.name = "b"};
  const io::Run run(options(), a, b);
  EXPECT_EQ(run.iteration(), 5);
  EXPECT_TRUE(a == weights);
  EXPECT_TRUE(b == moments);
  EXPECT_TRUE(reports.empty());
  const auto found = io::find_checkpoints((folder / "run").string());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].manifest->metric, 1.25);
  EXPECT_EQ(found[0].manifest->step, b.count) << "the last part with steps()";
  EXPECT_EQ(found[0].manifest->data_hash, 77U);
}

TEST_F(RunDirectory, EqualStatesMakeEqualFilesAndAnotherStateOthers) {
  weights.fill(1);
  io::Run run(options(), weights, moments);
  const auto saved = [&](std::int64_t iteration) {
    run.save(iteration);
    std::string all;
    for (const char* name : {"weights.safetensors", "state.safetensors"}) {
      all +=
          core::read_whole_file(file("iteration_0000000" + std::to_string(iteration) + "/" + name));
    }
    return all;
  };
  const std::string first = saved(1);
  EXPECT_EQ(saved(2), first);
  moments.narrow[2] = bf16(3.0F);
  EXPECT_NE(saved(3), first);
}

TEST_F(RunDirectory, TheNewestTheBestAndNoOthersStayByNumberNotByName) {
  io::Run run(options(), weights, moments);
  // 9 sorts after 10 by name, and 99999999 before 100000000 by number.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  run.save(9, 2.0);
  run.save(10, 1.0);
  run.save(11, 1.0);  // not better
  run.save(12, nan);
  run.save(13);
  EXPECT_THAT(names(),
              ElementsAre("iteration_00000010", "iteration_00000012", "iteration_00000013"));
  run.save(99'999'999, 0.5);
  run.save(100'000'000, nan);
  run.save(100'000'001);
  EXPECT_THAT(names(),
              ElementsAre("iteration_100000000", "iteration_100000001", "iteration_99999999"));
  const auto found = io::find_checkpoints((folder / "run").string());
  EXPECT_EQ(found[0].iteration, 100'000'001);
  EXPECT_EQ(io::best_of(found)->iteration, 99'999'999);
}

TEST_F(RunDirectory, OnlyTheRunsOwnCheckpointsAreRemoved) {
  weights.fill(1);
  {
    io::Run run(options(), weights, moments);
    run.save(1);
  }
  fs::create_directory(file("iteration_none"));
  fs::create_directory(file("iteration_00000000"));  // not whole
  core::write_file_atomically(file("notes.txt"), "mine");
  // A checkpoint of another run, older than all of this one's.
  io::write_checkpoint(file("iteration_00000002"), {.data_hash = 5, .iteration = 2}, weights,
                       moments);
  fs::rename(file("iteration_00000001"), file("iteration_00000003"));
  fs::remove_all(file("iteration_00000003"));
  EXPECT_THAT(message_of([&] { io::Run(options(), weights, moments); }),
              HasSubstr("iteration_00000002' is of another run: it is trained on other data: hash "
                        "0000000000000005, "
                        "here 000000000000004d. Name another directory"));
  fs::rename(file("iteration_00000002"), file("keep_this"));
  io::Run run(options(), weights, moments);
  fs::rename(file("keep_this"), file("iteration_00000002"));
  for (int i = 10; i < 15; ++i)
    run.save(i);
  EXPECT_THAT(names(), ElementsAre("iteration_00000000", "iteration_00000002", "iteration_00000013",
                                   "iteration_00000014", "iteration_none", "notes.txt"));
}

TEST_F(RunDirectory, WhatIsNotWholeIsReportedAndPassedOver) {
  weights.fill(1);
  {
    io::Run run(options(), weights, moments);
    run.save(1);
    weights.fill(2);
    run.save(2);
  }
  const auto resume = [&] {
    Part a{.name = "a"}, b{.name = "b"};
    reports.clear();
    const io::Run run(options(), a, b);
    return run.iteration();
  };
  ASSERT_EQ(resume(), 2);
  const std::string names[] = {"weights.safetensors", "state.safetensors", "manifest.json"};
  for (const std::string& name : names) {
    const std::string path = file("iteration_00000002/" + name);
    const std::string whole = core::read_whole_file(path);
    // Cut anywhere, or with any one byte changed.
    for (std::size_t at = 0; at < whole.size(); at += 7) {
      core::write_file_atomically(path, whole.substr(0, at));
      ASSERT_EQ(resume(), 1) << name << " cut at " << at;
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      core::write_file_atomically(path, changed);
      ASSERT_EQ(resume(), 1) << name << " changed at " << at;
      ASSERT_EQ(reports.size(), 1U);
      ASSERT_THAT(reports[0], HasSubstr("iteration_00000002/" + name));
    }
    core::write_file_atomically(path, whole);
    ASSERT_EQ(resume(), 2);
    fs::remove(path);
    ASSERT_EQ(resume(), 1) << name << " missing";
    core::write_file_atomically(path, whole);
  }
  fs::create_directory(file("iteration_00000007.tmp"));
  EXPECT_EQ(resume(), 2);
  EXPECT_THAT(
      reports,
      ElementsAre(HasSubstr("iteration_00000007.tmp' is what an interrupted save left; removed")));
  EXPECT_FALSE(fs::exists(file("iteration_00000007.tmp")));
}

TEST_F(RunDirectory, ACheckpointThatDoesNotFitChangesNothing) {
  weights.fill(1);
  moments.fill(50);
  {
    io::Run run(options(), weights, moments);
    run.save(3);
  }
  const auto refusal = [&](Part a, Part b) {
    const Part was_a = a, was_b = b;
    const std::string said = message_of([&] { io::Run(options(), a, b); });
    EXPECT_TRUE(a == was_a && b == was_b) << said;
    return said;
  };
  EXPECT_THAT(refusal({.name = "a"}, {.name = "c"}),
              HasSubstr("has no tensor 'c.wide' among its 2"));
  EXPECT_THAT(refusal({.name = "a"}, {.name = "b", .rows = 3}),
              HasSubstr("'b.wide' is F32 [2,3], but here it is F32 [3,2]"));
  Part a{.name = "a"};
  EXPECT_THAT(message_of([&] { io::Run(options(), a); }), HasSubstr("of which 0 are wanted here"));
  EXPECT_TRUE(a == Part{.name = "a"});
  Part again{.name = "a"};
  EXPECT_THAT(message_of([&] { io::Run(options(), a, again).save(1); }),
              HasSubstr("has no tensor 'a.wide'"));
  fs::remove_all(folder / "run");
  io::Run twice(options(), a, again);
  EXPECT_THAT(message_of([&] { twice.save(1); }), HasSubstr("'a.count' is in the state twice"));
}

TEST_F(RunDirectory, AnotherRunIsRefusedByItsFirstDifference) {
  {
    io::Run run(options(), weights, moments);
    run.save(3);
  }
  const auto with = [&](io::RunOptions other) {
    return message_of([&] { io::Run(other, weights, moments); });
  };
  EXPECT_THAT(with(options(R"({"lr": 0.2})")), HasSubstr("'lr' of its config is 0.1, here 0.2"));
  EXPECT_THAT(with(options(R"({"lr": 0.1, "wd": 1})")),
              HasSubstr("'wd' of its config is not there, here 1"));
  EXPECT_THAT(with(options("{}")), HasSubstr("'lr' of its config is 0.1, here not there"));
  EXPECT_EQ(with(options(R"({ "lr" : 1e-1 })")), "nothing was thrown");
  EXPECT_THAT(with(options("[]")), HasSubstr("wanted a JSON object"));
  io::RunOptions none = options();
  none.keep = 0;
  EXPECT_THAT(with(none), HasSubstr("keep is 0"));
}

TEST_F(RunDirectory, ASecondProcessIsKeptOut) {
  const io::Run run(options(), weights, moments);
  EXPECT_THAT(message_of([&] { io::Run(options(), weights, moments); }),
              HasSubstr("is in use by another process"));
}

TEST_F(RunDirectory, AShardIsNotSavedAsIfItWereTheWhole) {
  Piece shard{2, 2, 4, {}};
  io::Run run(options(), shard);
  EXPECT_THAT(message_of([&] { run.save(1); }),
              HasSubstr("'x' is here from element 2, 8 of its 16 bytes"));
  EXPECT_TRUE(names().empty());
}

// A file holds logical tensors: whoever holds a range of one reads that range.
TEST_F(RunDirectory, ARangeIsReadFromTheWholeTensor) {
  Piece whole{0, 6, 6, {1, 2, 3, 4, 5, 6}};
  io::write_checkpoint((folder / "c").string(), {}, whole);
  const auto checkpoint = io::Checkpoint::open((folder / "c").string());
  for (int ranks : {1, 2, 3, 6}) {
    const int share = 6 / ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      Piece piece{rank * share, share, 6, {}};
      checkpoint.restore(piece);
      for (int i = 0; i < share; ++i) {
        EXPECT_EQ(piece.values[static_cast<std::size_t>(i)],
                  static_cast<float>(rank * share + i + 1));
      }
    }
  }
  Piece beyond{4, 3, 6, {}};
  EXPECT_THAT(message_of([&] { checkpoint.restore(beyond); }), HasSubstr("is not within its 24"));
}

TEST(ManifestText, ReadsBackEveryNumberAndIsSealed) {
  Manifest manifest{.seed = ~std::uint64_t{0},
                    .data_hash = 0xFEDC'BA98'7654'3210U,
                    .config = R"({"a":[1,{"b":null}],"z":1e-5})",
                    .iteration = std::int64_t{1} << 60,
                    .step = 3,
                    .metric = 1.0 / 3.0};
  manifest.integers = {{"least", std::numeric_limits<std::int64_t>::min()},
                       {"most", std::numeric_limits<std::int64_t>::max()}};
  const double tiny = std::numeric_limits<double>::denorm_min();
  manifest.reals = {{"inf", std::numeric_limits<double>::infinity()},
                    {"minus", -0.0},
                    {"tiny", tiny},
                    {"one", 1.0}};
  manifest.files["x"] = {.bytes = 1, .hash = 2};
  const std::string text = io::manifest_text(manifest);
  const Manifest read = io::parse_manifest(text, "m");
  EXPECT_EQ(io::manifest_text(read), text);
  EXPECT_EQ(read.seed, manifest.seed);
  EXPECT_EQ(read.data_hash, manifest.data_hash);
  EXPECT_EQ(read.iteration, manifest.iteration);
  EXPECT_EQ(read.metric, manifest.metric);
  EXPECT_EQ(read.integers, manifest.integers);
  EXPECT_EQ(read.reals, manifest.reals);
  EXPECT_TRUE(std::signbit(read.reals.at("minus")));
  std::string newer = text;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  EXPECT_THAT(message_of([&] { (void)io::parse_manifest(newer, "m"); }),
              HasSubstr("'m' is not what was written"));
  // Sealed anew, as a later version would be.
  const std::size_t body = newer.rfind(",\n  \"seal\"");
  io::ByteHash seal;
  seal.add(std::string_view(newer).substr(0, body));
  newer =
      newer.substr(0, body) + ",\n  \"seal\": \"" + io::detail::hash_text(seal.value()) + "\"\n}\n";
  EXPECT_THAT(message_of([&] { (void)io::parse_manifest(newer, "m"); }),
              HasSubstr("is of version 2, and 1 can be read. Was it written by a newer halfstep?"));
}

// Found by the fuzzer: a real that no integer can hold was cast.
TEST(ManifestText, RefusesNumbersOfTheWrongKindEvenUnderAGoodSeal) {
  const std::string good = io::manifest_text({});
  for (const char* field : {"\"iteration\": ", "\"step\": ", "\"seed\": ", "\"version\": "}) {
    for (const char* value :
         {"1e300", "-1e30", "1.5", "true", "null", "\"1\"", "18446744073709551616"}) {
      std::string text = good.substr(0, good.rfind(",\n  \"seal\""));
      const std::size_t at = text.find(field) + std::string_view(field).size();
      text.replace(at, text.find(',', at) - at, value);
      io::ByteHash seal;
      seal.add(std::string_view(text));
      text += ",\n  \"seal\": \"" + io::detail::hash_text(seal.value()) + "\"\n}\n";
      EXPECT_THAT(message_of([&] { (void)io::parse_manifest(text, "m"); }),
                  HasSubstr("where a whole number of 64 bits belongs"))
          << field << value;
    }
  }
}

TEST(ByteHash, DependsOnTheBytesAndNotOnTheirPieces) {
  std::string bytes;
  for (int i = 0; i < 41; ++i)
    bytes += static_cast<char>(i * 37);
  const auto of = [](std::string_view text) {
    io::ByteHash hash;
    hash.add(text);
    return hash;
  };
  const io::ByteHash whole = of(bytes);
  int pieces = 0;
  for (std::size_t a = 0; a <= bytes.size(); ++a) {
    for (std::size_t b = a; b <= bytes.size(); ++b, ++pieces) {
      io::ByteHash hash;
      hash.add(std::string_view(bytes).substr(0, a));
      hash.add(std::string_view(bytes).substr(a, b - a));
      hash.add(std::string_view(bytes).substr(b));
      ASSERT_EQ(hash.value(), whole.value()) << a << " " << b;
      ASSERT_EQ(hash.size(), 41U);
    }
  }
  EXPECT_EQ(pieces, 42 * 43 / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      ASSERT_NE(of(changed).value(), whole.value());
    }
  }
  EXPECT_NE(of("").value(), of(std::string(1, '\0')).value());
  EXPECT_NE(of(std::string(8, '\0')).value(), of(std::string(9, '\0')).value());
}

}  // namespace
