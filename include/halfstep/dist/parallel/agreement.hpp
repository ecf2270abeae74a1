// SPDX-License-Identifier: MIT
// What ranks have to agree on: that their parameters are the same, and what a step's findings sum
// up to. Small exchanges, once at the start and once a step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/numeric/dtype.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/state.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

/// Every rank's array of one length, on all ranks: `all` has that length for each of them, and this
/// rank's array may lie at its place there.
template <class V>
void gather_equal(Group& group, std::span<const V> mine, std::span<V> all) {
  std::array<std::int64_t, max_ranks> counts;
  counts.fill(std::ssize(mine));
  all_gather<V>(group, mine, all, std::span(counts).first(static_cast<std::size_t>(group.size())));
}
/// Every rank's value, on all ranks.
template <class V>
[[nodiscard]] std::vector<V> gather_values(Group& group, const V& value) {
  std::vector<V> all(static_cast<std::size_t>(group.size()));
  gather_equal<V>(group, std::span(&value, 1), all);
  return all;
}

/// The path that rank 0's runtime has taken: that of every rank of a host, since it is an input of
/// the account. All ranks call it, and make theirs with RuntimeOptions::isa.
[[nodiscard]] inline core::Isa isa_of_rank_0(Transport& transport,
                                             core::Isa here = core::default_isa_choice().isa) {
  Runtime runtime({.threads = 1, .isa = here});
  Group group(transport, runtime);
  broadcast(group, std::span(&here, 1), 0);
  return here;
}

/// The sum of all ranks' findings along the house's tree, on all ranks.
[[nodiscard]] inline mixed::Findings sum_over_ranks(Group& group, const mixed::Findings& mine) {
  std::array<mixed::Findings, max_ranks> all;
  const auto ranks = static_cast<std::size_t>(group.size());
  gather_equal<mixed::Findings>(group, std::span(&mine, 1), std::span(all).first(ranks));
  group.compute().parallel(1, 1, [&](std::int64_t, std::int64_t, int) {
    for (std::size_t n = ranks; n > 1; n = (n + 1) / 2) {
      for (std::size_t i = 0; i < n / 2; ++i)
        all[i] = all[2 * i] + all[2 * i + 1];
      if (n % 2 != 0) all[n / 2] = all[n - 1];
    }
  });
  return all.front();
}

/// Losses and counts of this rank's K micro-batches become those of all ranks' n K, in order of
/// their numbers: rank r has numbers r K, r K + 1, … or, strided, r, r + n, …
inline void gather_losses(Group& group, std::vector<double>& losses, std::vector<double>& counts,
                          bool strided) {
  const std::size_t each = losses.size(), n = static_cast<std::size_t>(group.size());
  const auto bytes = group.workspace(static_cast<std::int64_t>(2 * each * n * sizeof(double)));
  const std::span all(reinterpret_cast<double*>(bytes.data()), 2 * each * n);
  const auto mine = all.subspan(2 * each * static_cast<std::size_t>(group.rank()), 2 * each);
  std::copy_n(losses.begin(), each, mine.begin());
  std::copy_n(counts.begin(), each, mine.begin() + static_cast<std::ptrdiff_t>(each));
  gather_equal<double>(group, mine, all);
  losses.resize(each * n);
  counts.resize(each * n);
  for (std::size_t number = 0; number < each * n; ++number) {
    const std::size_t rank = strided ? number % n : number / each;
    const std::size_t at = 2 * each * rank + (strided ? number / n : number % each);
    losses[number] = all[at];
    counts[number] = all[at + each];
  }
}

/// What the ranks of a sharded gradient found in their shards makes what one process would have
/// found; `blocks` holds 0 for what others hold, so that their sum is exact.
inline void decide_over_shards(Group& group, mixed::Findings& findings, std::span<double> blocks) {
  const mixed::Findings whole = sum_over_ranks(group, findings);
  findings.bad_values = whole.bad_values;
  findings.first_bad = whole.first_bad;
  all_reduce(group, blocks);
}

/// Whether names, shapes, formats and values of the parameters are the same on all ranks, in the
/// same order. One pass over the weights; 8 bytes a parameter are exchanged.
/// @throws MismatchError naming the first parameter that differs and the rank where it does.
template <class T>
void require_equal_parameters(Group& group, Parameters<T>& parameters) {
  parameters.lay_out();
  const auto here = static_cast<std::int64_t>(parameters.size());
  const std::vector<std::int64_t> numbers = gather_values(group, here);
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    const auto& info = parameters.infos()[i];
    // Of a sharded store nobody has all values; the initial ones are a function of name and seed.
    const std::uint64_t seed = parameters.runtime().seed();
    const auto values = parameters.sharded() ? std::as_bytes(std::span(&seed, 1))
                                             : std::as_bytes(parameters.values(ParameterId{i}));
    tensor::StateHash hash;
    // The hash reads; it is given writable bytes because other visitors write.
    hash.tensor({info.name, numeric::dtype_of<T>, info.shape, 0,
                 std::span(const_cast<std::byte*>(values.data()), values.size())});
    hashes.push_back(hash.value());
  }
  // Of rank 0 to all, in one length that all know.
  std::vector<std::uint64_t> theirs(static_cast<std::size_t>(numbers.front()));
  std::copy_n(hashes.begin(), std::min(hashes.size(), theirs.size()), theirs.begin());
  broadcast(group, std::span(theirs), 0);
  std::int64_t first = static_cast<std::int64_t>(std::min(hashes.size(), theirs.size()));
  for (std::int64_t i = first; i-- > 0;) {
    if (hashes[static_cast<std::size_t>(i)] != theirs[static_cast<std::size_t>(i)]) first = i;
  }
  const bool equal = hashes == theirs;
  const std::vector<std::int64_t> differs = gather_values(group, equal ? std::int64_t{-1} : first);
  for (std::size_t rank = 0; rank < differs.size(); ++rank) {
    if (differs[rank] < 0) continue;
    const auto at = static_cast<std::size_t>(differs[rank]);
    core::fail<MismatchError>(
        "dist: the parameters of rank ", rank, " differ from those of rank 0, first in number ", at,
        at < parameters.size()
            ? core::text(", which is '", parameters.infos()[at].name, "' on rank ", group.rank())
            : core::text(", which rank ", group.rank(), " has not"),
        ". Was the model built with another seed or in another order there, or loaded from another "
        "file?");
  }
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
