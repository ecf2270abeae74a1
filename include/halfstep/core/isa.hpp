// SPDX-License-Identifier: MIT
// Which instruction-set path the kernels take: what the CPU has, what the table of CPU families
// prefers, what HALFSTEP_ISA asks for. All paths give the same bits; the choice is one of speed.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <cpuid.h>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::core {

/// The paths, from the one that runs everywhere upwards.
enum class Isa : std::uint8_t { portable, avx2, avx512, avx512_bf16 };
inline constexpr std::array<Isa, 4> all_isas{Isa::portable, Isa::avx2, Isa::avx512,
                                             Isa::avx512_bf16};

/// The name of a path, as HALFSTEP_ISA takes it.
[[nodiscard]] constexpr std::string_view to_string(Isa isa) {
  constexpr std::array<std::string_view, 4> names{"portable", "avx2", "avx512", "avx512_bf16"};
  return names[static_cast<std::size_t>(isa)];
}

/// The path of that name, if there is one.
[[nodiscard]] constexpr std::optional<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : all_isas) {
    if (to_string(isa) == name) return isa;
  }
  return std::nullopt;
}

/// What a CPU has, and an operating system that saves the registers. Each path needs all features
/// that its HALFSTEP_BEGIN_TARGET names.
struct CpuFeatures {
  bool avx2 = false;         ///< AVX, AVX2, FMA, F16C, BMI, BMI2
  bool avx512 = false;       ///< the same, and AVX-512 F, BW, DQ, VL
  bool avx512_bf16 = false;  ///< the same, and AVX512_BF16
  std::string vendor;        ///< "GenuineIntel", "AuthenticAMD" …
  unsigned family = 0;       ///< display family: 6 for Intel, 0x19 for Zen 3 and 4 …
  unsigned model = 0;        ///< display model
};

namespace detail {
/// XCR0: which register states the operating system saves. Only after CPUID has shown OSXSAVE.
[[nodiscard]] inline std::uint32_t saved_register_states() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}
}  // namespace detail

/// Asks the CPU that runs this. Some microseconds (CPUID traps in a virtual machine).
[[nodiscard]] inline CpuFeatures detect_cpu() {
  CpuFeatures cpu;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return cpu;
  for (const unsigned part : {b, d, c}) {
    for (int byte = 0; byte < 4; ++byte) {
      cpu.vendor += static_cast<char>((part >> (8 * byte)) & 0xFF);
    }
  }
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return cpu;
  const unsigned base_family = (a >> 8) & 0xF;
  cpu.family = base_family + (base_family == 0xF ? (a >> 20) & 0xFF : 0);
  cpu.model = (a >> 4) & 0xF;
  if (base_family == 0x6 || base_family == 0xF) cpu.model |= (a >> 12) & 0xF0;

  const auto has = [](unsigned value, auto... bits) {
    return (((value >> static_cast<unsigned>(bits)) & 1U) && ...);
  };
  if (!has(c, 27)) return cpu;  // OSXSAVE
  const std::uint32_t saved = detail::saved_register_states();
  const bool saves_ymm = (saved & 0x06) == 0x06;
  const bool saves_zmm = (saved & 0xE6) == 0xE6;
  const bool fma_f16c_avx = has(c, 12, 28, 29);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return cpu;
  const unsigned subleaves = a;
  cpu.avx2 = saves_ymm && fma_f16c_avx && has(b, 3, 5, 8);       // BMI, AVX2, BMI2
  cpu.avx512 = cpu.avx2 && saves_zmm && has(b, 16, 17, 30, 31);  // F, DQ, BW, VL
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    cpu.avx512_bf16 = cpu.avx512 && has(a, 5);
  }
  return cpu;
}

/// Whether kernels of that path can run there.
[[nodiscard]] inline bool supports(const CpuFeatures& cpu, Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return cpu.avx2;
    case Isa::avx512:
      return cpu.avx512;
    case Isa::avx512_bf16:
      return cpu.avx512_bf16;
  }
  return false;
}

/// The paths that this CPU can run, portable first.
[[nodiscard]] inline std::vector<Isa> available_isas(const CpuFeatures& cpu) {
  std::vector<Isa> isas;
  for (const Isa isa : all_isas) {
    if (supports(cpu, isa)) isas.push_back(isa);
  }
  return isas;
}
[[nodiscard]] inline std::vector<Isa> available_isas() { return available_isas(detect_cpu()); }

/// A line of the table of families: the fastest path of CPUs with these models.
struct CpuFamily {
  std::string_view name;
  std::string_view vendor;
  unsigned family;
  unsigned first_model;
  unsigned last_model;
  Isa preferred;
};

/// CPUs with AVX512_BF16, whose CPUID bit says nothing of speed: one VDPBF16PS replaces two FMAs and
/// is twice as fast as these on Zen, but half as fast on Emerald Rapids (ceiling.hpp measures 89
/// and 179 GFLOP/s a core), whose fast 16-bit unit is AMX. Granite Rapids is listed by kinship, not
/// by measurement. A CPU that is not listed takes AVX-512 if it has it, else AVX2.
inline constexpr std::array<CpuFamily, 6> cpu_families{{
    {"AMD Zen 4", "AuthenticAMD", 0x19, 0x10, 0xFF, Isa::avx512_bf16},
    {"AMD Zen 5", "AuthenticAMD", 0x1A, 0x00, 0xFF, Isa::avx512_bf16},
    {"Intel Cooper Lake", "GenuineIntel", 6, 0x55, 0x55, Isa::avx512_bf16},
    {"Intel Sapphire Rapids", "GenuineIntel", 6, 0x8F, 0x8F, Isa::avx512},
    {"Intel Emerald Rapids", "GenuineIntel", 6, 0xCF, 0xCF, Isa::avx512},
    {"Intel Granite Rapids", "GenuineIntel", 6, 0xAD, 0xAE, Isa::avx512},
}};

/// The line of a CPU, or null.
[[nodiscard]] inline const CpuFamily* find_family(const CpuFeatures& cpu) {
  for (const CpuFamily& line : cpu_families) {
    if (line.vendor == cpu.vendor && line.family == cpu.family && line.first_model <= cpu.model &&
        cpu.model <= line.last_model) {
      return &line;
    }
  }
  return nullptr;
}

/// A path and the reason for it, to be printed.
struct IsaChoice {
  Isa isa = Isa::portable;
  std::string why;
};

/// The path to take on a CPU. `requested` is a name (empty: none), `source` where it came from.
/// @throws OptionError for a name that is none, or a path that the CPU does not have.
[[nodiscard]] inline IsaChoice choose_isa(const CpuFeatures& cpu, std::string_view requested = {},
                                          std::string_view source = "HALFSTEP_ISA") {
  if (!requested.empty()) {
    const std::optional<Isa> isa = parse_isa(requested);
    if (isa && supports(cpu, *isa)) return {*isa, text(source, " asks for it")};
    std::string has;
    for (const Isa one : available_isas(cpu)) {
      has += has.empty() ? "" : ", ";
      has += to_string(one);
    }
    if (!isa) {
      fail<OptionError>("choose_isa: ", source, " is \"", requested,
                        "\", which is no instruction-set path. This CPU has: ", has, ".");
    }
    fail<OptionError>("choose_isa: ", source, " asks for ", requested,
                      ", which this CPU does not have, or its operating system does not switch on. "
                      "It has: ",
                      has, ".");
  }
  if (const CpuFamily* line = find_family(cpu); line != nullptr) {
    if (supports(cpu, line->preferred)) {
      return {line->preferred, text("the fastest on ", line->name)};
    }
  }
  if (cpu.avx512) return {Isa::avx512, "the CPU has AVX-512"};
  if (cpu.avx2) return {Isa::avx2, "the CPU has AVX2 and FMA, but no usable AVX-512"};
  return {Isa::portable, "the CPU has no usable AVX2 with FMA"};
}

/// The choice for this process: the environment variable HALFSTEP_ISA, else the table.
/// @throws OptionError as above.
[[nodiscard]] inline IsaChoice default_isa_choice() {
  const char* const requested = std::getenv("HALFSTEP_ISA");
  return choose_isa(detect_cpu(), requested == nullptr ? "" : requested);
}

/// The path of that choice; a constant of the process, taken at the first call.
[[nodiscard]] inline Isa default_isa() {
  static const Isa isa = default_isa_choice().isa;
  return isa;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::core
