// SPDX-License-Identifier: MIT
// Whether this program contracts products and sums where the kernels must not (core/target.hpp).
// No macro tells, so a region of each kind is tried out; Runtime does so before any kernel runs.
#pragma once

#include <cstdint>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/float_environment.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/target.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

namespace detail {
HALFSTEP_BEGIN_TARGET(PORTABLE)
namespace contraction_portable {
HALFSTEP_NOINLINE inline float product_and_sum(float a, float b, float c) {
  const float product = a * b;
  return product + c;
}
}  // namespace contraction_portable
HALFSTEP_END_TARGET

HALFSTEP_BEGIN_TARGET(AVX2)
namespace contraction_avx2 {
HALFSTEP_NOINLINE inline float product_and_sum(float a, float b, float c) {
  const float product = a * b;
  return product + c;
}
}  // namespace contraction_avx2
HALFSTEP_END_TARGET
}  // namespace detail

/// Whether a product that feeds a sum in a region of that path is rounded once.
[[nodiscard]] inline bool contracts(Isa isa) {
  auto* const volatile function = isa == Isa::portable
                                      ? &detail::contraction_portable::product_and_sum
                                      : &detail::contraction_avx2::product_and_sum;
  struct Call {
    float (*function)(float, float, float);
    float result;
  } call{function, 0.0F};
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24, and the last term is lost if the product is rounded to
  // nearest: so not in the caller's rounding mode, which may be upwards.
  call_in_float_environment(
      [](void* context, std::int64_t, std::int64_t, int) {
        auto& inside = *static_cast<Call*>(context);
        const float a = rounded(0x1.001p0F), c = rounded(-0x1.002p0F);
        inside.result = inside.function(a, a, c);
      },
      &call, 0, 1, 0);
  return call.result != 0.0F;
}

/// @throws OptionError if contracts(isa).
inline void require_no_contraction(Isa isa) {
  if (!contracts(isa)) return;
  fail<OptionError>("halfstep: the kernels of the path ", to_string(isa),
                    " round a product and a sum only once in this program, so they would give "
                    "other results than the other paths. Is it built with -ffp-contract=fast, "
                    "which clang lets no pragma undo? Remove the flag.");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
