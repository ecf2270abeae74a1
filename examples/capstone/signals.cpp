// SPDX-License-Identifier: MIT
#include "signals.hpp"

#include <csignal>

namespace capstone {

namespace {

// A handler has no other way to reach anything.
volatile std::sig_atomic_t came = 0;

extern "C" void note(int signal) {
  came = signal;
  static_cast<void>(std::signal(SIGINT, SIG_DFL));
  static_cast<void>(std::signal(SIGTERM, SIG_DFL));
}

void listen(int signal) {
  // Where it is ignored, as under nohup or in a shell's background, it stays ignored.
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // nothing of the run fails by it
  static_cast<void>(sigaction(signal, &action, nullptr));
}

}  // namespace

void listen_for_signals() {
  listen(SIGINT);
  listen(SIGTERM);
}

int signal_that_came() { return came; }

}  // namespace capstone
