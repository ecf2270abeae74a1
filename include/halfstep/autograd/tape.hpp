// SPDX-License-Identifier: MIT
// The tape: records ops as they run, then sweeps backward over them. Its arrays only grow within a
// micro-batch and its memory stays for the next one. Not for two threads at a time: one tape each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/autograd/graph.hpp>
#include <halfstep/autograd/held_parameters.hpp>
#include <halfstep/autograd/keep.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/segment.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/assert.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/placement.hpp>
#include <halfstep/tensor/sink.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

namespace autograd {
struct LiveTensor;
}

/// What a pass is for. `nothing` (evaluation, sampling): no gradients, no dropout, nothing saved.
enum class Record { gradients, nothing };

class Tape {
 public:
  /// real computes; dry places every buffer by the same rules, in a ledger of its own, and runs
  /// only each op's `infer`: nothing is allocated and no value can be read.
  enum class Mode { real, dry };

  /// On a dry runtime every tape is dry, and a Mode::real one is in the runtime's account.
  explicit Tape(Runtime& runtime, Mode mode = Mode::real)
      : runtime_(runtime),
        own_account_(mode == Mode::dry),
        graph_(runtime.compute(), mode == Mode::dry ? dry_ledger_ : runtime.ledger(),
               dry() ? tensor::Arena::Kind::dry : tensor::Arena::Kind::real) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Forgets the previous micro-batch (its handles become stale) and keeps its memory. The numbers
  /// of `micro` key every random draw until the next begin.
  void begin(const MicroBatch& micro = {}, Record record = Record::gradients) {
    graph_.clear();
    for (std::size_t i = 0; i < segments_used_; ++i)
      segments_[i].reset();
    segments_used_ = 0;
    frame_ = {};
    given_.clear();
    read_.clear();
    replay_values_ = 0;
    graph_.micro = micro;
    record_ = record;
    state_ = State::recording;
    for (auto& binding : graph_.bindings) {
      if (!own_account_) binding.table->lay_out();
      binding.leaves.assign(binding.table->size(), {});
    }
  }

  /// Sends the gradients of `parameters` to `sink`, until `detach`. Without a sink parameters are
  /// constants.
  ///
  /// Before the ops that read them: what was recorded without a sink has no gradients to send.
  void attach(tensor::ParameterTable& parameters, tensor::Sink& sink) {
    unbind([&](const auto& binding) { return binding.table == &parameters; });
    graph_.bindings.push_back({&parameters, &sink, std::move(spare_leaves_)});
    graph_.bindings.back().leaves.assign(parameters.size(), {});
  }
  /// Nothing happens if another sink has taken the place of `sink`.
  void detach(const tensor::ParameterTable& parameters, const tensor::Sink& sink) {
    unbind(
        [&](const auto& binding) { return binding.table == &parameters && binding.sink == &sink; });
  }

  /// What a gradient of the loss is multiplied by from the start: a power of two, fixed by the
  /// window before the first forward pass. 1 without a window.
  void set_seed(double seed) { seed_ = seed; }
  [[nodiscard]] double seed() const { return seed_; }

  /// What the sweeps of duals leave in the first plane of every gradient: the gradient, or the
  /// product of the Gauss-Newton matrix with the tangents of the parameters; then the second plane
  /// is nobody's.
  void set_gauss_newton(bool on) { graph_.gauss_newton = on; }

  /// The reverse sweep from `loss`: afterwards every sink has its leaves, and all values but the
  /// loss's own number are dropped. Once per begin. If an op or a sink throws, the tape is usable
  /// again after the next begin.
  void backward(const Loss& loss) {
    check({loss.variable}, "Tape::backward");
    if (state_ == State::swept) {
      core::fail<StateError>(
          "Tape::backward: this pass has been swept already. Begin the tape again, or add the "
          "losses ",
          "and sweep once.");
    }
    if (record_ == Record::nothing) {
      core::fail<StateError>(
          "Tape::backward: this pass records nothing (Record::nothing). Begin it with ",
          "Record::gradients.");
    }
    auto& value = graph_.values[loss.variable.id];
    if (!value.wants_gradient) {
      core::fail<StateError>(
          "Tape::backward: the loss depends on no parameter that wants a gradient. Is a ",
          "sink attached (accumulator.begin), and does the model use its parameters?");
    }
    settle();
    state_ = State::swept;
    value.gradient = new_gradient(value.bytes(), core::Category::activations);
    if (!dry()) std::memcpy(gradient_data(value.gradient), &seed_, sizeof seed_);
    const auto nodes = static_cast<std::uint32_t>(graph_.nodes.size());
    if (watched_ == nullptr) return sweep(0, nodes);
    watched_->resize(nodes);
    for (std::uint32_t id = nodes; id-- > 0;) {
      Swept& swept = (*watched_)[id];
      swept.gradients_before = ledger().live(core::Category::gradients);
      ledger().restart_peaks();
      const double before = replayed_flops_;
      sweep_node(id);
      swept.peak = ledger().peak();
      swept.replayed_flops = replayed_flops_ - before;
    }
  }
  /// What the sweep of one node did to the account of a dry run.
  struct Swept {
    std::int64_t peak = 0;              ///< of all live bytes
    std::int64_t gradients_before = 0;  ///< live bytes of category gradients
    double replayed_flops = 0.0;
  };
  /// Lets the next sweep of a dry tape note each node in `out`, by number; the account's peaks are
  /// lost. For planners.
  void watch_sweep(std::vector<Swept>* out) {
    HALFSTEP_ASSERT(dry());
    watched_ = out;
  }

  /// Lets a dry tape hold through `store` what ops read, as a real one does through the store of
  /// each parameter: a dry run of what such a store would bring. Null: through none.
  /// @throws StateError on a tape that computes.
  void read_through(tensor::AnyStore* store) {
    require_dry("read_through");
    dry_store_ = store;
  }

  /// Runs `op` and records it. Inputs are on this tape; P is trivially copyable and is what
  /// `payload<P>()` gives back. Returns the id of output 0; further outputs follow it.
  ///
  /// Whatever infer or forward throws leaves the tape as it was before the call.
  template <class P>
  requires(std::is_trivially_copyable_v<P> && alignof(P) <= 16) std::uint32_t
      record(const autograd::Op& op, std::initializer_list<AnyVariable> inputs,
             std::initializer_list<AnyParameter> parameters, const P& payload) {
    return record_node(op, {inputs.begin(), inputs.size()}, {parameters.begin(), parameters.size()},
                       std::as_bytes(std::span(&payload, 1)));
  }
  /// Runs a segment and keeps of what it records the variables that it returns, as outputs of one
  /// node that runs it again in the backward pass; autograd/checkpoint.hpp is the way to use it.
  /// `call(tape)` runs it and `give`s what it returns; `call.forget(tape)` does so the first time,
  /// when nothing inside is kept. Returns result(ids) of the variables given, in order.
  template <class Call, class Result>
  auto record_segment(const Call& call, bool hash_values, const Result& result) {
    const Entry entry = enter_segment(hash_values);
    try {
      call.forget(*this);
      if (autograd::Segment* const segment = leave_segment(entry)) segment->hold(call);
    } catch (...) {
      abandon_segment(entry);
      throw;
    }
    const auto made = result(std::span<const std::uint32_t>(given_).subspan(entry.given));
    given_.resize(entry.given);
    return made;
  }
  /// Within a segment: the next of the variables that it returns.
  void give(const AnyVariable& v) {
    check(v, "checkpoint");
    if (frame_.forgetting) {
      if (graph_.values[v.id].away) make_again(v.id);
      graph_.values[v.id].pinned = true;
    }
    given_.push_back(v.id);
  }
  /// Within a segment that runs for the first time: forgets all that it has recorded but `x`, other
  /// handles to it become stale. Anywhere else nothing happens.
  template <class T>
  [[nodiscard]] Variable<T> keep_only(Variable<T> x) {
    check(x, "Tape::keep_only");
    if (!frame_.forgetting || x.id < frame_.before.values) return x;
    if (graph_.values[x.id].away)
      make_again(x.id);  // the node that it becomes an output of makes nothing again
    std::uint32_t id = x.id;
    static_cast<void>(fold(frame_.before, {&id, 1}, -1));
    return handle<T>(id);
  }
  /// The handle of value `id`.
  template <class T>
  [[nodiscard]] Variable<T> handle(std::uint32_t id) {
    return {this, id, graph_.values[id].serial};
  }

  [[nodiscard]] Runtime& runtime() const { return runtime_; }
  [[nodiscard]] bool dry() const { return own_account_ || runtime_.dry(); }
  /// Whether ops that differ between training and evaluation (dropout) act.
  [[nodiscard]] bool training() const { return record_ == Record::gradients; }
  [[nodiscard]] const MicroBatch& micro() const { return graph_.micro; }
  /// True while a segment runs again in the backward pass: for side effects that must happen once.
  [[nodiscard]] bool is_replay() const { return graph_.replaying; }
  /// Ops that ran again, since the tape was made, and their floating-point operations.
  [[nodiscard]] std::int64_t replayed_ops() const { return replayed_ops_; }
  [[nodiscard]] double replayed_flops() const { return replayed_flops_; }
  /// Ops that ran again because what reads their output found it forgotten (autograd/keep.hpp).
  [[nodiscard]] std::int64_t remade_ops() const { return remade_ops_; }
  /// What becomes of values that a backward reads, from the next pass on.
  /// @throws StateError after the first op of a pass, before its sweep is done.
  void keep(KeepPolicy policy) {
    if (!graph_.nodes.empty() && training() && (state_ == State::recording || is_replay())) {
      core::fail<StateError>("Tape::keep: this pass has recorded ", nodes(),
                             " ops by the policy of before. Set it before tape.begin.");
    }
    keep_ = policy;
  }
  /// Forgets now what waits to see whether the next op reads it.
  void settle();
  /// Between two layers the first of which has made `x`: settles, and keeps x whatever the policy
  /// says of it, so that a layer leaves the same whatever follows it.
  void settle(const AnyVariable& x) {
    check(x, "Tape::settle");
    if (graph_.values[x.id].away) make_again(x.id);
    graph_.values[x.id].between = true;
    settle();
  }
  /// Ops recorded since begin.
  [[nodiscard]] std::size_t nodes() const { return graph_.nodes.size(); }
  /// The account that this tape's memory is in: the runtime's, or a dry tape's own.
  [[nodiscard]] const core::Ledger& ledger() const {
    return own_account_ ? dry_ledger_ : runtime_.ledger();
  }
  [[nodiscard]] core::Ledger& ledger() { return own_account_ ? dry_ledger_ : runtime_.ledger(); }
  /// Floating-point operations of the ops since the tape was made, as their `infer` says: a product
  /// and a sum are two, replayed ops count again. The kernels' own counter knows products alone.
  [[nodiscard]] double flops() const { return flops_; }

  /// Addresses that this tape's blocks have used at most, in bytes, holes between them included:
  /// what of its arena is resident, which the ledger's bytes are the filled part of.
  [[nodiscard]] std::int64_t addresses() const { return graph_.arena.high_water(); }
  /// Where the blocks of the pass since begin lie best; a dry tape knows once it has swept.
  /// @throws StateError on a tape that computes.
  [[nodiscard]] tensor::Placement placement() const {
    require_dry("placement");
    return graph_.arena.arranged();
  }
  /// From the next begin on, puts the blocks of a pass to these places, if it is the pass that they
  /// are for, and without holes that only first fit leaves. Changes no value and no account.
  void place(tensor::Placement placement) { graph_.arena.follow(std::move(placement)); }

  /// What is alive in the tape's arena, in order of the nodes that it belongs to: defined in
  /// autograd/memory_report.hpp.
  [[nodiscard]] std::vector<autograd::LiveTensor> live_tensors() const;

  [[nodiscard]] Shape shape(const AnyVariable& v) {
    check(v, "Variable::shape");
    return graph_.values[v.id].shape;
  }
  template <class T>
  [[nodiscard]] std::span<const numeric::plane_t<T>> value(Variable<T> v, int plane = 0) {
    check(v, "Variable::value");
    auto& value = graph_.values[v.id];
    if (dry()) {
      core::fail<StateError>(
          "Variable::value: the output of '", producer(v.id),
          "' has no values in a dry run. A model may branch on shapes, not on values.");
    }
    if (!value.dropped) make_again(v.id);
    if (value.dropped || (value.data.bytes == 0 && value.shape.elements() != 0)) {
      core::fail<StateError>(
          "Variable::value: the output of '", producer(v.id), "' has no values: ",
          is_replay() ? "the second run of a segment computes what a backward reads and what the "
                        "first run has read by value(). Read it in both."
                      : "a backward sweep has let it go. Read it before backward.");
    }
    value.pinned = true;
    // What the callable of a segment looks at is computed again in its second run.
    if (value.maker.op != autograd::Maker::outside)
      frame_.read = std::max(frame_.read, std::size_t{value.maker.op} + 1);
    return {reinterpret_cast<const numeric::plane_t<T>*>(graph_.arena.data(value.data) +
                                                         plane * value.plane_bytes()),
            static_cast<std::size_t>(value.shape.elements())};
  }
  /// @throws StateError if `v` is not a live handle of this tape.
  void check(const AnyVariable& v, std::string_view where) const {
    if (v.tape != this)
      core::fail<StateError>(where, ": the variable is on another tape, or on none");
    if (state_ == State::idle)
      core::fail<StateError>(where, ": the tape has not begun. Call tape.begin(micro) first.");
    if (v.id >= graph_.values.size() || graph_.values[v.id].serial != v.generation) {
      core::fail<StateError>(
          where, ": the variable is stale: the tape has begun again since it was made, or it ",
          "belongs to a segment that has been left");
    }
  }

 private:
  enum class State { idle, recording, swept };
  struct Mark {
    std::size_t nodes = 0, values = 0, links = 0, parameters = 0, saved = 0, payloads = 0, log = 0,
                segments = 0;
  };
  /// The segment that is running, the innermost.
  struct Frame {
    Mark before;
    bool running = false;
    bool forgetting = false;  ///< its first run: nothing saved is kept
    bool hash_values = false;
    std::size_t needed = 0;  ///< ops of the log that the second run computes
    std::size_t read = 0;    ///< and those that the callable itself has read
    /// From here on ops of the log note shapes alone.
    std::size_t stop = std::numeric_limits<std::size_t>::max();
  };
  struct Entry {
    Mark before;
    Frame outer;
    std::size_t given;
  };

  [[nodiscard]] std::uint32_t record_node(const autograd::Op& op,
                                          std::span<const AnyVariable> inputs,
                                          std::span<const AnyParameter> parameters,
                                          std::span<const std::byte> payload);
  [[nodiscard]] Entry enter_segment(bool hash_values);
  [[nodiscard]] autograd::Segment* leave_segment(const Entry& entry);
  void abandon_segment(const Entry& entry);
  [[nodiscard]] bool fold(const Mark& before, std::span<std::uint32_t> ids, std::int32_t segment);
  [[nodiscard]] bool log_op(std::uint32_t id, bool wants);
  void log_values(std::uint32_t id);
  void sweep_segment(std::uint32_t id);
  void verify_segment(const autograd::Segment& segment, const autograd::Node& node,
                      const Mark& before, std::span<const std::uint32_t> given) const;
  void mark_needed(const autograd::Value& value);
  void count_reads(std::uint32_t id);
  void hold_inputs(std::uint32_t id);
  void uncount_reads(std::uint32_t id, std::size_t end, bool release);
  [[nodiscard]] bool reads_own(const autograd::Value& value) const;
  void note_reads(std::uint32_t id);
  void try_drop(std::uint32_t value);
  void narrow(autograd::Value& value);
  void make_again(std::uint32_t value);
  /// In a dry run held where it is told to, or nowhere.
  [[nodiscard]] autograd::HeldParameters hold(autograd::Range range, std::uint32_t which) const {
    return {graph_, range, which, dry() ? std::optional(dry_store_) : std::nullopt};
  }
  void run_kernel(std::uint32_t id);
  void require_sum_of_losses(std::uint32_t id);
  void require_dry(std::string_view function) const {
    if (!dry()) {
      core::fail<StateError>("Tape::", function,
                             ": this tape computes. Was it to be made in Tape::Mode::dry?");
    }
  }
  static void require_version(const autograd::ParameterRef& ref);
  void forget_uses(std::size_t first_parameter);
  void read_parameters(std::span<const AnyParameter> parameters, bool& wants);
  void run_forward(std::uint32_t id, bool computed);
  void sweep(std::uint32_t first, std::uint32_t last);
  void sweep_node(std::uint32_t id);
  void merge(std::uint32_t value, std::int32_t contribution);
  void open_leaf(const autograd::ParameterRef& ref);
  void pass_leaf(const autograd::ParameterRef& ref);
  void release_gradient(std::int32_t index);
  void add(numeric::DType dtype, std::int64_t elements, const void* x, const void* y, void* out);

  /// Ends the bindings that `ends` says. The next one takes over the memory: windows attach and
  /// detach in every step.
  template <class Ends>
  void unbind(const Ends& ends) {
    std::erase_if(graph_.bindings, [&](auto& binding) {
      if (!ends(binding)) return false;
      spare_leaves_ = std::move(binding.leaves);
      return true;
    });
  }

  [[nodiscard]] Mark mark() const {
    return {graph_.nodes.size(),      graph_.values.size(), graph_.links.size(),
            graph_.parameters.size(), graph_.saved.size(),  graph_.payloads.size(),
            graph_.log.size(),        segments_used_};
  }
  void rewind(const Mark& to);
  [[nodiscard]] std::string_view producer(std::uint32_t value) const;
  [[nodiscard]] autograd::Binding* binding(const tensor::ParameterTable* table);
  [[nodiscard]] std::int32_t new_gradient(std::int64_t bytes, core::Category category) {
    graph_.gradients.push_back({graph_.arena.allocate(bytes, category), 1});
    return static_cast<std::int32_t>(graph_.gradients.size() - 1);
  }
  [[nodiscard]] std::byte* gradient_data(std::int32_t index) {
    return graph_.arena.data(graph_.gradients[static_cast<std::size_t>(index)].block);
  }

  Runtime& runtime_;
  bool own_account_;
  core::Ledger dry_ledger_{true};
  autograd::Graph graph_;
  std::vector<autograd::Leaf> spare_leaves_;
  // One that runs stays where it is while others are added.
  std::deque<autograd::Segment> segments_;
  std::size_t segments_used_ = 0;
  Frame frame_;
  std::vector<std::uint32_t> given_;               // by the segments that are running
  std::vector<std::uint32_t> outside_, kept_ids_;  // of the fold in progress
  std::vector<autograd::Value> kept_;
  std::vector<Swept>* watched_ = nullptr;
  tensor::AnyStore* dry_store_ = nullptr;
  std::int64_t replayed_ops_ = 0;
  double replayed_flops_ = 0.0;
  KeepPolicy keep_ = keep_default;
  std::vector<std::uint32_t> read_;  // values that the last op read
  std::int64_t remade_ops_ = 0;
  std::size_t replay_values_ = 0;  // the first value of the segment that runs again
  State state_ = State::idle;
  Record record_ = Record::gradients;
  double seed_ = 1.0;
  double flops_ = 0.0;
};

template <class T>
Shape Variable<T>::shape() const {
  if (tape == nullptr) core::fail<StateError>("Variable::shape: the variable is on no tape");
  return tape->shape(*this);
}
template <class T>
std::span<const numeric::plane_t<T>> Variable<T>::value() const {
  if (tape == nullptr) core::fail<StateError>("Variable::value: the variable is on no tape");
  return tape->value(*this);
}

}  // namespace halfstep::inline HALFSTEP_CONFIG

#include <halfstep/autograd/record.hpp>
#include <halfstep/autograd/remake.hpp>
#include <halfstep/autograd/replay.hpp>
#include <halfstep/autograd/sweep.hpp>
