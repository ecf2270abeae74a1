// SPDX-License-Identifier: MIT
// How state is visited: everything with state has one template `visit_state(visitor)` that names
// its tensors and scalars. Saving, loading, hashing, comparing and sharding are visitors, so that
// no part of the library lists the state of another.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/shape.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// One tensor of somebody's state, or the part of it that is held here.
struct StateTensor {
  std::string_view name;  ///< unique within what is visited: "blocks.0.up.weight", "adamw.m.…"
  numeric::DType dtype;
  Shape shape;                 ///< of the whole, logical tensor
  std::int64_t first = 0;      ///< of the range held here, in elements of the logical tensor
  std::span<std::byte> bytes;  ///< that range, writable: a loading visitor fills it in the call

  /// Whether `bytes` are all of it, and no shard.
  [[nodiscard]] bool whole() const {
    return bytes.size() == static_cast<std::size_t>(shape.elements()) * numeric::size_of(dtype);
  }
};

/// The promise of a visitor. Scalars are 64-bit: counts stay integers, scales and metrics doubles.
template <class V>
concept state_visitor = requires(V& visitor, const StateTensor& tensor, std::string_view name,
                                 std::int64_t& integer, double& real) {
  visitor.tensor(tensor);
  visitor.scalar(name, integer);
  visitor.scalar(name, real);
};

/// Any visitor behind one type: for state whose own type is not known where it is visited. It must
/// outlive this.
class AnyVisitor {
 public:
  template <state_visitor Visitor>
  explicit AnyVisitor(Visitor& visitor)
      : visitor_(&visitor),
        tensor_([](void* to, const StateTensor& one) { static_cast<Visitor*>(to)->tensor(one); }),
        integer_([](void* to, std::string_view name, std::int64_t& value) {
          static_cast<Visitor*>(to)->scalar(name, value);
        }),
        real_([](void* to, std::string_view name, double& value) {
          static_cast<Visitor*>(to)->scalar(name, value);
        }) {}
  void tensor(const StateTensor& one) { tensor_(visitor_, one); }
  void scalar(std::string_view name, std::int64_t& value) { integer_(visitor_, name, value); }
  void scalar(std::string_view name, double& value) { real_(visitor_, name, value); }

 private:
  void* visitor_;
  void (*tensor_)(void*, const StateTensor&);
  void (*integer_)(void*, std::string_view, std::int64_t&);
  void (*real_)(void*, std::string_view, double&);
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
