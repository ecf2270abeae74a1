// SPDX-License-Identifier: MIT
// What is known of parameters without their bytes: names, shapes, roles, order, versions. The base
// of every Parameters<T>, so that the tape, optimizers and sinks can speak of a parameter without
// knowing its format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/shape.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// What a parameter is for; decides, for instance, whether weight decay applies.
enum class Role : std::uint8_t { weight, bias, gain, embedding };

[[nodiscard]] constexpr std::string_view to_string(Role role) {
  constexpr std::string_view names[]{"weight", "bias", "gain", "embedding"};
  return names[static_cast<std::size_t>(role)];
}

/// The distribution of initial values. Element i of a parameter is a pure function of (seed, the
/// parameter's full name, i): neither order of registration nor format nor rank enters.
struct Init {
  float mean = 0.0F;
  float deviation = 0.0F;  ///< 0: every element is `mean`
  [[nodiscard]] static constexpr Init normal(float deviation) { return {0.0F, deviation}; }
  [[nodiscard]] static constexpr Init constant(float value) { return {value, 0.0F}; }
};

/// A parameter's number in its store, in order of registration.
struct ParameterId {
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(ParameterId, ParameterId) = default;
};

namespace tensor {

struct ParameterInfo {
  std::string name;           ///< full, with the scopes' prefix: "blocks.3.up.weight"
  Shape shape;
  Role role = Role::weight;
  Init init;
  std::int64_t offset = 0;    ///< of its first element, in elements of the store
  std::int64_t elements = 0;  ///< that this store holds
  std::uint32_t version = 0;  ///< advanced by every write
  std::int64_t first = 0;     ///< of those, in elements of the whole parameter: not 0 where it is cut
};

/// "blocks.3.up" of "blocks.3.up.weight": the layer that a message names.
[[nodiscard]] inline std::string_view layer_name(const ParameterInfo& info) {
  const auto dot = info.name.rfind('.');
  return std::string_view(info.name).substr(0, dot == std::string::npos ? info.name.size() : dot);
}

/// The numbered layer that a parameter is in ("blocks.3" of "blocks.3.up.weight"), else its layer
/// ("norm" of "norm.gain"): what ZeRO 3 gathers at a time.
[[nodiscard]] inline std::string_view unit_name(const ParameterInfo& info) {
  const std::string_view name = info.name;
  std::size_t begin = 0;
  for (auto dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', begin)) {
    const std::string_view part = name.substr(begin, dot - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos)
      return name.substr(0, dot);
    begin = dot + 1;
  }
  return layer_name(info);
}

class AnyStore;

/// Registered parameters in order. Offsets are contiguous, without padding.
class ParameterTable {
 public:
  /// Gradients of these parameters have `planes` planes of `gradient_dtype`, whatever the weights' format.
  ParameterTable(Runtime& runtime, numeric::DType gradient_dtype, int planes)
      : runtime_(runtime), gradient_dtype_(gradient_dtype), planes_(planes) {}
  ParameterTable(const ParameterTable&) = delete;
  ParameterTable& operator=(const ParameterTable&) = delete;

  [[nodiscard]] Runtime& runtime() const { return runtime_; }
  [[nodiscard]] numeric::DType gradient_dtype() const { return gradient_dtype_; }
  [[nodiscard]] int planes() const { return planes_; }
  /// Number of parameters, and of their elements.
  [[nodiscard]] std::size_t size() const { return infos_.size(); }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] const ParameterInfo& info(ParameterId id) const { return infos_[id.index]; }
  [[nodiscard]] const std::vector<ParameterInfo>& infos() const { return infos_; }
  /// @throws OptionError if no parameter has that name.
  [[nodiscard]] ParameterId find(std::string_view name) const {
    const auto at = std::find_if(infos_.begin(), infos_.end(), [&](const auto& i) { return i.name == name; });
    if (at == infos_.end()) core::fail<OptionError>("Parameters: no parameter is called '", name, "'");
    return {static_cast<std::uint32_t>(at - infos_.begin())};
  }

  /// Gives the store its memory and initial values, once. The first tape that begins does it; from
  /// then on nothing can be registered.
  virtual void lay_out() = 0;
  /// Through which weights are read: the resident one, or one that was put in front of it.
  [[nodiscard]] virtual AnyStore& store() = 0;

 protected:
  ~ParameterTable() = default;

  Runtime& runtime_;
  numeric::DType gradient_dtype_;
  int planes_;
  std::vector<ParameterInfo> infos_;
  std::int64_t count_ = 0;
};

}  // namespace tensor
}  // namespace halfstep::inline HALFSTEP_CONFIG
