// SPDX-License-Identifier: MIT
// The kernels of every element type as explicit instantiations: our own programs include this first
// and link the objects made from kernels.cpp, so that each instruction set's code is compiled once
// and not in two hundred units. Not for users, whose units instantiate what they use.
#pragma once

#include <halfstep/kernels.hpp>

#ifndef HALFSTEP_KERNELS
#define HALFSTEP_KERNELS extern template
#endif

// The functions of one element type E with accumulator A.
#define HALFSTEP_KERNELS_OF(E, A)                                                                       \
  HALFSTEP_KERNELS void gemm<E, E>(const core::Compute&, core::MatrixView<const E>,                     \
                                   core::MatrixView<const E>, E*, std::int64_t,                         \
                                   const std::type_identity_t<GemmOptions<E>>&, std::span<std::byte>);  \
  HALFSTEP_KERNELS std::int64_t gemm_workspace<E>(const core::Compute&, std::int64_t, std::int64_t,     \
                                                  std::int64_t);                                        \
  HALFSTEP_KERNELS CrossEntropySum head_loss<E>(                                                        \
      const core::Compute&, core::MatrixView<const E>, core::MatrixView<const E>,                       \
      std::span<const std::int32_t>, A, E*, A*, std::span<std::byte>, const HeadLossOptions&);          \
  HALFSTEP_KERNELS void linear_backward_bias<E>(const core::Compute&, core::MatrixView<const E>,        \
                                                std::span<A>, Write);                                   \
  HALFSTEP_KERNELS void add<E>(const core::Compute&, std::span<const E>, std::span<const E>,            \
                               std::span<E>);                                                           \
  HALFSTEP_KERNELS void multiply<E>(const core::Compute&, std::span<const E>, std::span<const E>,       \
                                    std::span<E>);                                                      \
  HALFSTEP_KERNELS void scale<E>(const core::Compute&, std::span<const E>, A, std::span<E>);            \
  HALFSTEP_KERNELS void fill<E>(const core::Compute&, E, std::span<E>);                                 \
  HALFSTEP_KERNELS void dropout<E>(const core::Compute&, std::span<const E>, std::span<E>, float,       \
                                   std::uint64_t, std::uint64_t, std::uint64_t);                        \
  HALFSTEP_KERNELS void gelu_forward<E, GeluForm::tanh>(const core::Compute&, std::span<const E>,       \
                                                        std::span<E>);                                  \
  HALFSTEP_KERNELS void gelu_forward<E, GeluForm::erf>(const core::Compute&, std::span<const E>,        \
                                                       std::span<E>);                                   \
  HALFSTEP_KERNELS void gelu_backward<E, GeluForm::tanh>(const core::Compute&, std::span<const E>,      \
                                                         std::span<const E>, std::span<E>);             \
  HALFSTEP_KERNELS void gelu_backward<E, GeluForm::erf>(const core::Compute&, std::span<const E>,       \
                                                        std::span<const E>, std::span<E>);              \
  HALFSTEP_KERNELS void layer_norm<E>(const core::Compute&, std::span<const E>, std::span<const E>,     \
                                      std::span<const E>, std::span<E>, std::span<A>, std::span<A>,     \
                                      const NormOptions&);                                              \
  HALFSTEP_KERNELS void layer_norm_backward_input<E>(                                                   \
      const core::Compute&, std::span<const E>, std::span<const E>, std::span<const E>,                 \
      std::span<const A>, std::span<const A>, std::span<E>, bool);                                      \
  HALFSTEP_KERNELS void layer_norm_backward_parameters<E>(                                              \
      const core::Compute&, std::span<const E>, std::span<const E>, std::span<const A>,                 \
      std::span<const A>, std::span<A>, std::span<A>, bool);                                            \
  HALFSTEP_KERNELS void rms_norm<E>(const core::Compute&, std::span<const E>, std::span<const E>,       \
                                    std::span<E>, std::span<A>, const NormOptions&);                    \
  HALFSTEP_KERNELS void rms_norm_backward_input<E>(const core::Compute&, std::span<const E>,            \
                                                   std::span<const E>, std::span<const E>,              \
                                                   std::span<const A>, std::span<E>, bool);             \
  HALFSTEP_KERNELS void rms_norm_backward_gain<E>(const core::Compute&, std::span<const E>,             \
                                                  std::span<const E>, std::span<const A>, std::span<A>, \
                                                  bool);                                                \
  HALFSTEP_KERNELS void attention<E>(const core::Compute&, const AttentionShape&, std::span<const E>,   \
                                     std::span<E>, std::span<A>, std::span<std::byte>,                  \
                                     const AttentionDropout&);                                          \
  HALFSTEP_KERNELS void attention_of_last<E>(const core::Compute&, const AttentionShape&,               \
                                             std::span<const E>, std::span<const E>, std::span<E>,      \
                                             std::span<std::byte>);                                     \
  HALFSTEP_KERNELS void attention_backward<E>(                                                          \
      const core::Compute&, const AttentionShape&, std::span<const E>, std::span<const E>,              \
      std::span<const E>, std::span<const A>, std::span<E>, std::span<std::byte>,                       \
      const AttentionDropout&);                                                                         \
  HALFSTEP_KERNELS void embedding<E>(const core::Compute&, std::span<const std::int32_t>,               \
                                     std::span<const E>, std::span<const E>, std::span<E>,              \
                                     std::int64_t);                                                     \
  HALFSTEP_KERNELS void embedding_backward<E>(const core::Compute&, std::span<const std::int32_t>,      \
                                              std::span<const E>, std::span<A>, std::span<A>,           \
                                              std::int64_t, std::span<std::byte>, bool);                \
  HALFSTEP_KERNELS SquaredErrorSum squared_error<E>(const core::Compute&, std::span<const E>,           \
                                                    std::span<const A>, std::span<double>);             \
  HALFSTEP_KERNELS void squared_error_backward<E>(const core::Compute&, std::span<const E>,             \
                                                  std::span<const A>, A, std::span<E>);                 \
  HALFSTEP_KERNELS double sum<E>(const core::Compute&, std::span<const E>, std::span<double>);          \
  HALFSTEP_KERNELS A sum_in_accumulator<E>(const core::Compute&, std::span<const E>, std::span<A>);     \
  HALFSTEP_KERNELS double sum_of_squares<E>(const core::Compute&, std::span<const E>, std::span<double>); \
  HALFSTEP_KERNELS void fold<E>(const core::Compute&, Reduction, std::span<const E* const>,             \
                                std::span<E* const>, std::int64_t, int);

// Of a 16-bit element besides: products in float, and the copy that an optimizer writes.
#define HALFSTEP_KERNELS_OF_16_BITS(E)                                                                   \
  HALFSTEP_KERNELS void gemm<E, float>(const core::Compute&, core::MatrixView<const E>,                  \
                                       core::MatrixView<const E>, float*, std::int64_t,                  \
                                       const std::type_identity_t<GemmOptions<E>>&,                      \
                                       std::span<std::byte>);                                            \
  HALFSTEP_KERNELS void adamw_step<float, WithCopy<float, E>, float, Plain<float>, Plain<float>>(       \
      const core::Compute&, const AdamWOptions&, std::int64_t, double, const WithCopy<float, E>&,       \
      std::span<const float>, const Plain<float>&, const Plain<float>&);                                \
  HALFSTEP_KERNELS void sgd_step<float, WithCopy<float, E>, float, Plain<float>>(                       \
      const core::Compute&, const SgdOptions&, double, const WithCopy<float, E>&,                       \
      std::span<const float>, const Plain<float>&);                                                     \
  HALFSTEP_KERNELS void stochastic_round<E>(const core::Compute&, std::span<const float>, std::span<E>,  \
                                            const StochasticDraw&);                                      \
  HALFSTEP_KERNELS void cast<E, float>(const core::Compute&, std::span<const E>, std::span<float>, Write); \
  HALFSTEP_KERNELS void cast<float, E>(const core::Compute&, std::span<const float>, std::span<E>, Write);

// Of float and double alone: losses and optimizers.
#define HALFSTEP_KERNELS_OF_ACCUMULATOR(A)                                                                \
  HALFSTEP_KERNELS void gelu_backward_tangents<A, GeluForm::tanh>(                                        \
      const core::Compute&, std::span<const A>, std::span<const A>, std::span<const A>,                   \
      std::span<const A>, std::span<A>);                                                                  \
  HALFSTEP_KERNELS void gelu_backward_tangents<A, GeluForm::erf>(                                         \
      const core::Compute&, std::span<const A>, std::span<const A>, std::span<const A>,                   \
      std::span<const A>, std::span<A>);                                                                  \
  HALFSTEP_KERNELS CrossEntropySum cross_entropy<A>(const core::Compute&, std::span<const A>,             \
                                                    std::span<const std::int32_t>, std::span<A>,          \
                                                    std::span<A>, const CrossEntropyOptions&);            \
  HALFSTEP_KERNELS void cross_entropy_backward<A, A>(                                                     \
      const core::Compute&, std::span<const A>, std::span<const std::int32_t>, std::span<const A>, A,     \
      std::span<A>, const CrossEntropyOptions&);                                                          \
  HALFSTEP_KERNELS A fold_blocks<A>(const core::Compute&, std::span<A>);                                  \
  HALFSTEP_KERNELS NonFinite gradient_pass<A>(const core::Compute&, std::span<const A>,                   \
                                              std::span<double>, Underflows<A>*);                         \
  HALFSTEP_KERNELS void adamw_step<A, Plain<A>, A, Plain<A>, Plain<A>>(                                 \
      const core::Compute&, const AdamWOptions&, std::int64_t, double, const Plain<A>&,                 \
      std::span<const A>, const Plain<A>&, const Plain<A>&);                                            \
  HALFSTEP_KERNELS void sgd_step<A, Plain<A>, A, Plain<A>>(const core::Compute&, const SgdOptions&,     \
                                                           double, const Plain<A>&,                     \
                                                           std::span<const A>, const Plain<A>&);        \
  HALFSTEP_KERNELS void cast<A, A>(const core::Compute&, std::span<const A>, std::span<A>, Write);

namespace halfstep::inline HALFSTEP_CONFIG::kernels {
#ifdef HALFSTEP_KERNELS_ELEMENT
#if HALFSTEP_KERNELS_ELEMENT_IS_16_BITS
HALFSTEP_KERNELS_OF(HALFSTEP_KERNELS_ELEMENT, float)
HALFSTEP_KERNELS_OF_16_BITS(HALFSTEP_KERNELS_ELEMENT)
#else
HALFSTEP_KERNELS_OF(HALFSTEP_KERNELS_ELEMENT, HALFSTEP_KERNELS_ELEMENT)
HALFSTEP_KERNELS_OF_ACCUMULATOR(HALFSTEP_KERNELS_ELEMENT)
#endif
#else
HALFSTEP_KERNELS_OF(float, float)
HALFSTEP_KERNELS_OF(double, double)
HALFSTEP_KERNELS_OF(bf16, float)
HALFSTEP_KERNELS_OF(fp16, float)
HALFSTEP_KERNELS_OF_16_BITS(bf16)
HALFSTEP_KERNELS_OF_16_BITS(fp16)
HALFSTEP_KERNELS_OF_ACCUMULATOR(float)
HALFSTEP_KERNELS_OF_ACCUMULATOR(double)
#endif
}  // namespace halfstep::inline HALFSTEP_CONFIG::kernels
