// SPDX-License-Identifier: MIT
// Whether a held-out loss is too good to be true: below the entropy of a generated language, which
// no model that sees only the past can beat.
#pragma once

namespace capstone {

/// All three in nats a token. `floor` is what an infinite text would give; the held-out part is a
/// sample, so that a perfect model lies below it half of the time, but rarely (about one run in
/// 700) by more than three standard errors.
[[nodiscard]] inline bool leaked(double loss, double standard_error, double floor) {
  return loss < floor - 3.0 * standard_error;
}

}  // namespace capstone
