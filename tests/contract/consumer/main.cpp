// SPDX-License-Identifier: MIT
// A stranger's program: it includes everything and uses a format.
#include <cstdio>

#include <halfstep/halfstep.hpp>

int main() {
  const halfstep::bf16 third{1.0F / 3.0F};
  std::printf("halfstep %s: a third is %.8f in bf16\n", HALFSTEP_VERSION,
              static_cast<double>(static_cast<float>(third)));
  return static_cast<float>(third) == 0.333984375F ? 0 : 1;  // 171 / 512, the nearest of 8 bits
}
