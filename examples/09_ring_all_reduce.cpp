// SPDX-License-Identifier: MIT
// The ring all-reduce, written out: how n processes add up arrays that are as long as a gradient
// while each sends hardly more than two of them, however many processes there are. First a
// reduce-scatter (each ends up with one complete slice), then an all-gather (the slices go round).
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <halfstep/dist.hpp>

namespace hs = halfstep;
namespace dist = halfstep::dist;

namespace {

// Slice k of n, with k taken round the ring.
std::span<float> slice(std::span<float> data, int k, int n) {
  const auto range = dist::slice_of(std::ssize(data), n, (k % n + n) % n);
  return data.subspan(static_cast<std::size_t>(range.begin),
                      static_cast<std::size_t>(range.end - range.begin));
}

// One message to the next rank and one from the previous, at the same time: if all sent first and
// received then, all could wait for ever.
void pass(dist::Transport& transport, std::uint64_t step, std::span<const float> out,
          std::span<float> in) {
  const int n = transport.size(), rank = transport.rank();
  const dist::Outgoing outgoing{(rank + 1) % n, std::as_bytes(out)};
  const dist::Incoming incoming{(rank + n - 1) % n, std::as_writable_bytes(in)};
  transport.exchange(dist::label("ring", "F32", "", step, 0), {&outgoing, 1}, {&incoming, 1});
}

void ring_all_reduce(dist::Transport& transport, std::span<float> data) {
  const int n = transport.size(), rank = transport.rank();
  std::uint64_t step = 0;
  // Reduce-scatter. Slice k starts at rank k + 1; whoever receives it adds its own and passes it
  // on, until it has been everywhere and is complete at rank k.
  for (int s = 0; s < n - 1; ++s) {
    const std::span<float> own = slice(data, rank - 2 - s, n);
    std::vector<float> partial(own.size());
    pass(transport, ++step, slice(data, rank - 1 - s, n), partial);
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = partial[i] + own[i];
  }
  // All-gather. The complete slices travel on, and nothing is added any more.
  for (int s = 0; s < n - 1; ++s)
    pass(transport, ++step, slice(data, rank - s, n), slice(data, rank - 1 - s, n));
}

// What a rank contributes: numbers whose sum depends on the order.
std::vector<float> gradient(int rank, std::int64_t n) {
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = hs::core::uniform(7, static_cast<std::uint64_t>(rank), i) - 0.5F;
  return out;
}

void one_rank(const dist::Rank& self) {
  constexpr std::int64_t count = 100'000;
  const int n = self.transport.size(), rank = self.transport.rank();
  hs::Runtime runtime({.threads = self.threads});
  std::vector<float> ours = gradient(rank, count), library = ours, tree = ours;
  ring_all_reduce(self.transport, ours);
  const auto sent = self.transport.traffic().bytes_sent;

  dist::Group group(self.transport, runtime);
  dist::all_reduce(group, std::span(library), dist::Reduction::sum, dist::Algorithm::ring);
  dist::all_reduce(group, std::span(tree));
  std::int64_t other_order = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    other_order += ours[i] != tree[i] ? 1 : 0;
  std::printf(
      "%s, rank %d of %d: sent %.3f times its array; ring and tree differ in %ld of %ld sums\n",
      std::string(self.transport.name()).c_str(), rank, n,
      static_cast<double>(sent) / static_cast<double>(count * 4), static_cast<long>(other_order),
      static_cast<long>(count));
  // Beyond two ranks the ring adds in another order for each slice; the library's default does not.
  if (ours != library) throw std::logic_error("the library's ring gives other sums");
  if ((other_order == 0) != (n <= 2))
    throw std::logic_error("the orders do not differ as they should");
}

}  // namespace

int main() {
  // Each launch starts this program again as four processes, in which the call does not return.
  int code = 0;
  for (const auto transport : {dist::TransportKind::shm, dist::TransportKind::pipe})
    code |= dist::launch({.ranks = 4, .transport = transport, .threads = 1}, one_rank);
  return code;
}
