// SPDX-License-Identifier: MIT
// readme FILE OUT: writes each C++ block of a Markdown file to OUT/block_<n>.cpp, with #line so
// that errors point into the file. Fences as CommonMark has them: three or more ` or ~, closed by
// at least as many of the same, so code may hold backticks. Fails on no block, an empty one, an
// open fence.
#include <cstdio>
#include <fstream>
#include <string>

namespace {

bool starts_cpp(std::string info) {
  const std::size_t first = info.find_first_not_of(" \t");
  if (first == std::string::npos) return false;
  info = info.substr(first, info.find_first_of(" \t{,\r", first) - first);
  return info == "cpp" || info == "c++" || info == "C++" || info == "cxx" || info == "cc";
}

struct Fence {
  std::size_t indent = 0;
  std::size_t length = 0;
  char mark = 0;
  std::string info;
};

/// The fence that a line is, or length 0.
Fence fence(const std::string& line) {
  Fence out;
  while (out.indent < line.size() && line[out.indent] == ' ')
    ++out.indent;
  if (out.indent > 3 || out.indent == line.size()) return out;
  const char mark = line[out.indent];
  if (mark != '`' && mark != '~') return out;
  std::size_t end = out.indent;
  while (end < line.size() && line[end] == mark)
    ++end;
  if (end - out.indent < 3) return out;
  const std::string info = line.substr(end);
  if (mark == '`' && info.find('`') != std::string::npos) return out;  // ```code``` in a line
  out.length = end - out.indent;
  out.mark = mark;
  out.info = info;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: readme FILE OUT\n");
    return 2;
  }
  std::ifstream in(argv[1]);
  if (!in) {
    std::fprintf(stderr, "%s: cannot be read\n", argv[1]);
    return 1;
  }
  Fence open;
  int opened_at = 0, blocks = 0, number = 0;
  bool is_cpp = false, blank = true;
  std::string line, code;
  while (std::getline(in, line)) {
    ++number;
    const Fence found = fence(line);
    if (open.length == 0) {
      if (found.length == 0) continue;
      open = found;
      opened_at = number;
      is_cpp = starts_cpp(found.info);
      blank = true;
      code = "#line " + std::to_string(number + 1) + " \"" + argv[1] + "\"\n";
      continue;
    }
    const bool closes = found.length >= open.length && found.mark == open.mark &&
                        found.info.find_first_not_of(" \t\r") == std::string::npos;
    if (!closes) {
      blank = blank && line.find_first_not_of(" \t\r") == std::string::npos;
      code += line + "\n";
      continue;
    }
    open.length = 0;
    if (!is_cpp) continue;
    if (blank) {
      std::fprintf(stderr, "%s:%d: the C++ block is empty\n", argv[1], opened_at);
      return 1;
    }
    const std::string path = std::string(argv[2]) + "/block_" + std::to_string(++blocks) + ".cpp";
    std::ofstream out(path);
    out << code;
    if (!out.flush()) {
      std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
      return 1;
    }
  }
  if (open.length != 0) {
    std::fprintf(stderr, "%s:%d: the fence is never closed\n", argv[1], opened_at);
    return 1;
  }
  if (blocks == 0) {
    std::fprintf(stderr, "%s: holds no C++ block\n", argv[1]);
    return 1;
  }
  std::printf("%d C++ blocks\n", blocks);
  return 0;
}
