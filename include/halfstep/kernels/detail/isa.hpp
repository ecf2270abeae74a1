// SPDX-License-Identifier: MIT
// The one line of dispatch of every kernel: a constant table of function pointers, one per path.
// Not for choosing the path: that is Compute's, by core/isa.hpp.
#pragma once

#include <cstddef>

#include <halfstep/core/isa.hpp>
#include <halfstep/kernels/detail/avx2.hpp>
#include <halfstep/kernels/detail/avx512.hpp>
#include <halfstep/kernels/detail/portable.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail {

/// The path's function; AVX-512-BF16 differs from AVX-512 in matrix products alone.
template <class Function>
[[nodiscard]] constexpr Function* pick(core::Isa isa, Function* portable, Function* avx2,
                                       Function* avx512) {
  Function* const table[] = {portable, avx2, avx512, avx512};
  return table[static_cast<std::size_t>(isa)];
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels::detail

/// HALFSTEP_PICK(isa, scale<E>): the pointer to kernels::detail::<path>::scale<E>.
#define HALFSTEP_PICK(isa, ...)                                                    \
  ::halfstep::kernels::detail::pick(isa, &::halfstep::kernels::detail::portable::__VA_ARGS__, \
                                    &::halfstep::kernels::detail::avx2::__VA_ARGS__, \
                                    &::halfstep::kernels::detail::avx512::__VA_ARGS__)
