// SPDX-License-Identifier: MIT
// Data as a variable: inputs, features, fixed masks. No gradient flows into it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/element.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::element_type T>
struct Constant {
  struct Payload {
    const float* data;
    Shape shape;
  };
  static void infer(Infer& c) {
    c.output<T>(c.payload<Payload>().shape);
    c.backward_reads({}, {});
  }
  static void forward(Forward& c) {
    using S = numeric::plane_t<T>;
    const std::int64_t count = c.output_shape().elements();
    const auto n = static_cast<std::size_t>(count);
    numeric::convert(c.compute(), std::span<const float>(c.payload<Payload>().data, n), std::span<S>(c.output<S>(), n));
    if constexpr (numeric::planes<T> == 2) std::fill_n(c.output<S>(0, 1), count, S(0));
  }
  static void backward(Backward& /*c*/) {}
  static constexpr Op op{"constant", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// `values`, each rounded once to T, as a variable of that shape. Copied: the span is not kept.
/// @throws ShapeError if the number of values is not the shape's.
template <numeric::element_type T>
[[nodiscard]] Variable<T> constant(Tape& tape, const Shape& shape, std::span<const float> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
    core::fail<ShapeError>("constant: ", values.size(), " values for shape ", to_string(shape), ", which has ",
                           shape.elements());
  }
  using Op = autograd::ops::Constant<T>;
  return tape.handle<T>(tape.record(Op::op, {}, {}, typename Op::Payload{values.data(), shape}));
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
