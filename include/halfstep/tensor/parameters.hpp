// SPDX-License-Identifier: MIT
// The parameters of a model: `Parameters<T>` owns their buffers, a `Scope` registers them under
// names, a `Parameter` is the handle that layers hold. Not for: gradients (tensor/sink.hpp) or
// optimizer state (optim/).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/numeric/normal.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/state.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

template <class T>
class Parameters;

/// A handle: which parameter of which store. Copied freely, owns nothing, const in a forward pass.
/// The store must outlive its use.
template <class T>
struct Parameter {
  Parameters<T>* store = nullptr;
  ParameterId id;

  [[nodiscard]] const tensor::ParameterInfo& info() const { return store->info(id); }
  [[nodiscard]] const Shape& shape() const { return info().shape; }
};

/// A store and a name prefix: what a layer's constructor is given.
template <class T>
class Scope {
 public:
  Scope(Parameters<T>& store, std::string prefix) : store_(&store), prefix_(std::move(prefix)) {}

  /// scope / "up" registers under "up.…", scope / "blocks" / 3 under "blocks.3.…".
  [[nodiscard]] Scope operator/(std::string_view child) const { return {*store_, full(child)}; }
  [[nodiscard]] Scope operator/(int index) const { return {*store_, full(std::to_string(index))}; }

  /// Registers a parameter. @throws OptionError for a name that is taken or empty or holds a dot;
  /// StateError once buffers are laid out (the first tape has begun).
  Parameter<T> add(std::string_view name, const Shape& shape, Role role, Init init) const {
    if (name.empty() || name.find('.') != std::string_view::npos) {
      core::fail<OptionError>("Scope::add: '", name,
                              "' is no name for a parameter: want one without dots. ",
                              "For a prefix write scope / \"prefix\".");
    }
    return store_->add(full(name), shape, role, init);
  }

  /// The prefix itself: "blocks.3". Keys random draws that belong to this module.
  [[nodiscard]] const std::string& name() const { return prefix_; }
  [[nodiscard]] Parameters<T>& store() const { return *store_; }

 private:
  [[nodiscard]] std::string full(std::string_view child) const {
    return prefix_.empty() ? std::string(child) : core::text(prefix_, '.', child);
  }

  Parameters<T>* store_;
  std::string prefix_;
};

/// Owns the weights of a model in format T, contiguous in order of registration: sizeof(T) bytes an
/// element, no padding. The Runtime must outlive it. Not movable: handles point to it.
template <class T>
class Parameters final : public tensor::StoredTable<numeric::plane_t<T>> {
  using Base = tensor::StoredTable<numeric::plane_t<T>>;
  using Base::infos_, Base::count_, Base::runtime_;

 public:
  /// float; double in a double model.
  using gradient = numeric::plane_t<numeric::accumulator_t<T>>;
  /// T itself, or the real type of which a dual holds two planes.
  using plane = numeric::plane_t<T>;
  static constexpr int plane_count = numeric::planes<T>;

  explicit Parameters(Runtime& runtime)
      : Base(runtime, numeric::dtype_of<gradient>, plane_count), resident_(*this) {}

  /// The root scope: a model is built by `Model<T> model(parameters, options…)`.
  operator Scope<T>() { return scope(); }
  [[nodiscard]] Scope<T> scope() { return Scope<T>(*this, ""); }
  /// Model<T>(*this, args…), for callers that are generic in the model.
  template <template <class> class Model, class... Args>
  [[nodiscard]] Model<T> build(const Args&... args) {
    return Model<T>(scope(), args...);
  }

  /// What `Scope::add` calls, with the full name.
  Parameter<T> add(std::string name, const Shape& shape, Role role, Init init) {
    for (const auto& info : infos_) {
      if (info.name != name) continue;
      if (twin_ && info.shape == shape && info.role == role) return {this, this->find(name)};
      core::fail<OptionError>("Parameters: '", name, "' ", to_string(shape),
                              " is registered already, with shape ", to_string(info.shape),
                              ". Do two layers share a scope?");
    }
    if (laid_out_ || twin_) {
      core::fail<StateError>("Parameters: '", name, "' comes too late: the buffers are laid out. ",
                             "Build the whole model before the first tape begins.");
    }
    infos_.push_back({std::move(name), shape, role, init, count_, shape.elements(), 0});
    count_ += shape.elements();
    return {this, {static_cast<std::uint32_t>(infos_.size() - 1)}};
  }

  void lay_out() override {
    if (laid_out_) return;
    if (!sharded_) kept_ = {0, count_};
    const std::int64_t planes = (kept_.end - kept_.begin) * plane_count;
    using Memory = tensor::Memory<plane>;
    memory_ = whole_.empty() ? Memory(runtime_.ledger(), core::Category::weights, planes)
                             : Memory(runtime_.ledger(), core::Category::weights,
                                      whole_.subspan(static_cast<std::size_t>(kept_.begin),
                                                     static_cast<std::size_t>(planes)));
    base_ = memory_.data();
    laid_out_ = true;
    for (std::uint32_t i = 0; i < infos_.size(); ++i) {
      const auto piece = cut(infos_[i], kept_);
      write_initial(piece, kept({i}).data());
    }
  }

  /// A store of element type U with the same parameters and their values, each converted with one
  /// rounding; tangents are zero. Models built on it find their parameters by name.
  template <class U>
  [[nodiscard]] Parameters<U> as() {
    lay_out();
    return Parameters<U>(*this, 0);
  }

  /// Keeps the elements of that range alone: the others are another process's, and the tape reads
  /// through a store that gathers them (`use`). Or all elements lie in `whole`, memory that these
  /// processes share and that outlives the store: then each fills, shows and counts its own range,
  /// and reads all of them once the others have been heard of.
  /// @throws StateError once buffers are laid out, ShapeError for a whole of another size.
  void shard(core::Range range, std::span<plane> whole = {}) requires(plane_count == 1) {
    if (laid_out_) {
      core::fail<StateError>(
          "Parameters::shard: the buffers are laid out. Shard a store before the first ",
          "tape begins and before an optimizer is made.");
    }
    if (!whole.empty() && std::ssize(whole) != count_) {
      core::fail<ShapeError>("Parameters::shard: the memory given has ", whole.size(),
                             " elements, but the store ", count_);
    }
    sharded_ = true;
    kept_ = range;
    whole_ = whole;
  }
  [[nodiscard]] bool sharded() const { return sharded_; }
  /// Whether a sharded store's other elements can be read too, in memory that processes share.
  [[nodiscard]] bool shared() const { return !whole_.empty(); }
  /// What is kept of one parameter: all of it but in a sharded store.
  [[nodiscard]] std::span<plane> kept(ParameterId id) {
    lay_out();
    const auto& info = infos_[id.index];
    const auto piece = cut(info, kept_);
    return {base_ + (info.offset + piece.first - info.first - kept_.begin) * plane_count,
            static_cast<std::size_t>(piece.elements)};
  }

  /// A store of the elements [range.begin, range.end) of this one, in its memory, which must
  /// outlive it: what the optimizer of one shard is given. Parameters that are cut keep name and
  /// shape. An empty range gives one parameter of no elements.
  [[nodiscard]] Parameters part(core::Range range) requires(plane_count == 1) {
    lay_out();
    return Parameters(*this, range);
  }

  /// Values of one parameter, resident store. Reading lays the buffers out.
  [[nodiscard]] std::span<const plane> values(ParameterId id) {
    lay_out();
    return range(id);
  }
  [[nodiscard]] std::span<const plane> values(Parameter<T> parameter) {
    return values(parameter.id);
  }
  /// The same for writing; advances the version, so that copies made from it are known to be old.
  [[nodiscard]] std::span<plane> write(ParameterId id) {
    lay_out();
    ++infos_[id.index].version;
    return range(id);
  }
  /// All elements that are kept, in order of registration, for writing; advances every version.
  [[nodiscard]] std::span<plane> write_all() {
    lay_out();
    for (auto& info : infos_)
      ++info.version;
    store().restart(false);
    return {base_, static_cast<std::size_t>((kept_.end - kept_.begin) * plane_count)};
  }
  /// The tangents of one parameter, of a store of duals.
  [[nodiscard]] std::span<plane> tangents(ParameterId id) requires(plane_count == 2) {
    lay_out();
    return {base_ + infos_[id.index].offset * 2 + infos_[id.index].elements,
            static_cast<std::size_t>(infos_[id.index].elements)};
  }

  /// The initial values of one parameter before they are rounded to T, whatever its values are now:
  /// what master weights start from. @throws ShapeError unless `out` has its number of elements.
  void initial_values(ParameterId id, std::span<float> out) {
    if (static_cast<std::int64_t>(out.size()) != this->info(id).elements) {
      core::fail<ShapeError>("Parameters::initial_values: '", this->info(id).name, "' has ",
                             this->info(id).elements, " elements, but out has ", out.size());
    }
    write_initial(this->info(id), out.data());
  }

  /// Through which the tape reads weights: the resident one, or the one that `use` has put in
  /// front.
  [[nodiscard]] tensor::Store<plane>& store() override {
    return store_ == nullptr ? resident_ : *store_;
  }
  void use(tensor::Store<plane>& store) { store_ = &store; }
  void use_resident() { store_ = nullptr; }

  /// Names every parameter as it is: name, format, shape, all of its bytes. See tensor/state.hpp.
  /// A parameter that the visitor has loaded other values into has a new version; one that was only
  /// looked at keeps its own, so that saving and hashing change nothing. Of a sharded store: its
  /// part of each; all processes visit, or none, since gathered units are dropped. Cost: two hashes
  /// of the bytes.
  template <tensor::state_visitor Visitor>
  requires(plane_count == 1) void visit_state(Visitor& visitor) {
    lay_out();
    store().restart(false);  // whatever is changed here: another process may change its part
    for (std::uint32_t i = 0; i < infos_.size(); ++i) {
      const auto piece = cut(infos_[i], kept_);
      if (piece.elements == 0 && infos_[i].elements > 0) continue;
      const auto bytes = std::as_writable_bytes(kept({i}));
      const std::uint64_t before = tensor::bytes_hash(bytes);
      visitor.tensor(tensor::StateTensor{infos_[i].name, numeric::dtype_of<T>, infos_[i].shape,
                                         piece.first, bytes});
      if (tensor::bytes_hash(bytes) != before) ++infos_[i].version;
    }
  }

 private:
  template <class>
  friend class Parameters;

  class Resident final : public tensor::Store<plane> {
   public:
    explicit Resident(Parameters& owner) : owner_(owner) {}
    const plane* acquire(ParameterId id) override { return owner_.range(id).data(); }
    void release(ParameterId /*id*/) override {}

   private:
    Parameters& owner_;
  };

  template <class Source>
  Parameters(Source& source, int /*twin*/)
      : Base(source.runtime(), numeric::dtype_of<gradient>, plane_count),
        resident_(*this),
        twin_(true) {
    infos_ = source.infos();
    count_ = source.count();
    memory_ =
        tensor::Memory<plane>(runtime_.ledger(), core::Category::weights, count_ * plane_count);
    base_ = memory_.data();
    kept_ = {0, count_};
    laid_out_ = true;
    for (std::uint32_t i = 0; i < infos_.size(); ++i) {
      const auto from = source.values(ParameterId{i});
      const auto to = range({i});
      using From = typename Source::plane;
      numeric::convert(runtime_.compute(), std::span<const From>(from), to);
    }
  }

  Parameters(Parameters& source, core::Range range)
      : Base(source.runtime(), numeric::dtype_of<gradient>, plane_count), resident_(*this) {
    for (const auto& info : source.infos()) {
      auto piece = cut(info, range);
      const bool last = info.offset + info.elements == source.count();
      if (piece.elements == 0 && !(last && infos_.empty())) continue;
      piece.offset = count_;
      count_ += piece.elements;
      infos_.push_back(std::move(piece));
    }
    kept_ = {0, count_};
    base_ = source.base_ + (range.begin - source.kept_.begin);
    laid_out_ = true;
  }

  [[nodiscard]] std::span<plane> range(ParameterId id) {
    const auto& info = infos_[id.index];
    if (sharded_ && whole_.empty()) {
      core::fail<StateError>(
          "Parameters: the values of '", info.name, "' are asked for, but this process keeps a ",
          "shard of the store. `kept` gives its part, a tape gathers the whole.");
    }
    return {base_ + (info.offset - kept_.begin) * plane_count,
            static_cast<std::size_t>(info.elements)};
  }
  /// What a range of the store has of one parameter.
  [[nodiscard]] static tensor::ParameterInfo cut(const tensor::ParameterInfo& info,
                                                 core::Range range) {
    tensor::ParameterInfo piece = info;
    const std::int64_t begin = std::clamp(range.begin, info.offset, info.offset + info.elements);
    const std::int64_t end = std::clamp(range.end, info.offset, info.offset + info.elements);
    piece.first = info.first + begin - info.offset;
    piece.elements = std::max<std::int64_t>(0, end - begin);
    return piece;
  }
  template <class Out>
  void write_initial(const tensor::ParameterInfo& info, Out* out) {
    const std::uint64_t stream = core::stream(info.name, "init");
    runtime_.compute().parallel(
        info.elements, 4096, [&](std::int64_t begin, std::int64_t end, int) {
          std::array<float, 256> draws{};
          for (std::int64_t i = begin; i < end; i += std::ssize(draws)) {
            const auto some = std::span(draws).first(
                static_cast<std::size_t>(std::min(std::ssize(draws), end - i)));
            if (info.init.deviation != 0.0F) {
              numeric::fill_normal(runtime_.isa(), runtime_.seed(), stream,
                                   static_cast<std::uint64_t>(info.first + i), some);
            }
            for (std::size_t k = 0; k < some.size(); ++k) {
              out[i + static_cast<std::int64_t>(k)] =
                  static_cast<Out>(info.init.mean + core::rounded(info.init.deviation * some[k]));
            }
          }
        });
  }

  tensor::Memory<plane> memory_;
  plane* base_ = nullptr;   // of what is kept: memory_, or another store's
  std::span<plane> whole_;  // all elements, where processes share them
  Resident resident_;
  tensor::Store<plane>* store_ = nullptr;
  core::Range kept_{0, 0};  // of all elements: all, or this process's shard
  bool sharded_ = false;
  bool laid_out_ = false;
  bool twin_ = false;  // made from another store: a model built on it finds, and adds nothing
};

}  // namespace halfstep::inline HALFSTEP_CONFIG
