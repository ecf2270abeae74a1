// SPDX-License-Identifier: MIT
// Prints the weights of the preset `hash` as hashes, each format on each path that is there. The
// output is compared between g++ and clang, -O0 and -O3 -march=native.
#include <cstdio>

#include <halfstep/core/isa.hpp>

#include "hash_run.hpp"

int main() {
  namespace hs = halfstep;
  const auto print = [](const char* format, std::string_view path, const hash_run::Outcome& o) {
    std::printf("%s %.*s %016llx %a %a %lld\n", format, static_cast<int>(path.size()), path.data(),
                static_cast<unsigned long long>(o.hash), o.train_loss, o.held_out,
                static_cast<long long>(o.skipped));
  };
  for (const hs::core::Isa isa : hs::core::available_isas()) {
    hash_run::Settings settings;
    settings.steps = 6;
    settings.runtime.threads = 2;
    settings.runtime.isa = isa;
    print("float", to_string(isa), hash_run::run<float>(settings));
    print("bf16", to_string(isa), hash_run::run<hs::bf16>(settings));
    settings.first_scale = 0x1p24F;
    print("fp16", to_string(isa), hash_run::run<hs::fp16>(settings));
  }
}
