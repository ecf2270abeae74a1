// SPDX-License-Identifier: MIT
// Who owns the bytes of parameters. Everything that reads a weight acquires it first and releases
// it after: free of cost where the weights are resident, a gather and a drop where they are
// sharded.
#pragma once

#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::tensor {

/// A store as those see it who do not read, whatever its elements are: the tape holds what an op
/// reads while the op runs.
class AnyStore {
 public:
  AnyStore() = default;
  AnyStore(const AnyStore&) = delete;
  AnyStore& operator=(const AnyStore&) = delete;
  virtual ~AnyStore() = default;

  /// As Store::acquire.
  virtual void hold(ParameterId id) = 0;
  virtual void release(ParameterId id) = 0;
  /// The reads that come begin anew, and values may have changed: what was brought from elsewhere
  /// and nobody holds is dropped. `repeats`: they are those of the last time that said so, in the
  /// same order, as one micro-batch reads what the other does.
  virtual void restart(bool /*repeats*/) {}
};

/// The role of a store of elements S (the plane type of the model's element type). An implementer
/// promises that the pointer from `acquire` is valid, and its content does not change, until the
/// matching `release`; acquires of one parameter may nest.
template <class S>
class Store : public AnyStore {
 public:
  /// All elements of the parameter, planes one after the other.
  [[nodiscard]] virtual const S* acquire(ParameterId id) = 0;
  void hold(ParameterId id) final { static_cast<void>(acquire(id)); }
};

/// An acquired parameter, released on every way out.
template <class S>
class Acquired {
 public:
  Acquired(Store<S>& store, ParameterId id) : store_(&store), id_(id), data_(store.acquire(id)) {}
  Acquired(Acquired&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), id_(other.id_), data_(other.data_) {}
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;
  Acquired& operator=(Acquired&&) = delete;
  ~Acquired() {
    if (store_ != nullptr) store_->release(id_);
  }

  [[nodiscard]] const S* data() const { return data_; }

 private:
  Store<S>* store_;
  ParameterId id_;
  const S* data_;
};

/// Parameters whose planes are of S, one or two of them: what an op reads them through.
template <class S>
class StoredTable : public ParameterTable {
 public:
  using ParameterTable::ParameterTable;
  [[nodiscard]] Store<S>& store() override = 0;

 protected:
  ~StoredTable() = default;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::tensor
