// SPDX-License-Identifier: MIT
// Mixed precision is a question of range before it is one of speed. Trains the capstone's model,
// small and in float, and draws the magnitudes of one step's gradients by powers of two beside the
// ranges of fp16 and bf16: fp16 loses the tail, a loss scale moves it back, bf16 needs none. What
// bf16 pays with is precision: half of the updates are below half an ulp of their weight, lost
// without a master copy.
//
//   08_range [text]   without a text: a generated one
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

// An op of one's own: y = x, and backward leaves the magnitudes of the gradient that comes by, as
// that of the mean over `count` targets. What fp16 has to carry are these, not the gradients of
// parameters, which are sums and float.
struct Observe {
  struct Payload {
    hs::mixed::TensorMagnitudes* into;
    double count;
  };
  static void infer(hs::autograd::Infer& c) {
    c.output<float>(c.input_shape(0));
    c.passes_gradient(0);  // the input's gradient is the output's own
  }
  static void forward(hs::autograd::Forward& c) {
    std::copy_n(c.input<float>(0), c.output_shape().elements(), c.output<float>());
  }
  static void backward(hs::autograd::Backward& c) {
    const auto& payload = c.payload<Payload>();
    const std::span<const float> gradient(c.output_gradient<float>(),
                                          static_cast<std::size_t>(c.output_shape().elements()));
    for (const float g : gradient)
      payload.into->magnitudes.add(std::fabs(static_cast<double>(g)) / payload.count);
  }
  static constexpr hs::autograd::Op op{"observe", &infer, &forward, &backward};
};
hs::Variable<float> observe(hs::Variable<float> x, hs::mixed::TensorMagnitudes& into,
                            double count) {
  hs::Tape& tape = hs::autograd::tape_of(x, "observe");
  return tape.handle<float>(tape.record(Observe::op, {x}, {}, Observe::Payload{&into, count}));
}

// One batch through the model, op by op, its activations' gradients looked at.
std::vector<hs::mixed::TensorMagnitudes> activations(const hs::nn::Gpt<float>& gpt,
                                                     hs::Parameters<float>& parameters,
                                                     hs::Tape& tape, const hs::data::Batch& batch,
                                                     int heads) {
  std::vector<hs::mixed::TensorMagnitudes> seen{
      {"logits", {}}, {"queries, keys, values", {}}, {"MLP, before GELU", {}}};
  const auto count = static_cast<double>(batch.targets.size());
  const hs::Gradients<float> sink(parameters, tape);  // without a sink a model is a constant
  tape.begin({.rows = batch.rows});
  auto x = gpt.embed(tape, batch.inputs);
  for (const auto& block : gpt.blocks) {
    const auto qkv = observe(block.attention.qkv(block.norm1(x)), seen[1], count);
    x = x + block.attention.out(hs::attention(qkv, heads));
    x = x + block.down(hs::gelu(observe(block.up(block.norm2(x)), seen[2], count)));
  }
  tape.backward(hs::cross_entropy(observe(gpt.head(x), seen[0], count), batch.targets));
  return seen;
}

int run(const hs::data::Text& text) {
  constexpr int context = 64, rows = 12;
  constexpr std::int64_t iterations = 150;
  hs::Runtime runtime({.seed = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::GptOptions sizes{.vocabulary = text.vocabulary(),
                                 .context = context,
                                 .layers = 2,
                                 .heads = 4,
                                 .width = 64,
                                 .bias = false};
  const hs::nn::Gpt<float> gpt(parameters, sizes);
  hs::mixed::MasterWeights optimizer(parameters,
                                     hs::optim::AdamWOptions{.beta2 = 0.99, .weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  const auto scaler = hs::mixed::LossScaler::fixed(1.0F);
  const auto trained =
      hs::train::fit(gpt, tape, optimizer, accumulator, scaler, text,
                     {.steps = iterations, .lr = 3e-3F, .warmup = 30, .rows = rows});
  std::printf("A GPT after %lld iterations in float: held out %.4f nats a character\n\n",
              static_cast<long long>(iterations), trained.held_out);

  const auto next = text.batch({.first_sample = iterations * rows, .rows = rows}, context);
  std::vector<hs::mixed::TensorMagnitudes> tensors =
      activations(gpt, parameters, tape, next, sizes.heads);
  const hs::mixed::Magnitudes carried = hs::mixed::total(tensors);
  const hs::mixed::ScaleAdvice advice = carried.advised_scale<hs::fp16>();

  // One step more, looked at: the gradient between unscale and step, the weights before and after
  // it.
  const hs::mixed::StepShape shape{.micro_batches = 4, .rows = rows, .targets_per_row = context};
  hs::mixed::LostUpdates updates(parameters);
  updates.before(optimizer);
  auto window = accumulator.begin(tape, iterations, shape);
  for (const auto micro : window) {
    const auto batch = text.batch(micro, context);
    tape.begin(micro);
    window.backward(tape, hs::cross_entropy(gpt(tape, batch.inputs), batch.targets));
  }
  auto gradients = std::move(window).unscale();
  tensors.push_back({"parameters", hs::mixed::total(hs::mixed::gradient_magnitudes(gradients))});
  const bool applied = optimizer.step(std::move(gradients).clip_norm(1.0F), 3e-4F).applied;

  std::printf("Gradients of activations, of the mean loss of %zu tokens, by magnitude\n\n%s\n%s\n",
              next.targets.size(), hs::mixed::histogram_text(carried, advice.scale).c_str(),
              hs::mixed::table_text(tensors, advice.scale).c_str());
  std::printf(
      "fp16 rounds %.2f %% of those of activations to zero; the loss scale 2^%.0f, which this "
      "advises,\n"
      "leaves %.2f %%. bf16 rounds %.2f %% to zero without a scale.\n\n",
      100.0 * carried.share_lost<hs::fp16>(), std::log2(advice.scale), 100.0 * advice.still_lost,
      100.0 * carried.share_lost<hs::bf16>());

  const auto below = [&]<class F>(const char* format, F) {
    const auto sum = hs::mixed::total(updates.after<F>(optimizer));
    std::printf("  %-6s %6.2f %% of %lld\n", format, 100.0 * sum.share_below_half(),
                static_cast<long long>(sum.updated));
    return sum.share_below_half();
  };
  std::printf("Updates of that step below half an ulp of their weight, were it kept in\n");
  const double in_float = below("float", 0.0F), in_half = below("fp16", hs::fp16{}),
               in_brain = below("bf16", hs::bf16{});

  // All that a step rounds, and the same step in double.
  const hs::train::Divergence shadow = hs::train::shadow_step<hs::nn::Gpt>(
      parameters, optimizer,
      {.iteration = iterations + 1, .shape = shape, .clip = 1.0F, .lr = 3e-4F},
      [&]<class T>(const hs::nn::Gpt<T>& model, hs::Tape& on, const hs::MicroBatch& micro) {
        const auto batch = text.batch(micro, context);
        return hs::cross_entropy(model(on, batch.inputs), batch.targets);
      },
      sizes);
  std::printf("\nIn float, %s", to_string(shadow, 3).c_str());

  const bool range = carried.share_lost<hs::fp16>() > 0.003 &&
                     carried.share_lost<hs::bf16>() == 0.0 &&
                     advice.still_lost < 0.1 * carried.share_lost<hs::fp16>();
  const bool precision =
      in_float < 0.01 && in_half > in_float && in_brain > 2.0 * in_half && in_brain > 0.3;
  return applied && range && precision && shadow.gradient > 0.0 && shadow.gradient < 1e-4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(
        argc > 1 ? hs::data::Text::open(argv[1])
                 : hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 40'000)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
