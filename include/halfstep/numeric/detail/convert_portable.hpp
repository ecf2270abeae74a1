// SPDX-License-Identifier: MIT
// Bulk conversions in plain C++ integer code: the path that runs everywhere, and the definition of
// the others.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/fp16.hpp>

HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_portable {

HALFSTEP_NOINLINE inline void to_bf16(const float* in, bf16* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = bf16{in[i]};
}
HALFSTEP_NOINLINE inline void to_fp16(const float* in, fp16* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = fp16{in[i]};
}
HALFSTEP_NOINLINE inline void from_bf16(const bf16* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(in[i]);
}
HALFSTEP_NOINLINE inline void from_fp16(const fp16* in, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(in[i]);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::numeric::detail::convert_portable
HALFSTEP_END_TARGET
