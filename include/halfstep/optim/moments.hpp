// SPDX-License-Identifier: MIT
// One number of optimizer state per element, for the parts of parameters that a rule holds, in the
// format of one's choice. What a rule is made of; users name the formats.
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
#include <halfstep/core/random.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

/// As the format of a moment: held in E, 16 bits, and rounded by chance (kernels::Drawn), so that
/// an average whose changes are below half an ulp still moves, by the right amount on average.
template <class E>
requires numeric::is_16bit<E>
struct drawn {
};

namespace detail {
template <class Format>
struct MomentFormat {
  using element = Format;
  static constexpr bool by_chance = false;
};
template <class E>
struct MomentFormat<drawn<E>> {
  using element = E;
  static constexpr bool by_chance = true;
};
}  // namespace detail

/// What a moment is stored in: E itself, or the E of drawn<E>.
template <class Format>
using stored_as = typename detail::MomentFormat<Format>::element;

/// A format that moments can have: float, double, bf16, fp16, drawn<bf16>, drawn<fp16>.
template <class Format>
concept moment_format = numeric::real_element<stored_as<Format>>;

/// The random words of one part at one step, as the house keys draws that belong to a parameter: by
/// (seed, its name and `role`), element = step x elements + index in the whole parameter, `step`
/// being the number of updates before this one. So no cut into parts, threads or ranks shows, and a
/// resumed run draws what an unbroken one does.
[[nodiscard]] inline kernels::Draws draws_of(const tensor::ParameterTable& parameters,
                                             const Part& part, std::string_view role,
                                             std::int64_t step) {
  const auto& info = parameters.info(part.id);
  return {parameters.runtime().seed(), core::stream(info.name, role),
          static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(info.shape.elements()) +
              static_cast<std::uint64_t>(info.first + part.first)};
}

/// Zero at first; part after part without padding; in the ledger's moments, or as master weights.
template <moment_format Format>
class Moments {
 public:
  using Element = stored_as<Format>;

  Moments() = default;
  Moments(const tensor::ParameterTable& parameters, std::vector<Part> parts,
          core::Category category = core::Category::moments)
      : parameters_(&parameters), parts_(std::move(parts)) {
    std::int64_t count = 0;
    for (const Part& part : parts_) {
      offsets_.push_back(count);
      count += part.elements;
    }
    memory_ = tensor::Memory<Element>(parameters.runtime().ledger(), category, count);
  }

  [[nodiscard]] std::size_t size() const { return parts_.size(); }
  [[nodiscard]] const Part& part(std::size_t index) const { return parts_[index]; }
  [[nodiscard]] std::span<Element> values(std::size_t index) {
    return {memory_.data() + offsets_[index], static_cast<std::size_t>(parts_[index].elements)};
  }
  /// A part as a kernel reads and writes it; `role` and `step` key the draws, if there are any.
  [[nodiscard]] auto held(std::size_t index, std::string_view role, std::int64_t step) {
    if constexpr (detail::MomentFormat<Format>::by_chance) {
      return kernels::Drawn<Element>(values(index),
                                     draws_of(*parameters_, parts_[index], role, step));
    } else {
      return kernels::Plain<Element>(values(index));
    }
  }

  /// Each part as <prefix><parameter>, with the shape of the whole and the range that is here.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor, std::string_view prefix) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& info = parameters_->info(parts_[i].id);
      const std::string name = core::text(prefix, info.name);
      visitor.tensor(tensor::StateTensor{name, numeric::dtype_of<Element>, info.shape,
                                         info.first + parts_[i].first,
                                         std::as_writable_bytes(values(i))});
    }
  }

 private:
  const tensor::ParameterTable* parameters_ = nullptr;
  std::vector<Part> parts_;
  std::vector<std::int64_t> offsets_;
  tensor::Memory<Element> memory_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
