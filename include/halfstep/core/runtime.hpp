// SPDX-License-Identifier: MIT
// What a training thread owns and passes on: thread pool, memory account, counters, the chosen
// path, the seed. One per thread that trains; never global.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/contraction.hpp>
#include <halfstep/core/counters.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/threads.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

struct RuntimeOptions {
  int threads = 0;                 ///< the caller included; 0: as many as the process may use
  std::uint64_t seed = 1;          ///< of every random number of the run
  std::optional<core::Isa> isa{};  ///< path of the kernels; none: HALFSTEP_ISA, else by the CPU
  bool dry = false;                ///< nothing is computed and no memory taken: see Runtime
};

/// A dry one predicts: the program that would train, built on it, fills the ledger with the bytes that
/// training would take, to the byte, and computes nothing: no memory backs what it makes, tapes run
/// shapes alone, and losses are sums of 0 over 0, for which an optimizer skips its update. Reading a
/// value is an error where the library sees it, and a fault where it does not.
class Runtime {
 public:
  /// @throws OptionError for threads outside [0, 1024], a path that the CPU does not have, or a
  /// program built so that the chosen path's kernels would contract.
  explicit Runtime(const RuntimeOptions& options = {})
      : options_(checked(options)),
        cpu_(core::detect_cpu()),
        available_(core::find_available_threads()),
        choice_(options.isa
                    ? core::choose_isa(cpu_, core::to_string(*options.isa), "RuntimeOptions::isa")
                    : core::default_isa_choice()),
        pool_(options.threads),
        ledger_(options.dry) {
    core::require_no_contraction(choice_.isa);
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// What kernels are handed. Valid as long as the Runtime is.
  [[nodiscard]] core::Compute compute() { return {choice_.isa, &pool_, &counters_, options_.dry}; }

  [[nodiscard]] core::ThreadPool& pool() { return pool_; }
  [[nodiscard]] core::Ledger& ledger() { return ledger_; }
  [[nodiscard]] const core::Ledger& ledger() const { return ledger_; }
  [[nodiscard]] core::Counters& counters() { return counters_; }
  [[nodiscard]] const core::Counters& counters() const { return counters_; }
  [[nodiscard]] std::uint64_t seed() const { return options_.seed; }
  [[nodiscard]] bool dry() const { return options_.dry; }
  [[nodiscard]] int threads() const { return pool_.size(); }
  [[nodiscard]] core::Isa isa() const { return choice_.isa; }

  /// One paragraph for a log: version, CPU, path and threads with the reason for each, seed.
  [[nodiscard]] std::string describe() const {
    const core::CpuFamily* const family = core::find_family(cpu_);
    std::string line = core::text("halfstep " HALFSTEP_VERSION " on ", cpu_.vendor, " family ",
                                  cpu_.family, " model ", cpu_.model);
    if (family != nullptr && core::supports(cpu_, family->preferred)) line += core::text(" (", family->name, ")");
    line += core::text("; path ", core::to_string(choice_.isa), " (", choice_.why, "); ", threads(),
                       threads() == 1 ? " thread (" : " threads (");
    if (options_.threads != 0) {
      line += "as asked; ";
      line += threads() > available_.threads ? "more than there are: " : "there are: ";
    }
    line += core::text(available_.affinity, " by affinity");
    if (available_.quota) line += core::text(", ", *available_.quota, " by control group quota");
    line += core::text("); seed ", options_.seed, ".");
    return line;
  }

 private:
  [[nodiscard]] static const RuntimeOptions& checked(const RuntimeOptions& options) {
    if (options.threads < 0 || options.threads > core::ThreadPool::max_threads) {
      core::fail<OptionError>("Runtime: threads is ", options.threads, "; wanted 1 to ",
                              core::ThreadPool::max_threads,
                              ", or 0 for as many as this process may use.");
    }
    return options;
  }

  RuntimeOptions options_;
  core::CpuFeatures cpu_;
  core::AvailableThreads available_;
  core::IsaChoice choice_;
  core::ThreadPool pool_;
  core::Ledger ledger_;
  core::Counters counters_;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG
