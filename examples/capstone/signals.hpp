// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM as a wish to stop, for a program that saves first. The library installs no
// handlers: they belong to the process.
#pragma once

namespace capstone {

/// From here on the first SIGINT or SIGTERM is noted; a second one ends the process at once, as the
/// system does by default.
void listen_for_signals();

/// The signal that came, or 0.
[[nodiscard]] int signal_that_came();

}  // namespace capstone
