// SPDX-License-Identifier: MIT
// Why fp16 needs a loss scale: its smallest number is 2^-24, and many gradients of a mean over a
// batch are smaller. Trains a GPT in float, takes one batch's gradients kind by kind, and counts
// what fp16 would make zero; then trains in fp16 with a scale and without.
//
//   05_loss_scale [text [iterations]]   without a text: a generated one and a smaller model
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

// An op of one's own: y = x, and backward leaves a copy of the gradient that comes by.
template <class T>
struct Observe {
  struct Payload {
    std::vector<T>* gradient;
  };
  static void infer(hs::autograd::Infer& c) {
    c.output<T>(c.input_shape(0));
    c.passes_gradient(0);  // the input's gradient is the output's own: nothing to write for it
  }
  static void forward(hs::autograd::Forward& c) {
    std::copy_n(c.input<T>(0), c.output_shape().elements(), c.output<T>());
  }
  static void backward(hs::autograd::Backward& c) {
    const T* const gradient = c.output_gradient<T>();
    c.payload<Payload>().gradient->assign(gradient, gradient + c.output_shape().elements());
  }
  static constexpr hs::autograd::Op op{"observe", &infer, &forward, &backward};
};

template <class T>
hs::Variable<T> observe(hs::Variable<T> x, std::vector<T>& gradient) {
  hs::Tape& tape = hs::autograd::tape_of(x, "observe");
  return tape.handle<T>(
      tape.record(Observe<T>::op, {x}, {}, typename Observe<T>::Payload{&gradient}));
}

struct Sizes {
  int layers, heads, width, context, rows;
  float lr;
  std::int64_t schedule;  // iterations until the learning rate is at its floor
};

// Gradients of one kind, of the mean loss, over all layers.
struct Kind {
  const char* name;
  std::vector<double> gradients{};

  // The share of those that are not zero that fp16 rounds to zero when multiplied by `scale`.
  [[nodiscard]] double lost(double scale) const {
    std::int64_t count = 0, zero = 0;
    for (const double g : gradients) {
      if (g == 0.0) continue;
      ++count;
      zero += hs::fp16(g * scale) == hs::fp16(0.0F) ? 1 : 0;
    }
    return static_cast<double>(zero) / static_cast<double>(std::max<std::int64_t>(count, 1));
  }
  [[nodiscard]] double largest() const {
    double most = 0.0;
    for (const double g : gradients)
      most = std::max(most, std::fabs(g));
    return most;
  }
};

// The gradients of attention's scores, which the library's attention never stores: P is the softmax
// of the scores S over the keys up to the query, dP = dO V^T, dS = P (dP - sum over keys of P dP).
void add_score_gradients(std::span<const float> qkv, std::span<const float> output_gradient,
                         const Sizes& s, double factor, std::vector<double>& out) {
  const auto width = static_cast<std::size_t>(s.width),
             head = width / static_cast<std::size_t>(s.heads);
  const auto tokens = static_cast<std::size_t>(s.context);
  const double shrink = 1.0 / std::sqrt(static_cast<double>(head));
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < head; ++i)
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return sum;
  };
  std::vector<double> p(tokens), dp(tokens);
  for (std::size_t row = 0; row < static_cast<std::size_t>(s.rows); ++row) {
    for (std::size_t first = 0; first < width; first += head) {  // of a head's channels
      for (std::size_t i = 0; i < tokens; ++i) {
        const float* const query = &qkv[(row * tokens + i) * 3 * width + first];
        double most = -1e300, sum = 0.0, mean = 0.0;
        for (std::size_t j = 0; j <= i; ++j) {
          const float* const key = &qkv[(row * tokens + j) * 3 * width + width + first];
          p[j] = dot(query, key) * shrink;
          dp[j] = dot(&output_gradient[(row * tokens + i) * width + first], key + width);
          most = std::max(most, p[j]);
        }
        for (std::size_t j = 0; j <= i; ++j)
          sum += p[j] = std::exp(p[j] - most);
        for (std::size_t j = 0; j <= i; ++j)
          mean += (p[j] /= sum) * dp[j];
        for (std::size_t j = 0; j <= i; ++j)
          out.push_back(factor * p[j] * (dp[j] - mean));
      }
    }
  }
}

// One batch through the trained model, op by op, with an observer wherever a gradient is of
// interest.
std::vector<Kind> collect(const hs::nn::Gpt<float>& gpt, hs::Parameters<float>& parameters,
                          hs::Tape& tape, const hs::data::Batch& batch, const Sizes& sizes) {
  struct Layer {
    std::vector<float> qkv_values, qkv, attention, up;
  };
  std::vector<Layer> layers(gpt.blocks.size());
  std::vector<float> logits;
  const hs::Gradients<float> sink(parameters, tape);  // without a sink a model is a constant
  tape.begin({.rows = batch.rows});
  auto x = gpt.embed(tape, batch.inputs);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& block = gpt.blocks[i];
    Layer& layer = layers[i];
    const auto qkv = observe(block.attention.qkv(block.norm1(x)), layer.qkv);
    layer.qkv_values.assign(qkv.value().begin(), qkv.value().end());
    x = x + block.attention.out(observe(hs::attention(qkv, sizes.heads), layer.attention));
    x = x + block.down(hs::gelu(observe(block.up(block.norm2(x)), layer.up)));
  }
  const auto loss = hs::cross_entropy(observe(gpt.head(x), logits), batch.targets);
  tape.backward(loss);  // of the sum; the mean's are 1 / count of these

  std::vector<Kind> kinds{
      {"logits"}, {"attention scores"}, {"MLP, before GELU"}, {"queries, keys, values"}};
  const double factor = 1.0 / loss.count;
  const auto add = [&](Kind& kind, const std::vector<float>& gradients) {
    for (const float g : gradients)
      kind.gradients.push_back(static_cast<double>(g) * factor);
  };
  add(kinds[0], logits);
  for (const Layer& layer : layers) {
    add_score_gradients(layer.qkv_values, layer.attention, sizes, factor, kinds[1].gradients);
    add(kinds[2], layer.up);
    add(kinds[3], layer.qkv);
  }
  return kinds;
}

hs::nn::GptOptions options_of(const Sizes& sizes, int vocabulary) {
  return {.vocabulary = vocabulary,
          .context = sizes.context,
          .layers = sizes.layers,
          .heads = sizes.heads,
          .width = sizes.width,
          .bias = false};
}

hs::train::FitOptions fit_options(const Sizes& sizes, std::int64_t iterations) {
  return {.steps = std::max(iterations, sizes.schedule),
          .lr = sizes.lr,
          .warmup = std::min<std::int64_t>(100, sizes.schedule / 4),
          .rows = sizes.rows};
}

struct Fp16Run {
  double held_out = 0.0;
  double dead = 0.0;  // share of parameter gradients that are zero in the last window
  std::int64_t skipped = 0;
};

// The same training in fp16, as one of `processes` that share a step and compute one micro-batch
// each. The others are left out: what matters here is that the mean is over all their tokens, so
// that the gradients that pass through fp16 are smaller by that number. The loop is written out,
// since the gradients are looked at.
Fp16Run train_fp16(hs::Runtime& runtime, const hs::data::Text& text, const Sizes& sizes,
                   std::int64_t iterations, int processes, hs::mixed::LossScaler scaler) {
  using T = hs::fp16;
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, options_of(sizes, text.vocabulary()));
  hs::mixed::MasterWeights optimizer(parameters,
                                     hs::optim::AdamWOptions{.beta2 = 0.99, .weight_decay = 0.1});
  hs::mixed::GradientAccumulator accumulator(parameters, scaler);
  hs::Tape tape(runtime);
  const auto fit = fit_options(sizes, iterations);
  const hs::optim::WarmupCosine lr{
      .peak = fit.lr, .floor = fit.min_lr, .warmup = fit.warmup, .steps = fit.steps};
  Fp16Run run;
  for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
    auto window = accumulator.begin(
        tape, iteration,
        {.micro_batches = processes, .rows = sizes.rows, .targets_per_row = sizes.context},
        {.first = 0, .count = 1});
    for (const auto micro : window) {
      // Not of `micro`: the same rows as in the other runs, however many share the step.
      const auto batch =
          text.batch({.first_sample = iteration * sizes.rows, .rows = sizes.rows}, sizes.context);
      tape.begin(micro);
      window.backward(tape, hs::cross_entropy(gpt(tape, batch.inputs), batch.targets));
    }
    auto gradients = std::move(window).unscale();
    if (iteration + 1 == iterations) {
      std::int64_t zero = 0, count = 0;
      for (std::uint32_t i = 0; i < parameters.size(); ++i) {
        // Rows of tokens that are not in the batch have no gradient in any format.
        if (parameters.infos()[i].name == "tokens.table") continue;
        for (const float g : gradients.sum({i}))
          zero += g == 0.0F ? 1 : 0;
        count += parameters.infos()[i].elements;
      }
      run.dead = static_cast<double>(zero) / static_cast<double>(count);
    }
    const auto result = optimizer.step(std::move(gradients).clip_norm(1.0F), lr(optimizer.steps()));
    run.skipped += result.applied ? 0 : 1;
  }
  run.held_out = hs::train::evaluate(gpt, tape, text).nats_per_token();
  return run;
}

int run(int argc, char** argv) {
  std::int64_t iterations = argc > 1 ? 600 : 200;
  if (argc > 2) {
    const char* const end = argv[2] + std::strlen(argv[2]);
    const auto parsed = std::from_chars(argv[2], end, iterations);
    if (parsed.ec != std::errc() || parsed.ptr != end || iterations < 1) {
      std::fprintf(stderr, "usage: 05_loss_scale [text [iterations]]\n");
      return 2;
    }
  }
  const auto text =
      argc > 1 ? hs::data::Text::open(argv[1])
               : hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 40'000));
  // With a text: nanoGPT's run on a CPU, which takes 2000 iterations; this one stops before.
  const Sizes sizes =
      argc > 1 ? Sizes{4, 4, 128, 64, 12, 1e-3F, 2000} : Sizes{2, 4, 64, 64, 12, 3e-3F, 200};

  hs::Runtime runtime({.seed = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, options_of(sizes, text.vocabulary()));
  std::int64_t done = 0;
  static_cast<void>(hs::train::fit(gpt, parameters, text, fit_options(sizes, iterations),
                                   {.on_step = [&](const hs::train::StepInfo&) { ++done; },
                                    .should_stop = [&] { return done == iterations; }}));
  const double held_out = hs::train::evaluate(gpt, parameters, text).nats_per_token();
  std::printf("A GPT after %lld iterations in float: held out %.4f nats a character\n\n",
              static_cast<long long>(iterations), held_out);

  hs::Tape tape(runtime);
  // A batch that comes after those of the training.
  const auto batch =
      text.batch({.first_sample = iterations * sizes.rows, .rows = sizes.rows}, sizes.context);
  const std::vector<Kind> kinds = collect(gpt, parameters, tape, batch, sizes);
  const auto scale = static_cast<double>(hs::mixed::LossScaler().scale());
  std::printf(
      "Share of the gradients of the mean loss that fp16 rounds to zero, and the largest one\n\n");
  std::printf("%-24s %12s %12s %12s %12s\n", "", "gradients", "scale 1", "scale 65536", "largest");
  for (const Kind& kind : kinds) {
    std::printf("%-24s %12zu %10.2f %% %10.3f %% %12.2g\n", kind.name, kind.gradients.size(),
                100.0 * kind.lost(1.0), 100.0 * kind.lost(scale), kind.largest());
  }
  std::printf("A scale is found by trying: it is halved when a gradient goes beyond 65504.\n\n");

  std::printf("%-20s %17s %10s %31s %9s\n", "Trained in fp16", "tokens of a step", "held out",
              "zero gradients of parameters", "skipped");
  const auto train = [&](const char* name, int processes, const hs::mixed::LossScaler& scaler) {
    const Fp16Run trained = train_fp16(runtime, text, sizes, iterations, processes, scaler);
    std::printf("%-20s %17d %10.4f %29.1f %% %9lld\n", name, processes * sizes.rows * sizes.context,
                trained.held_out, 100.0 * trained.dead, static_cast<long long>(trained.skipped));
    return trained;
  };
  constexpr int many = 512;  // near half a million tokens a step, as GPT-2's
  (void)train("at scale 1", 1, hs::mixed::LossScaler::fixed(1.0F));
  const Fp16Run plain = train("at scale 1", many, hs::mixed::LossScaler::fixed(1.0F));
  const Fp16Run scaled = train("with the loss scaler", many, hs::mixed::LossScaler());

  bool good = true;
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    good = good && kinds[i].lost(1.0) > 0.0 && kinds[i].lost(scale) <= 0.1 * kinds[i].lost(1.0);
  }
  good = good && std::fabs(scaled.held_out - held_out) < 0.03;
  return good && plain.held_out > scaled.held_out + 0.1 && plain.dead > scaled.dead ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
