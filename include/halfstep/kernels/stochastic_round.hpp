// SPDX-License-Identifier: MIT
// Stochastic rounding of arrays: up or down by chance, so that the mean of many roundings is the
// number itself and updates far below half an ulp are not lost. Not for activations or products,
// which round to nearest.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/detail/elements.hpp>
#include <halfstep/kernels/detail/isa.hpp>
#include <halfstep/kernels/detail/stochastic_codes.hpp>
#include <halfstep/numeric/round_to.hpp>
#include <halfstep/numeric/rounding.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::kernels {

/// Whose numbers are drawn. They depend on nothing else: not on threads, shards, or a resume.
struct StochasticDraw {
  std::uint64_t seed = 0;      ///< of the run
  std::uint64_t stream = 0;    ///< core::stream(the parameter's name, a role)
  std::uint64_t step = 0;      ///< applied updates before this one
  std::uint64_t elements = 0;  ///< of the whole, logical tensor
  std::uint64_t index = 0;     ///< in it, of in[0]
  /// What lies beyond the format's largest number becomes. Infinities and NaNs stay what they are,
  /// but `saturate` takes infinities to the largest number too.
  numeric::Overflow overflow = numeric::Overflow::infinity;

  /// The first of the run's elements: step x elements + index.
  [[nodiscard]] constexpr std::uint64_t first() const { return step * elements + index; }
};

/// A format with NaN and -0, of which every number has a middle to the next in float.
template <class T>
concept stochastic_format = requires {
  typename T::format;
}
&&T::format::has_nan&& T::format::has_negative_zero;

namespace detail {
/// What the paths are told; the codes without sign.
template <stochastic_format To, numeric::Overflow O>
[[nodiscard]] StochasticCodes stochastic_codes(const StochasticDraw& draw) {
  using limits = std::numeric_limits<float>;
  constexpr auto stochastic = numeric::Rounding::stochastic;
  return {draw.seed, draw.stream, draw.first(),
          numeric::round_to<To, stochastic, O>(limits::max(), ~std::uint64_t{0}).bits(),
          numeric::round_to<To, stochastic, O>(limits::infinity()).bits()};
}
}  // namespace detail

/// out[i] = in[i] rounded to a neighbour: numeric::round_to<To, Rounding::stochastic>, its upper 32
/// random bits being core::random_bits(seed, stream, first() + i). Of two neighbours the one away
/// from zero is taken with the probability that is the part cut off, in units of their distance: so
/// the mean is in[i].
///
/// Exactly: for bf16, which cuts off 16 bits, the sum over all 65536 values of the upper half of
/// the word is 65536 in[i]. The other formats cut off more of what is subnormal; over all 2^32
/// words their sum is 2^32 in[i] if in[i] is a multiple of 2^-32 of the format's smallest number,
/// as every float is down to 2^-9 of that number (fp16: 2^-33). A smaller one is rounded up too
/// seldom, by less than 2^-32 of the smallest number.
///
/// Cost: one read, one write, and a Philox call for four elements, of which a vector holds up to
/// eight. Allocates nothing. Integers alone: subnormals are not flushed.
///
/// @throws ShapeError if the lengths differ or the range is not in the tensor.
template <stochastic_format To>
void stochastic_round(const core::Compute& compute, std::span<const float> in, std::span<To> out,
                      const StochasticDraw& draw) {
  detail::check_sizes("stochastic_round", "in", in.size(), "out", out.size());
  if (draw.index > draw.elements || in.size() > draw.elements - draw.index) {
    core::fail<ShapeError>("stochastic_round: elements ", draw.index, " to ",
                           draw.index + in.size(), " are not in a tensor of ", draw.elements,
                           ". `elements` is the size of the whole tensor, not of this shard.");
  }
  const auto codes = draw.overflow == numeric::Overflow::infinity
                         ? detail::stochastic_codes<To, numeric::Overflow::infinity>(draw)
                     : draw.overflow == numeric::Overflow::saturate
                         ? detail::stochastic_codes<To, numeric::Overflow::saturate>(draw)
                         : detail::stochastic_codes<To, numeric::Overflow::nan>(draw);
  const auto body = HALFSTEP_PICK(compute.isa, stochastic_elements<To>);
  detail::parallel_elements(compute, std::ssize(in), [&](std::int64_t begin, std::int64_t end) {
    body(in.data(), out.data(), codes, begin, end);
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
