// SPDX-License-Identifier: MIT
#include <halfstep/core/isa.hpp>

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {
using namespace halfstep::core;
using testing::ElementsAre;
using testing::HasSubstr;

CpuFeatures cpu(int level, std::string vendor = "GenuineIntel", unsigned family = 6,
                unsigned model = 1) {
  return {level >= 1, level >= 2, level >= 3, std::move(vendor), family, model};
}
std::string message(const CpuFeatures& features, std::string_view requested) {
  try {
    static_cast<void>(choose_isa(features, requested));
  } catch (const halfstep::OptionError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Isa, NamesReadBack) {
  for (const Isa isa : all_isas)
    EXPECT_EQ(parse_isa(to_string(isa)), isa);
  for (const char* name : {"", "AVX2", "avx", "avx512 ", "avx512_bf1"}) {
    EXPECT_EQ(parse_isa(name), std::nullopt) << name;
  }
}
TEST(Isa, EachLevelOffersThePathsUpToIt) {
  EXPECT_THAT(available_isas(cpu(0)), ElementsAre(Isa::portable));
  EXPECT_THAT(available_isas(cpu(1)), ElementsAre(Isa::portable, Isa::avx2));
  EXPECT_THAT(available_isas(cpu(2)), ElementsAre(Isa::portable, Isa::avx2, Isa::avx512));
  EXPECT_THAT(available_isas(cpu(3)), testing::ElementsAreArray(all_isas));
}
TEST(Isa, TheTableDecidesWhereTheBitMeansNothing) {
  const auto choice = [](const char* vendor, unsigned family, unsigned model) {
    return choose_isa(cpu(3, vendor, family, model)).isa;
  };
  EXPECT_EQ(choice("AuthenticAMD", 0x19, 0x61), Isa::avx512_bf16);  // Raphael, Zen 4
  EXPECT_EQ(choice("AuthenticAMD", 0x19, 0x11), Isa::avx512_bf16);  // Genoa, Zen 4
  EXPECT_EQ(choice("AuthenticAMD", 0x1A, 0x02), Isa::avx512_bf16);  // Turin, Zen 5
  EXPECT_EQ(choice("GenuineIntel", 6, 0x55), Isa::avx512_bf16);     // Cooper Lake
  EXPECT_EQ(choice("GenuineIntel", 6, 0x8F), Isa::avx512);          // Sapphire Rapids
  EXPECT_EQ(choice("GenuineIntel", 6, 0xCF), Isa::avx512);          // Emerald Rapids
  EXPECT_EQ(choice("GenuineIntel", 6, 0x01), Isa::avx512);          // one that nobody knows
  EXPECT_EQ(choice("AuthenticAMD", 6, 0x55), Isa::avx512);          // the vendor counts
}
TEST(Isa, ThePreferredPathIsNotTakenWhereTheCpuLacksIt) {
  // Skylake and Cascade Lake have Cooper Lake's model; Zen 3 has Zen 4's family; a virtual machine
  // may hide features.
  EXPECT_EQ(choose_isa(cpu(2, "GenuineIntel", 6, 0x55)).isa, Isa::avx512);
  EXPECT_EQ(choose_isa(cpu(1, "AuthenticAMD", 0x19, 0x21)).isa, Isa::avx2);
  EXPECT_EQ(choose_isa(cpu(1, "GenuineIntel", 6, 0xCF)).isa, Isa::avx2);
  EXPECT_EQ(choose_isa(cpu(0, "GenuineIntel", 6, 0xCF)).isa, Isa::portable);
  EXPECT_EQ(choose_isa(CpuFeatures{}).isa, Isa::portable);
}
TEST(Isa, ARequestWins) {
  for (const Isa isa : all_isas) {
    const IsaChoice choice = choose_isa(cpu(3, "GenuineIntel", 6, 0xCF), to_string(isa));
    EXPECT_EQ(choice.isa, isa);
    EXPECT_EQ(choice.why, "HALFSTEP_ISA asks for it");
  }
}
TEST(Isa, AnEmptyRequestIsNone) { EXPECT_EQ(choose_isa(cpu(1), "").isa, Isa::avx2); }
TEST(Isa, AnUnknownNameIsRefusedWithWhatTheCpuHas) {
  EXPECT_EQ(message(cpu(2), "sse9"),
            "choose_isa: HALFSTEP_ISA is \"sse9\", which is no instruction-set path. This CPU has: "
            "portable, avx2, avx512.");
}
TEST(Isa, APathThatTheCpuLacksIsRefusedWithWhatItHas) {
  EXPECT_EQ(message(cpu(1), "avx512"),
            "choose_isa: HALFSTEP_ISA asks for avx512, which this CPU does not have, or its "
            "operating system does not switch on. It has: portable, avx2.");
}
TEST(Isa, TheVariableIsRead) {
  const char* const set = std::getenv("HALFSTEP_ISA");
  const std::string before = set == nullptr ? "" : set;
  setenv("HALFSTEP_ISA", "portable", 1);
  EXPECT_EQ(default_isa_choice().isa, Isa::portable);
  setenv("HALFSTEP_ISA", "nonsense", 1);
  EXPECT_THROW(static_cast<void>(default_isa_choice()), halfstep::OptionError);
  setenv("HALFSTEP_ISA", before.c_str(), 1);
  if (set == nullptr) unsetenv("HALFSTEP_ISA");
  EXPECT_EQ(default_isa(), default_isa_choice().isa);
}
// The compilers' own detection as the oracle, for the bits that both of them know.
TEST(Isa, DetectionAgreesWithTheCompilers) {
  __builtin_cpu_init();
  const CpuFeatures found = detect_cpu();
  EXPECT_EQ(found.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"));
  EXPECT_EQ(found.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") &&
                              __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(found.avx512_bf16, found.avx512 && __builtin_cpu_supports("avx512bf16"));
  EXPECT_EQ(found.vendor == "GenuineIntel", __builtin_cpu_is("intel") != 0);
  EXPECT_EQ(found.vendor == "AuthenticAMD", __builtin_cpu_is("amd") != 0);
  EXPECT_GT(found.family, 0U);
}
}  // namespace
