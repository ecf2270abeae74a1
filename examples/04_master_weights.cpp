// SPDX-License-Identifier: MIT
// Why 16-bit weights have a float master copy: an update of less than half the distance to the next
// number is lost, every time. First one weight and a thousand small updates; then a GPT in bf16,
// with masters and without, beside the same GPT in float.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

enum class Masters { kept, forgotten };

// A weight that starts at 1 and is pushed up by 1e-3 a thousand times: the target is always half a
// unit above it, so the gradient of the squared error is -1, and the learning rate is 1e-3.
template <class T>
double pushed(hs::Runtime& runtime, Masters masters) {
  hs::Parameters<T> parameters(runtime);
  const auto w = parameters.scope().add("w", {1}, hs::Role::gain, hs::Init::constant(1.0F));
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::SgdOptions{});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  for (int iteration = 0; iteration < 1000; ++iteration) {
    if (masters == Masters::forgotten)
      optimizer.reload();  // master = weight: what was rounded off is gone
    auto window = accumulator.begin(tape, iteration, {.rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      const auto x = hs::use(tape, w);
      const std::array<float, 1> target{static_cast<float>(x.value()[0]) + 0.5F};
      window.backward(tape, hs::squared_error(x, target));
    }
    (void)optimizer.step(std::move(window).unscale(), 1e-3F);
  }
  return static_cast<double>(static_cast<float>(parameters.values(w)[0]));
}

struct Run {
  std::vector<double> losses;  // mean training loss of each 100 iterations
  double held_out = 0.0;
  double still = 0.0;  // share of weights that one of the last updates did not move
};

template <class T>
Run train(hs::Runtime& runtime, const hs::data::Text& text, Masters masters) {
  constexpr int iterations = 400, length = 32;
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(
      parameters,
      {.vocabulary = text.vocabulary(), .context = length, .layers = 2, .heads = 2, .width = 32});
  hs::mixed::MasterWeights optimizer(parameters, hs::optim::AdamWOptions{.beta2 = 0.99});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  const hs::optim::WarmupCosine lr{
      .peak = 1e-3F, .floor = 1e-5F, .warmup = 20, .steps = iterations};
  Run run;
  double sum = 0.0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (masters == Masters::forgotten) optimizer.reload();
    auto window = accumulator.begin(tape, iteration, {.rows = 16, .targets_per_row = length});
    for (const auto micro : window) {
      const auto batch = text.batch(micro, length);
      tape.begin(micro);
      window.backward(tape, hs::cross_entropy(gpt(tape, batch.inputs), batch.targets));
    }
    sum += window.loss();
    const auto all = parameters.write_all();
    const std::vector<T> before(all.begin(), all.end());
    (void)optimizer.step(std::move(window).unscale().clip_norm(1.0F), lr(optimizer.steps()));
    if (iteration % 100 == 99) {
      run.losses.push_back(sum / 100.0);
      sum = 0.0;
      std::int64_t same = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        same += all[i] == before[i] ? 1 : 0;
      run.still = static_cast<double>(same) / static_cast<double>(all.size());
    }
  }
  run.held_out = hs::train::evaluate(gpt, tape, text).nats_per_token();
  return run;
}

void print(const char* what, const Run& run) {
  std::printf("%-24s", what);
  for (const double loss : run.losses)
    std::printf(" %8.4f", loss);
  std::printf(" %10.4f %9.1f %%\n", run.held_out, 100.0 * run.still);
}

}  // namespace

int main() {
  hs::Runtime runtime({.seed = 1});
  const double bf16_kept = pushed<hs::bf16>(runtime, Masters::kept);
  const double bf16_lost = pushed<hs::bf16>(runtime, Masters::forgotten);
  const double fp16_kept = pushed<hs::fp16>(runtime, Masters::kept);
  const double fp16_lost = pushed<hs::fp16>(runtime, Masters::forgotten);
  std::printf("A weight of 1 and a thousand updates of 0.001\n\n");
  std::printf("%-24s %10s %10s\n", "", "fp16", "bf16");
  std::printf("%-24s %10g %10g\n", "with a master", fp16_kept, bf16_kept);
  std::printf("%-24s %10g %10g\n", "without", fp16_lost, bf16_lost);
  std::printf(
      "Above 1 bf16's numbers are 2^-7 apart: 0.001 rounds to nothing. fp16's are 2^-10 apart: it\n"
      "rounds to one such distance, 2 %% short.\n\n");

  const auto text = hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 40'000));
  const Run exact = train<float>(runtime, text, Masters::kept);
  const Run kept = train<hs::bf16>(runtime, text, Masters::kept);
  const Run lost = train<hs::bf16>(runtime, text, Masters::forgotten);
  std::printf("A small GPT, mean loss of each 100 iterations (nats a character)\n\n");
  std::printf("%-24s %8s %8s %8s %8s %10s %11s\n", "", "0-99", "100-199", "200-299", "300-399",
              "held out", "unmoved");
  print("float", exact);
  print("bf16 with masters", kept);
  print("bf16 without", lost);
  std::printf(
      "The last column is the share of weights whose bits the last update left as they were. With\n"
      "a master they are waiting; without one they never move. AdamW moves a weight by about the\n"
      "learning rate, whatever its size, so large ones stick first: norms' gains stay at 1.\n");

  const bool updates = bf16_lost == 1.0 && std::fabs(bf16_kept - 2.0) < 0.01 &&
                       std::fabs(fp16_kept - 2.0) < 0.001 && fp16_lost < 1.98;
  const bool same_as_float = std::fabs(kept.held_out - exact.held_out) < 0.02;
  const bool damage = lost.held_out > kept.held_out + 0.05;
  return updates && same_as_float && damage ? 0 : 1;
}
