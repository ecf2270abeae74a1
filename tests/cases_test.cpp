// SPDX-License-Identifier: MIT
// Is tests/cases.md true? Every test that it names is in the tree, and every number has its line.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

std::string read(const std::string& name) {
  std::ifstream file(HALFSTEP_SOURCE_DIR "/tests/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "mixed.loop/Loop.LearnsInEveryFormat" is TEST(Loop, LearnsInEveryFormat), or a relative of TEST,
// in mixed/loop_test.cpp.
bool exists(const std::string& file, const std::string& suite, const std::string& test) {
  std::string path = file + "_test.cpp";
  std::replace(path.begin(), path.end(), '.', '/');
  path.replace(path.size() - 4, 1, ".");
  static std::map<std::string, std::string> texts;
  if (texts.count(path) == 0) texts[path] = read(path);
  const std::regex line("TEST(_F|_P)?\\(" + suite + ",\\s*" + test + "\\)");
  return std::regex_search(texts[path], line);
}

TEST(CasesFile, NamesOnlyTestsThatExist) {
  const std::string text = read("cases.md");
  const std::regex name("`([a-z0-9_./]+)/([A-Za-z0-9]+)\\.([A-Za-z0-9_]+)`");
  int names = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it, ++names) {
    EXPECT_TRUE(exists((*it)[1], (*it)[2], (*it)[3])) << (*it)[0];
  }
  EXPECT_GT(names, 80);
  EXPECT_FALSE(exists("mixed.loop", "Loop", "IsNotThere"));
}

// A line of a section's table begins "| number |".
TEST(CasesFile, HasALineForEveryNumber) {
  const std::vector<int> training{1,  2,  3,  5,  6,  7,  9,  10, 11, 13, 14, 15, 17, 18,
                                  19, 21, 22, 23, 25, 26, 27, 29, 30, 31, 33, 34, 35, 37,
                                  38, 39, 41, 42, 43, 45, 46, 47, 49, 50, 51, 53, 54, 55,
                                  57, 58, 59, 61, 62, 63, 65, 66, 67, 69, 70, 71};
  const std::vector<int> numerics{1,  2,  3,  5,  6,  7,  9,  10, 11, 13, 14, 15, 17, 18, 19, 21,
                                  22, 23, 25, 26, 27, 29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42,
                                  43, 45, 46, 47, 49, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63,
                                  65, 66, 67, 69, 70, 71, 73, 74, 75, 77, 78, 79, 81, 82, 83};
  const std::vector<int> autograd{1,  2,  3,  5,  6,  7,  9,  10, 11, 13, 14, 15, 17, 18, 19, 21,
                                  22, 23, 25, 26, 27, 29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42,
                                  43, 45, 46, 47, 49, 50, 51, 53, 54, 55, 57, 58, 59};
  const std::vector<int> processes{1,  2,  3,  5,  6,  7,  9,  10, 11, 49, 50,
                                   51, 53, 54, 55, 57, 58, 59, 61, 62, 63};
  std::map<std::string, std::vector<int>> found;
  std::istringstream lines(read("cases.md"));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("## ", 0) == 0) section = line.substr(3);
    std::istringstream words(line);
    std::string bar;
    int number = 0;
    if (words >> bar >> number && bar == "|") found[section].push_back(number);
  }
  EXPECT_EQ(found["Training loop"], training);
  EXPECT_EQ(found["Numerics"], numerics);
  EXPECT_EQ(found["Autograd"], autograd);
  EXPECT_EQ(found["Many processes"], processes);
}

}  // namespace
