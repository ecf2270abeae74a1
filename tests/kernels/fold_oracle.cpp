// SPDX-License-Identifier: MIT
#include "fold_reference.hpp"

void fold_oracle(int format, int kind, const void* const* sources, int n, void* out,
                 std::int64_t count) {
  reference::fold(static_cast<reference::Format>(format), static_cast<reference::Kind>(kind),
                  sources, n, out, count);
}
