// SPDX-License-Identifier: MIT
// Units built alike share their functions; units with assertions or another target do not.
#include <cstdio>
#include <cstring>

const char* plain_a();
const char* plain_b();
const char* asserting();
const char* native();

int main() {
  std::printf("%s\n%s\n%s\n%s\n", plain_a(), plain_b(), asserting(), native());
  const bool alike = std::strcmp(plain_a(), plain_b()) == 0;
  const bool apart = std::strcmp(plain_a(), asserting()) != 0;
  // On a CPU without FMA, -march=native changes nothing that the name has to carry.
  const bool native_apart = std::strcmp(plain_a(), native()) != 0;
  if (!alike) std::printf("two units built alike have two names\n");
  if (!apart) std::printf("-DHALFSTEP_ASSERTIONS=1 shares a name with a unit without\n");
  if (!native_apart && HAS_FMA) std::printf("-march=native shares a name with a unit without\n");
  return alike && apart && (native_apart || !HAS_FMA) ? 0 : 1;
}
