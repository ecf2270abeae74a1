// SPDX-License-Identifier: MIT
// also: -O2 -ffast-math
// What is computed in integers, hashed for each format: not even -ffast-math, which also sets FTZ
// and DAZ when a program starts, may change it.
#include <cstdio>

#include <numeric/integer_coded.hpp>

int main() {
  const auto print = [](const char* name, std::uint64_t hash) {
    std::printf("%-16s %016llx\n", name, static_cast<unsigned long long>(hash));
  };
  halfstep_tests::hash_formats(100000, print, halfstep_tests::AllFormats{});
}
