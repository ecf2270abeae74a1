// SPDX-License-Identifier: MIT
// Which parameters decay: by role, never by a pattern on names. Weights and embeddings do, gains
// and biases do not. Each parameter is in exactly one group, and the table is there to be printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::optim {

[[nodiscard]] constexpr bool decays(Role role) {
  return role == Role::weight || role == Role::embedding;
}

/// The decay of a parameter with that role.
[[nodiscard]] constexpr double decay_of(Role role, double weight_decay) {
  return decays(role) ? weight_decay : 0.0;
}

struct Group {
  std::string_view name;   ///< "decay" or "no decay"
  std::string_view roles;  ///< "weight, embedding"
  double weight_decay = 0.0;
  std::int64_t parameters = 0;  ///< tensors in it
  std::int64_t elements = 0;
};

/// Both groups, empty ones too; they sum to the store's.
[[nodiscard]] inline std::vector<Group> groups(const tensor::ParameterTable& parameters,
                                               double weight_decay) {
  std::vector<Group> result{{"decay", "weight, embedding", weight_decay},
                            {"no decay", "gain, bias", 0.0}};
  for (const auto& info : parameters.infos()) {
    Group& group = result[decays(info.role) ? 0 : 1];
    ++group.parameters;
    group.elements += info.elements;
  }
  return result;
}

/// A table for a log, a line per group:
///   group     weight_decay  tensors   elements  roles
///   decay              0.1       18     804096  weight, embedding
[[nodiscard]] inline std::string to_string(const std::vector<Group>& groups) {
  const auto right = [](const std::string& cell, std::size_t width) {
    return std::string(cell.size() < width ? width - cell.size() : 0, ' ') + cell;
  };
  std::string out = "group     weight_decay  tensors   elements  roles\n";
  for (const Group& group : groups) {
    std::string name(group.name);
    name.resize(10, ' ');
    out += name + right(core::text(group.weight_decay), 12) +
           right(core::text(group.parameters), 9) + right(core::text(group.elements), 11) + "  " +
           std::string(group.roles) + '\n';
  }
  return out;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::optim
