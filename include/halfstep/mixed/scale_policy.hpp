// SPDX-License-Identifier: MIT
// How a loss scale grows and falls, as data: one set of options, and by name the settings under which
// the engine behaves as PyTorch's, apex's, Megatron's, DeepSpeed's, fairseq's and jmp's.
// Not for: the engine (loss_scaler.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/strict_math.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// Which overflows count towards `hysteresis`: what makes the earlier ones forgotten.
enum class Hysteresis : std::uint8_t {
  consecutive,   ///< any good step: only overflows in a row count
  until_growth,  ///< a growth: until then every overflow after the first cut cuts again
  window,        ///< any change of the scale: each cut needs its own
};

/// What an overflow does that would cut a scale at its minimum.
enum class AtFloor : std::uint8_t {
  stay,   ///< the scale stays, and StepResult says so
  stop,   ///< StepResult asks to stop; who goes on is refused the next window
  error,  ///< the step throws NumericError
};

/// One rule for all, applied once for each step; the defaults are PyTorch's.
///
///   good step  after `interval` of them in a row the scale is multiplied by `growth`
///   overflow   begins that count anew; if at least `hysteresis` overflows count, and overflows are
///              at least the share `tolerance` of the steps since the scale last changed, the scale
///              is multiplied by `backoff`
///
/// Neither takes it out of [minimum, maximum]. As in fairseq, a growth begins the count of steps for
/// the tolerance anew but not that of overflows.
struct LossScalerOptions {
  float initial = 65536.0F;   ///< first scale
  float growth = 2.0F;        ///< > 1
  float backoff = 0.5F;       ///< in (0, 1)
  int interval = 2000;        ///< good steps, at least 1
  float minimum = 0x1p-126F;  ///< positive: a scale of 0 would end training
  /// Growth stops here. The largest float means none: a growth beyond it keeps the scale.
  float maximum = std::numeric_limits<float>::max();
  int hysteresis = 1;  ///< overflows that a cut needs, at least 1
  Hysteresis counted = Hysteresis::consecutive;
  float tolerance = 0.0F;  ///< share of overflows that a cut needs, in [0, 1]
  AtFloor at_floor = AtFloor::stay;

  /// torch.amp.GradScaler. Differs: that one falls to 0 in the end, this one stays at 2^-126.
  [[nodiscard]] static LossScalerOptions pytorch();
  /// apex.amp: at most 2^24.
  [[nodiscard]] static LossScalerOptions apex();
  /// apex's kernel with hysteresis, as NeMo uses it: `overflows` in a row cut, and each one after.
  [[nodiscard]] static LossScalerOptions apex_hysteresis(int overflows = 2);
  /// Megatron-LM's DynamicGradScaler. Its hysteresis is described as consecutive, but only a growth
  /// refills it. Differs: that one grows to infinity, this one stays finite.
  [[nodiscard]] static LossScalerOptions megatron();
  /// DeepSpeed where any key of its fp16 section is set; the run ends with an error at the minimum.
  /// The rule is that of early 2025; later ones wait for one good step more before each growth.
  [[nodiscard]] static LossScalerOptions deepspeed();
  /// DeepSpeed with consecutive_hysteresis.
  [[nodiscard]] static LossScalerOptions deepspeed_consecutive();
  /// fairseq, whose run ends with an error before its scale reaches 1e-4: of the powers of two, 2^-13
  /// is the last above.
  [[nodiscard]] static LossScalerOptions fairseq();
  /// deepmind/jmp's DynamicLossScale, at its usual 2^15.
  [[nodiscard]] static LossScalerOptions jmp();

  /// One of these by its name, words joined by hyphens: "deepspeed-consecutive".
  /// @throws OptionError listing the names.
  [[nodiscard]] static LossScalerOptions named(std::string_view name);

  friend bool operator==(const LossScalerOptions&, const LossScalerOptions&) = default;
};

inline LossScalerOptions LossScalerOptions::pytorch() { return {}; }
inline LossScalerOptions LossScalerOptions::apex() { return {.maximum = 0x1p24F}; }
inline LossScalerOptions LossScalerOptions::apex_hysteresis(int overflows) {
  return {.hysteresis = overflows, .counted = Hysteresis::consecutive};
}
inline LossScalerOptions LossScalerOptions::megatron() {
  return {.initial = 0x1p32F,
          .interval = 1000,
          .minimum = 1.0F,
          .hysteresis = 2,
          .counted = Hysteresis::until_growth};
}
inline LossScalerOptions LossScalerOptions::deepspeed() {
  return {.interval = 1000,
          .minimum = 1.0F,
          .hysteresis = 2,
          .counted = Hysteresis::until_growth,
          .at_floor = AtFloor::error};
}
inline LossScalerOptions LossScalerOptions::deepspeed_consecutive() {
  LossScalerOptions options = deepspeed();
  options.counted = Hysteresis::consecutive;
  return options;
}
inline LossScalerOptions LossScalerOptions::fairseq() {
  return {.initial = 0x1p15F, .minimum = 0x1p-13F, .at_floor = AtFloor::error};
}
inline LossScalerOptions LossScalerOptions::jmp() { return {.initial = 0x1p15F, .minimum = 1.0F}; }

/// A name and what it stands for.
struct NamedScalePolicy {
  std::string_view name;
  LossScalerOptions options;
};

/// All presets, in the order that messages list them.
[[nodiscard]] inline std::array<NamedScalePolicy, 8> scale_policies() {
  using O = LossScalerOptions;
  return {{{"pytorch", O::pytorch()},
           {"apex", O::apex()},
           {"apex-hysteresis", O::apex_hysteresis()},
           {"megatron", O::megatron()},
           {"deepspeed", O::deepspeed()},
           {"deepspeed-consecutive", O::deepspeed_consecutive()},
           {"fairseq", O::fairseq()},
           {"jmp", O::jmp()}}};
}

inline LossScalerOptions LossScalerOptions::named(std::string_view name) {
  std::string names;
  for (const NamedScalePolicy& policy : scale_policies()) {
    if (policy.name == name) return policy.options;
    names += (names.empty() ? "" : ", ") + std::string(policy.name);
  }
  core::fail<OptionError>("LossScalerOptions::named: there is no '", name, "'; wanted one of ",
                          names, ".");
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
