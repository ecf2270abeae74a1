// SPDX-License-Identifier: MIT
#include "../../kernels/fold_reference.hpp"

void all_reduce_oracle(int format, int kind, bool ring, const void* const* sources, int n,
                       void* out, std::int64_t count) {
  const auto f = static_cast<reference::Format>(format);
  const auto k = static_cast<reference::Kind>(kind);
  if (ring) {
    reference::ring(f, k, sources, n, out, count);
  } else {
    reference::fold(f, k, sources, n, out, count);
  }
}
