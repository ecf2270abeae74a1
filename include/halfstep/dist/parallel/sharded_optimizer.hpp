// SPDX-License-Identifier: MIT
// An optimizer of which every rank runs the part for its shard: what the stages of ZeRO have in
// common. They differ in who keeps which gradients and weights (zero1.hpp, zero2.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

struct ShardOptions {
  /// How much of the gradient is reduced at a time: see DataParallelOptions.
  std::int64_t bucket_bytes = std::int64_t{1} << 20;
};

namespace detail {

/// The gradient of a shard out of that of the whole store, for the optimizer of the shard.
template <class G>
class ShardGradients {
 public:
  using gradient = typename G::gradient;
  /// `first`: the whole store's number of the shard's parameter 0.
  ShardGradients(G& whole, tensor::ParameterTable& shard, std::uint32_t first)
      : whole_(&whole), shard_(&shard), first_(first) {}
  [[nodiscard]] tensor::ParameterTable& parameters() const { return *shard_; }
  [[nodiscard]] std::span<const gradient> sum(ParameterId id) const {
    return whole_->sum({first_ + id.index});
  }
  [[nodiscard]] double factor() const { return whole_->factor(); }
  [[nodiscard]] optim::StepResult result() const { return whole_->result(); }
  void settle(optim::StepResult& result) && { std::move(*whole_).settle(result); }

 private:
  G* whole_;
  tensor::ParameterTable* shard_;
  std::uint32_t first_;
};

/// Keeps what a visitor is shown.
struct Shown {
  std::vector<tensor::StateTensor> tensors;
  std::vector<std::string> names;
  void tensor(const tensor::StateTensor& one) {
    tensors.push_back(one);
    names.emplace_back(one.name);
  }
  void scalar(std::string_view /*name*/, std::int64_t& /*value*/) {}
  void scalar(std::string_view /*name*/, double& /*value*/) {}
};

/// Whether an optimizer holds its weights in floats: in masters, or as a store of floats does.
template <class Inner>
inline constexpr bool holds_floats = true;
template <class Inner>
requires requires { typename Inner::Formats; }
inline constexpr bool holds_floats<Inner> = Inner::Formats::keep == mixed::Keep::master;

}  // namespace detail

/// `Inner` over this rank's shard of the parameters. `Ranks<T>`, made of (group, parameters,
/// shards, bucket bytes), is the mixed::Processes that leaves the whole step's gradient of that
/// shard here. It says in `shards_weights` whether a rank keeps that shard of the weights alone; if
/// so, shared_weights(group, parameters) is where the shards of all ranks lie as one copy that all
/// read, or empty.
///
/// Clipping, skipping and the loss scale are those of the whole gradient, and so are the bits.
/// Weights that are written or loaded into the store later are noticed as by MasterWeights, in each
/// shard for itself; all ranks load the same. Of its state formats FloatMaster alone: a split or
/// compensated weight is not yet gathered with its other half.
template <template <class> class Ranks, class Inner>
class ShardedOptimizer {
  static_assert(detail::holds_floats<Inner>,
                "dist: ZeRO takes MasterWeights with FloatMaster, or an optimizer of floats: the "
                "other state formats are not gathered in full precision");
  using T = typename Inner::Element;

 public:
  using Element = T;
  using Options = typename Inner::Options;
  static constexpr optim::Grain grain = Inner::grain;

  /// Group and parameters must outlive it. The inner optimizer is made for this rank's shard.
  /// @throws MismatchError unless all ranks have the same parameters; what Inner throws.
  ShardedOptimizer(Group& group, Parameters<T>& parameters, const Options& options = {},
                   const ShardOptions& shard = {})
      : group_(group),
        parameters_(prepared(group, parameters)),
        shards_(parameters, group.size(), grain),
        ranks_(group, parameters, shards_, shard.bucket_bytes),
        shard_(parameters.part(shards_.of(group.rank()))),
        inner_(shard_, options) {
    remember();
  }
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// What the accumulator is made with.
  [[nodiscard]] mixed::Processes<typename Parameters<T>::gradient>& ranks() { return ranks_; }

  /// One update: of this rank's shard here, of the others' there; then all ranks have all weights.
  template <class Gradients>
  optim::StepResult step(Gradients&& gradients, float lr) {
    HALFSTEP_REQUIRE_READY_FOR_STEP(Gradients);
    if constexpr (optim::ready_for_step<Gradients>) {
      static_cast<void>(
          optim::checked_result(gradients, parameters_, lr, "dist::ShardedOptimizer"));
      notice();
      optim::StepResult result = inner_.step(
          detail::ShardGradients<std::remove_cvref_t<Gradients>>(gradients, shard_, first()), lr);
      if (result.applied) gather();
      return result;
    } else {
      return {};
    }
  }

  [[nodiscard]] std::int64_t steps() const { return inner_.steps(); }
  [[nodiscard]] const Options& options() const { return inner_.options(); }
  [[nodiscard]] const Shards& shards() const { return shards_; }
  [[nodiscard]] Inner& inner() { return inner_; }

  /// That of the whole model in one process, on every rank. All ranks call it. Takes a copy of all
  /// weights in full precision meanwhile.
  [[nodiscard]] std::uint64_t weights_hash() {
    notice();
    detail::Shown shown;
    if constexpr (requires { inner_.visit_weights(shown); }) {
      inner_.visit_weights(shown);
    } else {
      shard_.visit_state(shown);
    }
    return hash_of_all(shown);
  }
  /// This rank's part of every state tensor, with its place in the whole.
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    notice();
    inner_.visit_state(visitor);
  }

 protected:
  [[nodiscard]] const Ranks<T>& processes() const { return ranks_; }

 private:
  /// Weights of which a rank keeps or fills a shard are cut before they are laid out.
  [[nodiscard]] static Parameters<T>& prepared(Group& group, Parameters<T>& parameters) {
    if constexpr (Ranks<T>::shards_weights) {
      if (group.size() > 1) {
        parameters.shard(Shards(parameters, group.size(), grain).of(group.rank()),
                         Ranks<T>::shared_weights(group, parameters));
      }
    }
    parameters.lay_out();
    return parameters;
  }

  /// The whole store's number of the shard's parameter 0.
  [[nodiscard]] std::uint32_t first() const {
    return parameters_.find(shard_.infos().front().name).index;
  }
  /// The shard's versions are its own: what was written through the whole store is written here.
  void notice() {
    const std::uint32_t begin = first();
    for (std::uint32_t i = 0; i < shard_.size(); ++i) {
      if (parameters_.infos()[begin + i].version != versions_[i])
        static_cast<void>(shard_.write({i}));
    }
    remember();
  }
  void remember() {
    const std::uint32_t begin = first();
    versions_.resize(shard_.size());
    for (std::uint32_t i = 0; i < shard_.size(); ++i)
      versions_[i] = parameters_.infos()[begin + i].version;
  }

  void gather() {
    const core::Range own = shards_.of(group_.rank());
    const auto all = parameters_.write_all();
    remember();
    if (parameters_.shared()) barrier(group_);
    if constexpr (!Ranks<T>::shards_weights) {
      all_gather<T>(group_, elements_of(std::span<const T>(all), own), all,
                    shards_.counts_within({0, parameters_.count()}).span());
    }
  }

  [[nodiscard]] std::uint64_t hash_of_all(const detail::Shown& shown) {
    std::vector<std::vector<std::byte>> whole;
    tensor::StateHash hash;
    for (const auto& info : parameters_.infos()) {
      const auto mine = std::find(shown.names.begin(), shown.names.end(), info.name);
      const std::span<const std::byte> held =
          mine == shown.names.end()
              ? std::span<const std::byte>()
              : std::span<const std::byte>(
                    shown.tensors[static_cast<std::size_t>(mine - shown.names.begin())].bytes);
      const std::vector<std::int64_t> counts = gather_values(group_, std::ssize(held));
      auto& bytes = whole.emplace_back(
          static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
      all_gather<std::byte>(group_, held, bytes, counts);
      hash.tensor({info.name, numeric::dtype_of<T>, info.shape, 0, bytes});
    }
    return hash.value();
  }

  Group& group_;
  Parameters<T>& parameters_;
  Shards shards_;
  Ranks<T> ranks_;
  Parameters<T> shard_;
  Inner inner_;
  std::vector<std::uint32_t> versions_;  // of the whole store's parameters, as last seen
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
