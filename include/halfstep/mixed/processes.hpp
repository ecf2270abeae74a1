// SPDX-License-Identifier: MIT
// The numbers of a step that several processes may share, and the role of those processes as a
// window sees them: who computes which micro-batches, and who makes one sum and one decision of
// many. Not for: how bytes travel (dist/).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/tensor/parameter_table.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

/// The numbers of a whole step, all ranks together. Its nominal targets are the product of the
/// three, whatever is ignored or ragged; they choose the seed, so every rank knows it before the
/// first forward.
struct StepShape {
  int micro_batches = 1;  ///< V; a power of two keeps the bits whatever it is distributed over
  int rows = 8;           ///< of a micro-batch
  std::int64_t targets_per_row = 128;
};

/// Which micro-batches of a step this process computes: first, first + stride, … (count of them).
struct MicroBatchRange {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 1;
};

/// The processes of a step, for a GradientAccumulator that is made with them. An implementer
/// promises that the sums, blocks and findings that it leaves are those that one process would
/// have, bit for bit, wherever this process holds them. All processes make the same calls.
template <class R>
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// This process's part of a step. @throws OptionError if the step cannot be divided so.
  [[nodiscard]] virtual MicroBatchRange share(const StepShape& shape) const = 0;

  /// Who sums this process's leaves; null: the accumulator itself, which then tells what follows.
  [[nodiscard]] virtual Sums<R>* sums() { return nullptr; }
  /// Memory for one sum of all gradients where others can reach it, kept as long as this; empty:
  /// the accumulator takes its own.
  [[nodiscard]] virtual std::span<R> memory(std::int64_t /*elements*/) { return {}; }
  /// A window begins. `sums`: of all parameters in order of registration.
  virtual void begin(std::span<R> /*sums*/) {}
  /// This process will not change the sum of that parameter any more. Not told of all parameters.
  virtual void finished(ParameterId /*id*/) {}
  /// Nor of any. Returns when the elements `held` of sums are those of the whole step, or sum_up
  /// can make them so.
  virtual void complete() {}
  /// Whether sum_up is to be called: after `gather`, once for every element that is held, some
  /// blocks of a parameter at a time, just before those are looked at.
  [[nodiscard]] virtual bool sums_in_pass_one() const { return false; }
  virtual void sum_up(core::Range /*elements*/) {}
  /// Of those sums, in elements of the store; see Sums.
  [[nodiscard]] virtual core::Range held() const { return {}; }

  /// This process's losses and counts, one of each for each of its micro-batches, become those of
  /// all micro-batches of the step in order of their numbers.
  virtual void gather(std::vector<double>& losses, std::vector<double>& counts) = 0;
  /// Comes back in every process when both hold what the whole step's do, the same bits everywhere.
  ///
  ///   findings  loss and count are the whole step's already. Where a process holds a part of the
  ///             gradient, what it found there is added by + along the house's tree over processes;
  ///             where all hold the whole, all have found the same, and it stays as it is
  ///   blocks    sums of squares of all blocks of 1024 elements, in order of registration: 0 for a
  ///             block that another process holds, so that their sum over processes is exact; not
  ///             to be touched where every process has the whole gradient
  virtual void decide(Findings& findings, std::span<double> blocks) = 0;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
