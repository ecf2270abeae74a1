// SPDX-License-Identifier: MIT
// Prints bits that must not depend on compiler or optimisation: fma, rounded, regions, guard.
#include <bit>
#include <cstdint>
#include <cstdio>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/contraction.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/random.hpp>

int main() {
  namespace core = halfstep::core;
  std::uint64_t hash = 0;
  const auto take = [&hash](std::uint64_t bits) { hash = (hash ^ bits) * 0x100000001B3U; };
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const float a = core::uniform(1, 2, i), b = core::uniform(1, 3, i), c = core::uniform(1, 4, i);
    take(std::bit_cast<std::uint32_t>(core::fma(a, b, -c)));
    take(std::bit_cast<std::uint32_t>(core::rounded(a * b) - c));
    const double x = core::uniform64(1, 5, i), y = core::uniform64(1, 6, i);
    take(std::bit_cast<std::uint64_t>(core::fma(x, y, -x)));
    take(std::bit_cast<std::uint64_t>(core::rounded(x * y) - x));
    take(core::permutation(7, i % 3, 20000, i));
  }
  std::printf("inline code %016llx\n", static_cast<unsigned long long>(hash));
  for (const core::Isa isa : core::available_isas()) {
    std::printf("contracts %d\n", core::contracts(isa) ? 1 : 0);
  }
  float tiny[2] = {0x1p-120F, 0x1p-20F};
  core::Compute{}.parallel(1, 1, [&](std::int64_t, std::int64_t, int) { tiny[0] *= tiny[1]; });
  std::printf("flushed %a\n", static_cast<double>(tiny[0]));
}
