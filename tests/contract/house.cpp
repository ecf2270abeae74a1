// SPDX-License-Identifier: MIT
// house ROOT: prints every broken rule of the house in that tree and exits with 1 if there is one.
#include <cstdio>

#include "house.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: house ROOT\n");
    return 2;
  }
  const std::vector<std::string> problems = contract::House(argv[1]).check();
  for (const std::string& problem : problems)
    std::printf("%s\n", problem.c_str());
  std::printf("%zu broken rules\n", problems.size());
  return problems.empty() ? 0 : 1;
}
