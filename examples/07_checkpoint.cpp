// SPDX-License-Identifier: MIT
// A checkpoint and its price: blocks whose activations are forgotten and computed again in the
// backward pass. Same gradients, fewer bytes, more operations; and a dry tape that knows the bytes
// before any is taken.
#include <array>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

using T = hs::bf16;
using hs::core::Category;
constexpr int layers = 8, rows = 8, length = 64;

struct Measured {
  std::int64_t predicted = 0;  // peak bytes of a pass, from a dry tape
  std::int64_t counted = 0;    // the same, from the ledger
  std::int64_t activations = 0, recompute = 0, workspace = 0;  // the most that each has been
  std::int64_t replayed = 0;                                   // ops that ran twice
  double flops = 0.0;                                          // counted in the kernels
  std::vector<float> gradients;
};

// One forward and backward pass with the blocks in `segments` runs; 1 keeps everything.
Measured measure(const hs::nn::Gpt<T>& gpt, hs::Runtime& runtime, hs::Parameters<T>& parameters,
                 const hs::data::Batch& batch, int segments) {
  const hs::nn::SegmentedGpt<T> model(gpt, segments);
  const hs::MicroBatch micro{.rows = rows};
  Measured result;
  {
    hs::Tape dry(runtime, hs::Tape::Mode::dry);
    dry.begin(micro);
    dry.backward(hs::cross_entropy(model(dry, batch.inputs), batch.targets));
    result.predicted = dry.ledger().peak();
  }
  hs::Tape tape(runtime);
  hs::Gradients<T> gradients(parameters, tape);
  hs::core::Ledger& ledger = runtime.ledger();
  ledger.restart_peaks();
  const std::int64_t before = ledger.live();  // weights and gradients, which no plan changes
  const auto flops = runtime.counters().flops;
  tape.begin(micro);
  tape.backward(hs::cross_entropy(model(tape, batch.inputs), batch.targets));
  result.counted = ledger.peak() - before;
  result.activations = ledger.peak(Category::activations);
  result.recompute = ledger.peak(Category::recompute);
  result.workspace = ledger.peak(Category::workspace);
  result.replayed = tape.replayed_ops();
  result.flops = static_cast<double>(runtime.counters().flops - flops);
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    const auto g = gradients[hs::ParameterId{i}];
    result.gradients.insert(result.gradients.end(), g.begin(), g.end());
  }
  return result;
}

}  // namespace

int main() {
  hs::Runtime runtime({.seed = 1});
  const auto text = hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 20'000));
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, {.vocabulary = text.vocabulary(),
                                        .context = length,
                                        .layers = layers,
                                        .heads = 4,
                                        .width = 64,
                                        .dropout = 0.1F});
  parameters.lay_out();
  const auto batch = text.batch({.rows = rows}, length);

  struct Plan {
    const char* name;
    int segments;
  };
  // The last segment is kept: the backward pass begins in it.
  const std::array<Plan, 3> plans{
      {{"none", 1}, {"every block", layers}, {"two blocks a segment", layers / 2}}};
  std::vector<Measured> results;
  std::printf("A GPT of %d blocks in bf16 with dropout, one batch of %d rows of %d\n\n", layers,
              rows, length);
  std::printf("%-22s %10s %10s %12s %12s %10s %10s %8s\n", "segments", "predicted", "counted",
              "activations", "recompute", "workspace", "replayed", "MFLOP");
  for (const Plan& plan : plans) {
    const Measured m = measure(gpt, runtime, parameters, batch, plan.segments);
    std::printf("%-22s %10lld %10lld %12lld %12lld %10lld %10lld %8.1f\n", plan.name,
                static_cast<long long>(m.predicted), static_cast<long long>(m.counted),
                static_cast<long long>(m.activations), static_cast<long long>(m.recompute),
                static_cast<long long>(m.workspace), static_cast<long long>(m.replayed),
                m.flops * 1e-6);
    results.push_back(m);
  }
  std::printf(
      "\npredicted: the peak in bytes of a pass, from a dry tape; counted: from the ledger.\n"
      "The next three columns are the most that each part has been; they need not meet.\n"
      "replayed: ops that ran again in the backward pass.\n");

  const Measured &none = results[0], &each = results[1], &pairs = results[2];
  // A second run stops where no backward reads any more, in each segment before the block's last
  // product: seven segments save it seven times, three of two blocks three times.
  bool good = none.replayed == 0 && pairs.replayed > each.replayed && each.replayed > 0;
  good = good && each.counted < none.counted && pairs.counted < none.counted;
  good = good && pairs.flops > each.flops && each.flops > none.flops;
  for (const Measured& m : results)
    good = good && m.gradients == none.gradients && m.predicted == m.counted;

  // The gradients would show a difference: other rows have others.
  const auto other = text.batch({.first_sample = rows, .rows = rows}, length);
  good = good && measure(gpt, runtime, parameters, other, layers).gradients != none.gradients;
  std::printf("gradients: %s\n", good ? "the same bits with every plan" : "SOMETHING DIFFERS");
  return good ? 0 : 1;
}
