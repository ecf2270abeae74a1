// SPDX-License-Identifier: MIT
// One number of optimizer state per element, for the parts of parameters that a rule holds. What a
// rule is made of; not for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// Zero at first; part after part without padding; in the ledger's moments, or as master weights.
template <class R>
class Moments {
 public:
  Moments() = default;
  Moments(const tensor::ParameterTable& parameters, std::vector<Part> parts,
          core::Category category = core::Category::moments)
      : parameters_(&parameters), parts_(std::move(parts)) {
    std::int64_t count = 0;
    for (const Part& part : parts_) {
      offsets_.push_back(count);
      count += part.elements;
    }
    memory_ = tensor::Memory<R>(parameters.runtime().ledger(), category, count);
  }

  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  [[nodiscard]] const Part& part(std::size_t index) const { return parts_[index]; }
  [[nodiscard]] std::span<R> values(std::size_t index) {
    return {memory_.data() + offsets_[index], static_cast<std::size_t>(parts_[index].elements)};
  }

  /// Each part as <prefix><parameter>, with the shape of the whole and the range that is here.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor, std::string_view prefix) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& info = parameters_->info(parts_[i].id);
      const std::string name = core::text(prefix, info.name);
      visitor.tensor(tensor::StateTensor{name, numeric::dtype_of<R>, info.shape, info.first + parts_[i].first,
                                         std::as_writable_bytes(values(i))});
    }
  }

 private:
  const tensor::ParameterTable* parameters_ = nullptr;
  std::vector<Part> parts_;
  std::vector<std::int64_t> offsets_;
  tensor::Memory<R> memory_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
