// SPDX-License-Identifier: MIT
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/core/file.hpp>
#include <halfstep/train/metrics.hpp>

namespace hs = halfstep;
using hs::train::Metrics;
using hs::train::StepInfo;
using testing::HasSubstr;

namespace {

StepInfo some_step() {
  StepInfo info;
  info.iteration = 7;
  info.step = 6;
  info.loss = 0.1;
  info.tokens = 768;
  info.lr = 1e-3F;
  info.norm = 1.5F;
  info.clipped_by = 0.5F;
  info.scale = 65536.0F;
  info.step_seconds = 0.25;
  info.seconds = 2.0;
  return info;
}

TEST(MetricsLine, IsOneJsonObjectWithShortestNumbers) {
  EXPECT_EQ(hs::train::metrics_line(some_step()),
            "{\"schema\":1,\"kind\":\"step\",\"iteration\":7,\"step\":6,\"loss\":0.1,\"tokens\":768,\"lr\":0.001,"
            "\"norm\":1.5,\"clipped_by\":0.5,\"scale\":65536,\"applied\":true,\"step_seconds\":0.25,\"seconds\":2}\n");
}

TEST(MetricsLine, WritesNullForWhatIsNoNumberAndNamesTheBadParameter) {
  StepInfo info = some_step();
  info.loss = std::numeric_limits<double>::quiet_NaN();
  info.norm = std::numeric_limits<float>::infinity();
  info.applied = false;
  info.first_bad = "a \"quoted\" name";
  const std::string line = hs::train::metrics_line(info);
  EXPECT_THAT(line, HasSubstr("\"loss\":null"));
  EXPECT_THAT(line, HasSubstr("\"norm\":null"));
  EXPECT_THAT(line, HasSubstr("\"applied\":false,\"first_bad\":\"a \\\"quoted\\\" name\""));
}

TEST(MetricsLine, DoesNotChangeWithTheLocale) {
  const std::string before = hs::train::metrics_line(some_step());
  const char* old = std::setlocale(LC_ALL, nullptr);
  const std::string saved = old;
  if (std::setlocale(LC_ALL, "de_DE.UTF-8") == nullptr) std::setlocale(LC_ALL, "C.UTF-8");
  EXPECT_EQ(hs::train::metrics_line(some_step()), before);
  std::setlocale(LC_ALL, saved.c_str());
}

TEST(MetricsLine, OfAnEvaluationHasLossErrorAndBits) {
  hs::train::EvaluationInfo info;
  info.iteration = 100;
  info.evaluation = {.nats = 20.0, .count = 10, .bytes = 10, .correct = 5, .standard_error = 0.25};
  const std::string line = hs::train::metrics_line(info);
  EXPECT_THAT(line, HasSubstr("{\"schema\":1,\"kind\":\"evaluation\",\"iteration\":100,"));
  EXPECT_THAT(line, HasSubstr("\"loss\":2,\"standard_error\":0.25,\"bits_per_byte\":2.885390"));
  EXPECT_THAT(line, HasSubstr("\"accuracy\":0.5"));
}

TEST(Metrics, EachLineIsInTheFileAtOnceAndAppendKeepsWhatIsThere) {
  const std::string path = testing::TempDir() + "metrics_test.jsonl";
  const std::string line = hs::train::metrics_line(some_step());
  {
    Metrics metrics(path);
    metrics.write(some_step());
    EXPECT_EQ(hs::core::read_whole_file(path), line);
    metrics.write(some_step());
    EXPECT_EQ(hs::core::read_whole_file(path), line + line);
  }
  { Metrics(path, Metrics::Start::append).write(some_step()); }
  EXPECT_EQ(hs::core::read_whole_file(path), line + line + line);
  { Metrics(path).write(some_step()); }
  EXPECT_EQ(hs::core::read_whole_file(path), line);
  std::remove(path.c_str());
}

TEST(CutMetrics, KeepsWhatTheCheckpointIncludesAndNoHalfLine) {
  const std::string path = testing::TempDir() + "cut_metrics_test.jsonl";
  const auto step = [](std::int64_t iteration) {
    StepInfo info = some_step();
    info.iteration = iteration;
    return hs::train::metrics_line(info);
  };
  const auto evaluation = [](std::int64_t iteration) {
    hs::train::EvaluationInfo info;
    info.iteration = iteration;
    return hs::train::metrics_line(info);
  };
  const std::string resume = hs::train::metrics_line(hs::train::ResumeInfo{.iteration = 2});
  EXPECT_EQ(resume, "{\"schema\":1,\"kind\":\"resume\",\"iteration\":2}\n");
  const std::string before = step(0) + step(1);
  const std::string whole = before + evaluation(2) + resume + step(2) + step(3);
  const auto cut = [&](const std::string& text, std::int64_t iteration, bool evaluated) {
    hs::core::write_file_atomically(path, text);
    hs::train::cut_metrics(path, iteration, evaluated);
    return hs::core::read_whole_file(path);
  };
  EXPECT_EQ(cut(whole, 4, false), whole);
  EXPECT_EQ(cut(whole, 3, false), before + evaluation(2) + resume + step(2));
  EXPECT_EQ(cut(whole, 2, true), before + evaluation(2) + resume);
  EXPECT_EQ(cut(whole, 2, false), before) << "the evaluation is done anew";
  EXPECT_EQ(cut(whole, 0, false), "");
  EXPECT_EQ(cut(before + step(2).substr(0, 30), 9, true), before);
  EXPECT_EQ(cut(before + "garbage\n" + step(2), 9, true), before);
  for (std::size_t n = 0; n < before.size(); n += 13) {  // a kill in the middle of any line
    EXPECT_EQ(cut(before.substr(0, n), 9, true), n < step(0).size() ? "" : step(0));
  }
  std::remove(path.c_str());
  hs::train::cut_metrics(path, 2, true);  // nothing there, nothing done
  EXPECT_THROW(static_cast<void>(hs::core::read_whole_file(path)), hs::FileError);
}

TEST(Metrics, SaysWhichFileCannotBeWritten) {
  try {
    Metrics metrics("/no-such-folder/metrics.jsonl");
    FAIL();
  } catch (const hs::FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot open '/no-such-folder/metrics.jsonl': No such file or directory"));
  }
  Metrics full("/dev/full");
  try {
    full.write(some_step());
    FAIL();
  } catch (const hs::FileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write '/dev/full': No space left on device"));
  }
}

}  // namespace
