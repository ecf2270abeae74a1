// SPDX-License-Identifier: MIT
// The window of a step: numbers its micro-batches, fixes seed and loss scale before the first
// forward pass, sums gradients, losses and counts in the house's order, and hands the sum to the
// optimizer in a type that only a step accepts. Not for: the update itself (optim/,
// master_weights.hpp).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/mixed/gradient_sums.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::mixed {

template <class T>
class GradientAccumulator;

/// One step's micro-batches. Move-only; made by GradientAccumulator::begin.
///
///   for (const auto micro : window) {
///     tape.begin(micro);
///     window.backward(tape, loss of this micro-batch);
///   }
///   optimizer.step(std::move(window).unscale().clip_norm(1.0F), lr);
///
/// A window that is destroyed before that detaches itself from the tape, and the accumulator can
/// begin another. Tape and accumulator must outlive it. A moved-from window throws StateError.
template <class T>
class Window {
 public:
  class Iterator {
   public:
    Iterator(const Window& window, std::int64_t index) : window_(&window), index_(index) {}
    [[nodiscard]] MicroBatch operator*() const { return window_->live("Window").micro(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const Window* window_;
    std::int64_t index_;
  };

  Window(Window&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
  Window& operator=(Window&&) = delete;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (owner_ != nullptr) owner_->drop();
  }

  /// This process's micro-batches, in order.
  [[nodiscard]] Iterator begin() const {
    static_cast<void>(live("Window::begin"));
    return {*this, 0};
  }
  [[nodiscard]] Iterator end() const { return {*this, live("Window::end").range_.count}; }

  /// The reverse sweep of one micro-batch: its gradients enter the sum, its loss and count the
  /// totals. Exactly once for each, in order, on the tape that the window was begun with.
  /// @throws StateError for any other order or tape. If the sweep itself throws, the window is
  /// spoilt: drop it and begin another.
  template <class TapeLike, class LossLike>
  void backward(TapeLike& tape, const LossLike& loss) {
    live("Window::backward").backward(tape, loss);
  }

  /// Mean loss of the micro-batches so far; their sum; their valid targets.
  [[nodiscard]] double loss() const { return live("Window::loss").total().mean; }
  [[nodiscard]] double loss_sum() const { return live("Window::loss_sum").total().sum; }
  [[nodiscard]] double count() const { return live("Window::count").total().count; }
  /// What the gradient of the summed loss is multiplied by: loss scale / 2^ceil(log2(nominal
  /// targets)).
  [[nodiscard]] double seed() const { return live("Window::seed").seed_; }

  /// Ends the window: finishes the sum, looks for non-finite values and the norm, and detaches the
  /// tape. Costs one read of the gradient, in which it also counts what `underflow` asks for, if
  /// that is not null: of the whole step's gradient, or of the part of it that this process holds.
  /// @throws StateError if micro-batches are missing.
  [[nodiscard]] Unscaled<T> unscale(Underflow* underflow = nullptr) && {
    GradientAccumulator<T>& owner = live("Window::unscale");
    auto gradients = owner.sum(underflow);
    owner_ = nullptr;  // from here on it is the gradients that end the window, whatever is thrown
    owner.decide(gradients);
    return gradients;
  }
  /// std::move(window).unscale(): the window ends here.
  Unscaled<T> unscale(Underflow* underflow = nullptr) & = delete;

 private:
  friend class GradientAccumulator<T>;
  explicit Window(GradientAccumulator<T>& owner) : owner_(&owner) {}
  GradientAccumulator<T>& live(std::string_view what) const {
    if (owner_ == nullptr) {
      core::fail<StateError>(
          what, ": the window has ended or was moved from. Begin another: accumulator.begin(...).");
    }
    return *owner_;
  }
  GradientAccumulator<T>* owner_;
};

/// Sums the gradients of `Parameters<T>` over the micro-batches of a step; one window at a time.
/// Not movable: windows and tapes point to it. Memory: see GradientSums, and 8 bytes for every 1024
/// elements; after the first window of a shape nothing is allocated.
template <class T>
class GradientAccumulator {
  static_assert(numeric::real_element<T>, "gradients of duals go to a sink of their own");

 public:
  using gradient = typename Parameters<T>::gradient;

  /// Without a scaler the loss scale is 1.
  explicit GradientAccumulator(Parameters<T>& parameters)
      : parameters_(parameters), resident_(parameters), sums_(resident_) {}
  GradientAccumulator(Parameters<T>& parameters, LossScaler& scaler)
      : parameters_(parameters), scaler_(&scaler), resident_(parameters), sums_(resident_) {}
  /// For one of several processes, which must outlive it: a window is this process's share of the
  /// step, and `unscale` gives what all of them have found. Scaler: null for a loss scale of 1.
  GradientAccumulator(Parameters<T>& parameters, LossScaler* scaler, Processes<gradient>& processes)
      : parameters_(parameters),
        scaler_(scaler),
        processes_(&processes),
        resident_(parameters, &processes),
        sums_(processes.sums() == nullptr ? resident_ : *processes.sums()) {}
  GradientAccumulator(const GradientAccumulator&) = delete;
  GradientAccumulator& operator=(const GradientAccumulator&) = delete;

  /// Opens the window of `iteration`: sets the tape's seed, attaches the sums to it, holds the
  /// scale. `iteration` counts windows, skipped updates among them; it keys data and random
  /// numbers.
  /// @throws OptionError for numbers below 1 (iteration: 0) or a product beyond 2^53; StateError
  /// while another window of this accumulator is open, or for a dry tape on a runtime that is not
  /// dry; NumericError where the scaler has asked to stop.
  template <class TapeLike>
  [[nodiscard]] Window<T> begin(TapeLike& tape, std::int64_t iteration,
                                const StepShape& shape = {}) {
    return begin(tape, iteration, shape,
                 processes_ == nullptr ? MicroBatchRange{0, 1, shape.micro_batches}
                                       : processes_->share(shape));
  }
  /// The same for a share of the step's micro-batches that the caller names. The window's loss and
  /// count are then of these until `unscale`, and without Processes also after it, as the sum is.
  template <class TapeLike>
  [[nodiscard]] Window<T> begin(TapeLike& tape, std::int64_t iteration, const StepShape& shape,
                                const MicroBatchRange& range) {
    const std::int64_t nominal = checked(iteration, shape, range);
    if (open_) {
      core::fail<StateError>(
          "GradientAccumulator::begin: the window of iteration ", iteration_,
          " is open still. End it by optimizer.step(std::move(window).unscale(), lr), or let it ",
          "go out of scope.");
    }
    if (tape.dry() && !parameters_.runtime().dry()) {
      core::fail<StateError>(
          "GradientAccumulator::begin: the tape is dry: it places buffers and computes nothing. ",
          "Call tape.backward(loss) there, without a window.");
    }
    if (scaler_ != nullptr) scaler_->require_running();
    sums_.begin(range.count);
    prepare_blocks();
    losses_.clear();
    counts_.clear();
    losses_.reserve(static_cast<std::size_t>(shape.micro_batches));
    counts_.reserve(static_cast<std::size_t>(shape.micro_batches));
    iteration_ = iteration;
    shape_ = shape;
    range_ = range;
    spoilt_ = false;
    // Both factors are powers of two unless the user's scale is none: nothing rounds.
    const auto exponent =
        static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(nominal) - 1));
    seed_ = (scaler_ == nullptr ? 1.0 : static_cast<double>(scaler_->scale())) *
            std::bit_cast<double>((1023 - exponent) << 52);
    tape.attach(parameters_, sums_);
    tape.set_seed(seed_);
    tape_ = &tape;
    detach_ = [](void* attached, const tensor::ParameterTable& parameters,
                 const tensor::Sink& sums) {
      static_cast<TapeLike*>(attached)->detach(parameters, sums);
      static_cast<TapeLike*>(attached)->set_seed(1.0);
    };
    if (scaler_ != nullptr) scaler_->hold();
    open_ = true;
    return Window<T>(*this);
  }

  [[nodiscard]] bool window_open() const { return open_; }
  [[nodiscard]] Parameters<T>& parameters() const { return parameters_; }

 private:
  friend class Window<T>;

  static std::int64_t checked(std::int64_t iteration, const StepShape& shape,
                              const MicroBatchRange& range) {
    std::int64_t nominal = 0;
    const bool small =
        !__builtin_mul_overflow(static_cast<std::int64_t>(shape.micro_batches) * shape.rows,
                                shape.targets_per_row, &nominal) &&
        nominal <= std::int64_t{1} << 53;
    if (iteration < 0 || shape.micro_batches < 1 || shape.rows < 1 || shape.targets_per_row < 1 ||
        !small) {
      core::fail<OptionError>(
          "GradientAccumulator::begin: iteration ", iteration, ", micro_batches ",
          shape.micro_batches, ", rows ", shape.rows, ", targets_per_row ", shape.targets_per_row,
          "; wanted iteration >= 0, the others >= 1 and their product at most 2^53. ",
          "Is the accumulation count an unset option?");
    }
    if (range.first < 0 || range.stride < 1 || range.count < 1 ||
        range.first + (range.count - 1) * range.stride >= shape.micro_batches) {
      core::fail<OptionError>("GradientAccumulator::begin: ", range.count, " micro-batches from ",
                              range.first, " by ", range.stride, " are not within the step's ",
                              shape.micro_batches, ". Has this rank a share of the step?");
    }
    return nominal;
  }

  [[nodiscard]] MicroBatch micro(std::int64_t index) const {
    const std::int64_t number = range_.first + index * range_.stride;
    return {iteration_, number, (iteration_ * shape_.micro_batches + number) * shape_.rows,
            shape_.rows};
  }

  template <class TapeLike, class LossLike>
  void backward(TapeLike& tape, const LossLike& loss) {
    const auto done = static_cast<std::int64_t>(losses_.size());
    if (spoilt_) {
      core::fail<StateError>(
          "Window::backward: an earlier sweep of this window threw, so its sum is incomplete. ",
          "Drop the window and begin another.");
    }
    if (static_cast<void*>(&tape) != tape_) {
      core::fail<StateError>(
          "Window::backward: this is not the tape that the window was begun with");
    }
    if (done == range_.count) {
      core::fail<StateError>("Window::backward: all ", range_.count,
                             " micro-batches are in the sum already. ",
                             "Was backward called twice in the loop's last turn?");
    }
    const MicroBatch wanted = micro(done);
    if (tape.micro().iteration != wanted.iteration || tape.micro().number != wanted.number) {
      core::fail<StateError>("Window::backward: the tape was begun for iteration ",
                             tape.micro().iteration, ", micro-batch ", tape.micro().number,
                             ", but the next one of the window is iteration ", wanted.iteration,
                             ", micro-batch ", wanted.number,
                             ". Call tape.begin(micro) and window.backward once for each micro of "
                             "the window, in order.");
    }
    if (tape.seed() != seed_) {
      core::fail<StateError>("Window::backward: the tape's seed is ", tape.seed(),
                             ", the window had set ", seed_,
                             ". Is another window open on this tape?");
    }
    spoilt_ = true;
    tape.backward(loss);
    sums_.next();
    spoilt_ = false;
    losses_.push_back(loss.sum);
    counts_.push_back(loss.count);
  }

  [[nodiscard]] LossTotal total() const {
    LossTotal total;
    parameters_.runtime().compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
      total.sum = tree(losses_);
      total.count = tree(counts_);
      total.mean = total.count == 0.0 ? 0.0 : total.sum / total.count;
    });
    return total;
  }
  // Subtree by subtree: the largest power of two below the number is the left half of the tree.
  [[nodiscard]] static double tree(std::span<const double> leaves) {
    if (leaves.size() <= 1) return leaves.empty() ? 0.0 : leaves[0];
    const std::size_t left = std::bit_floor(leaves.size() - 1);
    return tree(leaves.first(left)) + tree(leaves.subspan(left));
  }

  [[nodiscard]] Unscaled<T> sum(Underflow* underflow) {
    const auto done = static_cast<std::int64_t>(losses_.size());
    if (spoilt_ || done != range_.count) {
      core::fail<StateError>(
          "Window::unscale: ", done, " of ", range_.count, " micro-batches are in the sum",
          spoilt_ ? ", and the sweep of the next one threw. Drop the window and begin another."
                  : ". Call window.backward for each micro of the window.");
    }
    detach();
    sums_.fold();
    if (processes_ != nullptr) processes_->gather(losses_, counts_);
    return Unscaled<T>(sums_, processes_, scaler_, open_, blocks_.span(), seed_, total(),
                       underflow);
  }
  void decide(Unscaled<T>& gradients) { gradients.decide(processes_); }
  void detach() { detach_(tape_, parameters_, sums_); }
  void drop() {
    detach();
    if (scaler_ != nullptr) scaler_->release();
    open_ = false;
  }
  void prepare_blocks() {
    std::int64_t blocks = 0;
    for (const auto& info : parameters_.infos())
      blocks += kernels::sum_blocks(info.elements);
    if (blocks_.size() != blocks) {
      blocks_ =
          tensor::Memory<double>(parameters_.runtime().ledger(), core::Category::workspace, blocks);
    }
  }

  Parameters<T>& parameters_;
  LossScaler* scaler_ = nullptr;
  Processes<gradient>* processes_ = nullptr;
  GradientSums<gradient> resident_;  // without memory where somebody else sums
  Sums<gradient>& sums_;
  tensor::Memory<double> blocks_;        // per block of 1024 elements, its sum of squares
  std::vector<double> losses_, counts_;  // per micro-batch
  std::int64_t iteration_ = 0;
  StepShape shape_;
  MicroBatchRange range_;
  double seed_ = 1.0;
  bool open_ = false;  // from begin until the Window is dropped or its Unscaled ends
  bool spoilt_ = false;
  void* tape_ = nullptr;
  void (*detach_)(void* tape, const tensor::ParameterTable& parameters,
                  const tensor::Sink& sums) = nullptr;
};

template <class T>
GradientAccumulator(Parameters<T>&) -> GradientAccumulator<T>;
template <class T>
GradientAccumulator(Parameters<T>&, LossScaler&) -> GradientAccumulator<T>;

}  // namespace halfstep::inline HALFSTEP_CONFIG::mixed
