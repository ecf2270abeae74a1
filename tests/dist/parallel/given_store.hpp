// SPDX-License-Identifier: MIT
// A store of a few parameters on one rank, and a window of gradients that a test writes down. Not
// part of the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halfstep/core/runtime.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/tensor/parameters.hpp>

#include "mixed/given_tape.hpp"

namespace halfstep_tests {

namespace hs = halfstep;

/// Parameters "a", "b", … of these numbers of elements.
template <class T>
struct GivenStore {
  hs::Runtime runtime;
  hs::Parameters<T> parameters;
  std::vector<hs::Parameter<T>> all;
  explicit GivenStore(const std::vector<std::int64_t>& elements, std::uint64_t seed = 1)
      : runtime({.threads = 1, .seed = seed}), parameters(runtime) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      all.push_back(parameters.scope().add(std::string(1, static_cast<char>('a' + i)),
                                           {elements[i]}, hs::Role::weight,
                                           hs::Init::normal(1.0F)));
    }
  }
};

/// The window of iteration `number` after its micro-batches: element e of every gradient of
/// micro-batch m is gradient(e, m).
template <class T>
[[nodiscard]] auto given_window(GivenTape& tape, hs::mixed::GradientAccumulator<T>& accumulator,
                                int number, int micro_batches, const auto& gradient) {
  const auto& parameters = accumulator.parameters();
  auto window = accumulator.begin(
      tape, number, {.micro_batches = micro_batches, .rows = 1, .targets_per_row = 1});
  for (const auto micro : window) {
    tape.begin(micro);
    GivenLoss<float> loss{.sum = 1.0, .leaves = {}};
    for (auto i = static_cast<std::uint32_t>(parameters.size()); i-- > 0;) {
      auto& leaf = loss.leaves.emplace_back(GivenLeaf<float>{{i}, {}}).gradient;
      for (std::int64_t e = 0; e < parameters.infos()[i].elements; ++e)
        leaf.push_back(gradient(e, micro.number));
    }
    window.backward(tape, loss);
  }
  return window;
}
/// Gradients that differ from element to element, micro-batch to micro-batch, step to step.
[[nodiscard]] inline auto gradients_of(int number) {
  return [number](std::int64_t element, std::int64_t micro_batch) {
    return 0.1F * static_cast<float>((element * 7 + micro_batch * 3 + number) % 13) - 0.5F;
  };
}

}  // namespace halfstep_tests
