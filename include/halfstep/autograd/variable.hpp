// SPDX-License-Identifier: MIT
// The handles that user code passes around: a Variable is a place on a tape, a Loss is a sum with
// the count that it is a sum over; and both of what an op reads without their types. None owns
// anything.
#pragma once

#include <cstdint>
#include <span>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/shape.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

class Tape;

/// A tensor of element type T on a tape. Valid until the tape begins again; a stale one throws.
template <class T>
struct Variable {
  Tape* tape = nullptr;
  std::uint32_t id = 0;
  std::uint32_t generation = 0;  ///< which use of `id` on that tape is meant

  [[nodiscard]] Shape shape() const;
  /// The values, row-major. @throws StateError in a dry run, after the backward sweep has dropped
  /// them, or if the handle is stale.
  [[nodiscard]] std::span<const numeric::plane_t<T>> value() const;
};

/// What `Tape::backward` starts from: a sum over `count` items (tokens, elements), never a mean, so
/// that micro-batches of unequal counts add up. The sum is formed and kept in double.
struct Loss {
  Variable<double> variable;
  double sum = 0.0;    ///< 0 in a dry run
  double count = 0.0;  ///< items that took part; ignored targets do not

  [[nodiscard]] double mean() const { return count == 0.0 ? 0.0 : sum / count; }
};

/// An input of an op whose element type does not matter to the tape.
struct AnyVariable {
  Tape* tape = nullptr;
  std::uint32_t id = 0, generation = 0;
  AnyVariable() = default;
  template <class T>
  AnyVariable(Variable<T> v) : tape(v.tape), id(v.id), generation(v.generation) {}
};

/// A parameter of an op whose element type does not matter to the tape.
struct AnyParameter {
  tensor::ParameterTable* table = nullptr;
  ParameterId id;
  AnyParameter() = default;
  template <class T>
  AnyParameter(Parameter<T> p) : table(p.store), id(p.id) {}
};

}  // namespace halfstep::inline HALFSTEP_CONFIG
