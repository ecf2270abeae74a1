// SPDX-License-Identifier: MIT
#include "signals.hpp"

#include <csignal>

#include <unistd.h>

namespace capstone {

namespace {

// A handler has no other way to reach anything.
volatile std::sig_atomic_t came = 0, handed_on = 0, direct = 0;

extern "C" void note(int signal, siginfo_t* info, void* /*context*/) {
  came = signal;
  // What is sent to the whole group reaches a rank twice, the second time through its launcher: so
  // the two ways are counted apart.
  volatile std::sig_atomic_t& times = info->si_pid == getppid() ? handed_on : direct;
  times = times + 1;
  if (times < 2) return;
  static_cast<void>(std::signal(signal, SIG_DFL));
  static_cast<void>(std::raise(signal));  // comes when this returns
}

void listen(int signal) {
  // Where it is ignored, as under nohup or in a shell's background, it stays ignored.
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_sigaction = note;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  action.sa_flags = SA_RESTART | SA_SIGINFO;  // nothing of the run fails by it
  static_cast<void>(sigaction(signal, &action, nullptr));
}

}  // namespace

void listen_for_signals() {
  listen(SIGINT);
  listen(SIGTERM);
}

int signal_that_came() { return came; }

}  // namespace capstone
