// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/train/progress.hpp>

namespace hs = halfstep;
using hs::train::Progress;
using hs::train::StepInfo;
using testing::HasSubstr;

namespace {

/// What was written to a temporary file.
class Captured {
 public:
  Captured() : file_(std::tmpfile()) {}
  ~Captured() { std::fclose(file_); }
  [[nodiscard]] std::FILE* file() { return file_; }
  [[nodiscard]] std::string text() {
    std::string out;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) out += static_cast<char>(c);
    return out;
  }

 private:
  std::FILE* file_;
};

StepInfo at(std::int64_t iteration, double seconds) {
  StepInfo info;
  info.iteration = iteration;
  info.iterations = 1000;
  info.loss = 2.5;
  info.tokens = 100;
  info.lr = 1e-3F;
  info.norm = 0.5F;
  info.seconds = seconds;
  return info;
}
std::size_t count(const std::string& text, char c) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), c));
}

TEST(Progress, RefreshesOneLineOfATerminalNotFasterThanTenTimesASecond) {
  Captured out;
  {
    Progress progress({.out = out.file(), .terminal = true});
    for (int i = 0; i < 100; ++i) progress.step(at(i, 0.01 * (i + 1)));  // one second
    EXPECT_EQ(count(out.text(), '\n'), 0U);
  }
  const std::string text = out.text();
  EXPECT_GE(count(text, '\r'), 9U);
  EXPECT_LE(count(text, '\r'), 11U);
  EXPECT_EQ(count(text, '\n'), 1U);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, WritesPlainLinesElsewhere) {
  Captured out;
  {
    Progress progress({.out = out.file(), .terminal = false});
    for (int i = 0; i < 1000; ++i) progress.step(at(i, 0.03 * (i + 1)));  // 30 seconds
  }
  const std::string text = out.text();
  EXPECT_EQ(count(text, '\r'), 0U);
  EXPECT_EQ(count(text, '\x1b'), 0U);
  EXPECT_GE(count(text, '\n'), 4U);  // the first, each ten seconds, the last
  EXPECT_LE(count(text, '\n'), 5U);
  EXPECT_THAT(text, HasSubstr("1000/1000"));
}

TEST(Progress, ShowsLossRateNormSpeedAndTimeLeft) {
  const Progress progress({.out = stderr, .terminal = false});
  const std::string line = progress.line(at(249, 60.0), 1234.4);
  EXPECT_EQ(line, "250/1000  loss 2.5000  lr 1.00e-03  norm 0.500  1234 tokens/s  3:00 left");
}

TEST(Progress, SpeedIsTokensSinceTheLastLineOverTheTimeSinceThen) {
  Captured out;
  Progress progress({.out = out.file(), .terminal = false, .plain_seconds = 1.0});
  progress.step(at(0, 1.0));   // 100 tokens in one second
  progress.step(at(1, 1.5));
  progress.step(at(2, 5.0));   // 200 in four: an evaluation came between
  EXPECT_THAT(out.text(), HasSubstr("  100 tokens/s"));
  EXPECT_THAT(out.text(), HasSubstr("  50 tokens/s"));
}

TEST(Progress, CountsSkippedUpdatesAndShowsAScale) {
  Captured out;
  Progress progress({.out = out.file(), .terminal = false});
  StepInfo info = at(0, 1.0);
  info.applied = false;
  info.scale = 65536.0F;
  progress.step(info);
  EXPECT_THAT(out.text(), HasSubstr("scale 65536  skipped 1"));
}

TEST(Progress, NotesStandAboveTheRefreshingLine) {
  Captured out;
  Progress progress({.out = out.file(), .terminal = true});
  progress.step(at(0, 1.0));
  progress.note("held out");
  EXPECT_THAT(out.text(), HasSubstr("\r\x1b[Kheld out\n"));
}

TEST(Duration, IsReadable) {
  EXPECT_EQ(hs::train::duration_text(0.4), "0:00");
  EXPECT_EQ(hs::train::duration_text(61.0), "1:01");
  EXPECT_EQ(hs::train::duration_text(3723.0), "1:02:03");
  EXPECT_EQ(hs::train::duration_text(1e300), "-");
}

}  // namespace
