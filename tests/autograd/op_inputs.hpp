// SPDX-License-Identifier: MIT
// What the tests of ops give an op: parameters that stand for its inputs, and numbers.
#pragma once

#include <cstdint>
#include <vector>

#include <halfstep/tensor/parameters.hpp>

namespace op_inputs {

/// x, y of one shape; w [o, i], b and c [o].
template <class T>
struct Inputs {
  halfstep::Parameter<T> x, y, w, b, c;
  Inputs(halfstep::Scope<T> s, halfstep::Shape shape, std::int64_t out)
      : x(s.add("x", shape, halfstep::Role::weight, halfstep::Init::normal(1.0F))),
        y(s.add("y", shape, halfstep::Role::weight, halfstep::Init::normal(1.0F))),
        w(s.add("w", {out, shape.width()}, halfstep::Role::weight, halfstep::Init::normal(0.7F))),
        b(s.add("b", {out}, halfstep::Role::bias, halfstep::Init::normal(0.7F))),
        c(s.add("c", {out}, halfstep::Role::bias, halfstep::Init::normal(0.7F))) {}
};

inline std::vector<float> numbers(std::int64_t count) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>((i * 37 + 11) % 23) / 8.0F - 1.3F);
  return out;
}

}  // namespace op_inputs
