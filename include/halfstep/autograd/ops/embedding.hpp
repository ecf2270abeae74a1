// SPDX-License-Identifier: MIT
// Rows of a table by token, with rows of a second table by position added: the foot of a GPT.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/embedding.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd::ops {
template <numeric::real_element T>
struct Embedding {
  using A = numeric::accumulator_t<T>;
  struct Payload {
    const std::int32_t* tokens;
    std::int64_t rows, length;
  };
  static void infer(Infer& c) {
    const auto& p = c.payload<Payload>();
    const auto& table = c.parameter_info(0);
    if (table.shape.rank() != 2) {
      core::fail<ShapeError>(table.name, ": an embedding table is [vocabulary, width], this is ",
                             to_string(table.shape));
    }
    const std::int64_t width = table.shape.width();
    if (c.parameters() == 2) {
      const auto& positions = c.parameter_info(1);
      if (positions.shape.rank() != 2 || positions.shape.width() != width ||
          positions.shape[0] < p.length) {
        core::fail<ShapeError>(positions.name, ": ", p.length, " tokens a sample of width ", width,
                               " want positions [at least ", p.length, ", ", width, "], this is ",
                               to_string(positions.shape),
                               ". Is the batch longer than the model's context?");
      }
    }
    c.output<T>({p.rows, p.length, width});
    c.backward_reads({}, {});
    c.backward_reads_parameters({});
    c.save<std::int32_t>(p.rows * p.length);
    c.workspace(0, kernels::embedding_workspace(p.rows * p.length, table.shape[0]));
    const auto n = static_cast<double>(p.rows * p.length * width);
    c.flops(n, n * static_cast<double>(c.parameters()));
  }
  static void forward(Forward& c) {
    const auto& p = c.payload<Payload>();
    std::copy_n(p.tokens, p.rows * p.length, c.saved<std::int32_t>(0));
    forward_plane(c, 0);
  }
  static void backward(Backward& c) { backward_plane(c, 0); }
  static void forward_tangents(Forward& c) { forward_plane(c, 1); }
  static void backward_tangents(Backward& c) { backward_plane(c, 1); }
  static void forward_plane(Forward& c, int plane) {
    const Shape out = c.output_shape();
    const auto count = static_cast<std::size_t>(out.rows());
    const auto width = static_cast<std::size_t>(out.width());
    const auto table = c.parameter<T>(0);
    const auto run = [&](std::span<const T> positions) {
      const std::int64_t elements = c.parameter_info(0).elements;
      kernels::embedding<T>(c.compute(), {c.saved<std::int32_t>(0), count},
                            {table.data() + plane * elements, static_cast<std::size_t>(elements)},
                            positions, {c.output<T>(0, plane), count * width}, out.width());
    };
    if (c.parameters() == 1) return run({});
    const auto positions = c.parameter<T>(1);
    run({positions.data() + plane * c.parameter_info(1).elements,
         static_cast<std::size_t>(out[1]) * width});
  }
  static void backward_plane(Backward& c, int plane) {
    const Shape out = c.output_shape();
    const auto count = static_cast<std::size_t>(out.rows());
    const auto width = static_cast<std::size_t>(out.width());
    const std::span<const std::int32_t> tokens{c.saved<std::int32_t>(0), count};
    const std::span<const T> dy{c.output_gradient<T>(0, plane), count * width};
    if (const auto dtable = c.parameter_gradient<A>(0, plane)) {
      kernels::embedding_backward<T>(
          c.compute(), tokens, dy,
          {dtable.data, static_cast<std::size_t>(c.parameter_info(0).elements)}, {}, out.width(),
          c.workspace(), dtable.accumulate);
    }
    if (c.parameters() == 1) return;
    if (const auto dpositions = c.parameter_gradient<A>(1, plane)) {
      const auto used = static_cast<std::size_t>(out[1]) * width;
      kernels::embedding_backward<T>(c.compute(), tokens, dy, {}, {dpositions.data, used},
                                     out.width(), {}, dpositions.accumulate);
      const auto all = static_cast<std::size_t>(c.parameter_info(1).elements);
      if (!dpositions.accumulate) std::fill(dpositions.data + used, dpositions.data + all, A(0));
    }
  }
  static constexpr Op op{"embedding", &infer, &forward, &backward};
};
}  // namespace autograd::ops

/// table[token] + positions[place in the sample], rounded once to T: [rows, length, width].
///
///   tokens     [rows x length], rows as the tape's micro-batch says; copied
///   table      [vocabulary, width]
///   positions  [at least length, width]; a default-constructed one is none
///
/// @throws ShapeError if rows do not divide the tokens or a table does not fit; DataError naming
/// the place of a token that is not in the vocabulary.
template <numeric::element_type T>
[[nodiscard]] Variable<T> embedding(Tape& tape, Parameter<T> table, Parameter<T> positions,
                                    std::span<const std::int32_t> tokens) {
  using Op = autograd::ops::Embedding<numeric::plane_t<T>>;
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t rows = tape.micro().rows;
  if (rows < 1 || count == 0 || count % rows != 0) {
    core::fail<ShapeError>("embedding: ", count, " tokens do not make ", rows,
                           " rows of equal length. Did the tape begin with the micro-batch that "
                           "the batch was made for?");
  }
  const typename Op::Payload payload{tokens.data(), rows, count / rows};
  constexpr const autograd::Op& op = autograd::op_on<T, Op>();
  return tape.handle<T>(positions.store == nullptr
                            ? tape.record(op, {}, {table}, payload)
                            : tape.record(op, {}, {table, positions}, payload));
}
template <numeric::element_type T>
[[nodiscard]] Variable<T> embedding(Tape& tape, Parameter<T> table,
                                    std::span<const std::int32_t> tokens) {
  return embedding(tape, table, Parameter<T>{}, tokens);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
