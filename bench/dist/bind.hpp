// SPDX-License-Identifier: MIT
// Binds ranks to CPUs, so that two of them do not share one by chance. Not for tests.
#pragma once

#include <algorithm>

#include <sched.h>

namespace halfstep_bench {

/// Binds this thread to one of the CPUs it may use; says which.
inline int bind_to(int number) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int left = number % std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return cpu;
  }
  return -1;
}

}  // namespace halfstep_bench
