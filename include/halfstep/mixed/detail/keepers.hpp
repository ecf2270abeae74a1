// SPDX-License-Identifier: MIT
// The memory behind each mixed::Keep: what stands beside the 16-bit weights of a store, how a
// kernel sees both, what of it is state. Part of MasterWeights; knows no optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/kernels/pack.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed::detail {

/// A keeper has
///   held(i, weights, step)   the view of parameter i that a kernel is given
///   adopt(i)                 what it keeps is made from the weights alone
///   agrees(i)                whether what it keeps belongs to the weights, if that can be told
///   visit_state(visitor)     all that is needed to go on, weights included where it is not they
///                            that follow; what a visitor stores there stays
///   visit_weights(visitor)   the weights in the most precise form that exists in memory
///   weights_hash()
template <Keep keep, class T>
class Keeper;

/// Passes tensors on under "weights.<name>".
template <tensor::state_visitor Visitor>
struct AsWeights {
  Visitor& visitor;
  void tensor(const tensor::StateTensor& tensor) {
    visitor.tensor({core::text("weights.", tensor.name), tensor.dtype, tensor.shape, tensor.first,
                    tensor.bytes});
  }
  void scalar(std::string_view name, std::int64_t& value) { visitor.scalar(name, value); }
  void scalar(std::string_view name, double& value) { visitor.scalar(name, value); }
};
template <class T>
void show_weights(Parameters<T>& parameters, tensor::state_visitor auto& visitor) {
  AsWeights<std::remove_reference_t<decltype(visitor)>> named{visitor};
  parameters.visit_state(named);
}

template <class T>
class Keeper<Keep::master, T> {
 public:
  explicit Keeper(Parameters<T>& parameters)
      : parameters_(parameters),
        masters_(parameters, optim::whole_parts(parameters), core::Category::master) {}

  [[nodiscard]] auto held(std::uint32_t i, std::span<T> weights, std::int64_t /*step*/) {
    return kernels::WithCopy<float, T>(masters_.values(i), weights);
  }
  [[nodiscard]] std::span<float> values(std::uint32_t i) { return masters_.values(i); }
  // Conversions are integer code: the caller's floating-point environment has no say.
  void adopt(std::uint32_t i) {
    const std::span<const T> weights = parameters_.values(ParameterId{i});
    numeric::convert(parameters_.runtime().compute(), weights, masters_.values(i));
  }
  [[nodiscard]] bool agrees(std::uint32_t i) {
    const auto weights = parameters_.values(ParameterId{i});
    const auto master = masters_.values(i);
    for (std::size_t e = 0; e < master.size(); ++e)
      if (static_cast<T>(master[e]).bits() != weights[e].bits()) return false;
    return true;
  }
  void visit_state(tensor::state_visitor auto& visitor) {
    masters_.visit_state(visitor, "master.");
    narrow();
  }
  void visit_weights(tensor::state_visitor auto& visitor) {
    masters_.visit_state(visitor, "");
    narrow();
  }
  [[nodiscard]] std::uint64_t weights_hash() {
    tensor::StateHash hash;
    masters_.visit_state(hash, "");
    return hash.value();
  }

 private:
  void narrow() {
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      if (agrees(i)) continue;
      const std::span<const float> master = masters_.values(i);
      numeric::convert(parameters_.runtime().compute(), master, parameters_.write({i}));
    }
  }

  Parameters<T>& parameters_;
  optim::Moments<float> masters_;
};

template <>
class Keeper<Keep::split, bf16> {
 public:
  explicit Keeper(Parameters<bf16>& parameters)
      : parameters_(parameters),
        low_(parameters.runtime().ledger(), core::Category::master, parameters.count()) {}

  [[nodiscard]] auto held(std::uint32_t i, std::span<bf16> weights, std::int64_t /*step*/) {
    return kernels::Split(weights, low(i));
  }
  void adopt(std::uint32_t i) {
    for (std::uint16_t& x : low(i))
      x = 0;
  }
  [[nodiscard]] bool agrees(std::uint32_t /*i*/) const { return false; }
  void visit_state(tensor::state_visitor auto& visitor) {
    show_weights(parameters_, visitor);
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto& info = parameters_.infos()[i];
      visitor.tensor(tensor::StateTensor{core::text("low.", info.name),
                                         numeric::dtype_of<std::uint16_t>, info.shape,
                                         info.first, std::as_writable_bytes(low(i))});
    }
  }
  void visit_weights(tensor::state_visitor auto& visitor) { parameters_.visit_state(visitor); }
  [[nodiscard]] std::uint64_t weights_hash() {
    tensor::Memory<float> joined(parameters_.runtime().ledger(), core::Category::workspace,
                                 parameters_.count());
    tensor::StateHash hash;
    for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
      const auto& info = parameters_.infos()[i];
      const auto floats = joined.span().subspan(static_cast<std::size_t>(info.offset),
                                                static_cast<std::size_t>(info.elements));
      // Read alone: a view has no const form.
      const auto weights = parameters_.values(ParameterId{i});
      const std::span<bf16> upper(const_cast<bf16*>(weights.data()), weights.size());
      kernels::unpack(parameters_.runtime().compute(), held(i, upper, 0), floats);
      hash.tensor({info.name, numeric::DType::f32, info.shape, info.first,
                   std::as_writable_bytes(floats)});
    }
    return hash.value();
  }

 private:
  [[nodiscard]] std::span<std::uint16_t> low(std::uint32_t i) {
    const auto& info = parameters_.infos()[i];
    return low_.span().subspan(static_cast<std::size_t>(info.offset),
                               static_cast<std::size_t>(info.elements));
  }

  Parameters<bf16>& parameters_;
  tensor::Memory<std::uint16_t> low_;
};

template <class T>
class Keeper<Keep::rest, T> {
 public:
  explicit Keeper(Parameters<T>& parameters)
      : parameters_(parameters),
        rest_(parameters, optim::whole_parts(parameters), core::Category::master) {}

  [[nodiscard]] auto held(std::uint32_t i, std::span<T> weights, std::int64_t /*step*/) {
    return kernels::Compensated<T>(weights, rest_.values(i));
  }
  void adopt(std::uint32_t i) {
    for (T& x : rest_.values(i))
      x = T{};
  }
  [[nodiscard]] bool agrees(std::uint32_t /*i*/) const { return false; }
  void visit_state(tensor::state_visitor auto& visitor) {
    show_weights(parameters_, visitor);
    rest_.visit_state(visitor, "compensation.");
  }
  void visit_weights(tensor::state_visitor auto& visitor) { parameters_.visit_state(visitor); }
  [[nodiscard]] std::uint64_t weights_hash() { return tensor::state_hash(parameters_); }

 private:
  Parameters<T>& parameters_;
  optim::Moments<T> rest_;
};

template <class T>
class Keeper<Keep::nothing, T> {
 public:
  explicit Keeper(Parameters<T>& parameters) : parameters_(parameters) {}

  [[nodiscard]] auto held(std::uint32_t i, std::span<T> weights, std::int64_t step) {
    return kernels::Drawn<T>(
        weights,
        optim::draws_of(parameters_, {{i}, 0, parameters_.infos()[i].elements}, "weights", step));
  }
  void adopt(std::uint32_t /*i*/) {}
  [[nodiscard]] bool agrees(std::uint32_t /*i*/) const { return true; }
  void visit_state(tensor::state_visitor auto& visitor) { show_weights(parameters_, visitor); }
  void visit_weights(tensor::state_visitor auto& visitor) { parameters_.visit_state(visitor); }
  [[nodiscard]] std::uint64_t weights_hash() { return tensor::state_hash(parameters_); }

 private:
  Parameters<T>& parameters_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed::detail
