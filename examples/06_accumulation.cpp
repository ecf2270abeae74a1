// SPDX-License-Identifier: MIT
// Accumulation and its divisor: the gradient of a large batch is the sum over small ones, divided
// once by all valid targets. Dividing each small batch by its own targets and averaging is another
// number.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <halfstep/halfstep.hpp>

namespace hs = halfstep;

namespace {

// Two micro-batches of four tokens. In the first, one is valid, with a loss of 4; in the second
// three are, with a loss of 2 each. Two classes, and logits (0, z): the loss of class 0 is ln(1 +
// e^z).
bool divisor(hs::Runtime& runtime) {
  hs::Parameters<float> parameters(runtime);
  const auto w = parameters.scope().add("w", {2, 2}, hs::Role::weight, hs::Init::constant(0.0F));
  const auto values = parameters.write(w.id);  // [class, input]
  values[2] = static_cast<float>(std::log(std::exp(4.0) - 1.0));
  values[3] = static_cast<float>(std::log(std::exp(2.0) - 1.0));
  const std::array<std::array<float, 8>, 2> inputs{
      {{1, 0, 1, 0, 1, 0, 1, 0}, {0, 1, 0, 1, 0, 1, 0, 1}}};
  const std::array<std::array<std::int32_t, 4>, 2> targets{
      {{0, -1, -1, -1}, {0, 0, -1, 0}}};  // -1: ignored

  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  auto window = accumulator.begin(tape, 0, {.micro_batches = 2, .rows = 1, .targets_per_row = 4});
  double means = 0.0;
  std::printf("micro-batch   loss sum   valid targets   mean\n");
  for (const auto micro : window) {
    const auto i = static_cast<std::size_t>(micro.number);
    tape.begin(micro);
    const auto x = hs::constant<float>(tape, {4, 2}, inputs[i]);
    const auto loss = hs::cross_entropy(hs::logits(x, w), targets[i]);
    std::printf("%11zu %10.4f %15g %6.4f\n", i, loss.sum, loss.count, loss.mean());
    means += loss.mean() / 2.0;
    window.backward(tape, loss);
  }
  const auto gradients = std::move(window).unscale();
  std::printf("mean of the means %.4f; the loss, %g over %g, is %.4f\n\n", means,
              std::round(gradients.loss_sum()), gradients.count(), gradients.loss());
  // d loss / d w[class 0, input] = (p - 1) summed over the valid targets, divided by 4. What they
  // weigh is what a mean of means gets wrong: there the first token counts as much as the other
  // three.
  const double first = static_cast<double>(gradients.sum(w.id)[0]) * gradients.factor();
  const double right = (std::exp(-4.0) - 1.0) / 4.0;
  std::printf("gradient for the first token %.6f; by hand %.6f, and %.6f from a mean of means\n\n",
              first, right, 2.0 * right);
  return std::fabs(means - 3.0) < 1e-6 && std::fabs(gradients.loss() - 2.5) < 1e-6 &&
         gradients.count() == 4.0 && std::fabs(first - right) < 1e-6;
}

using Sum = std::vector<std::vector<float>>;  // one gradient per parameter, of the loss summed

// The gradient of 8 rows as `micro_batches` of equal size, of which this call computes `count` from
// `begin` on: what one of several accumulation loops, or one of several processes, does.
Sum gradient(hs::Runtime& runtime, const hs::data::Text& text, int micro_batches,
             std::int64_t begin, std::int64_t count) {
  constexpr int length = 32;
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, {.vocabulary = text.vocabulary(),
                                            .context = length,
                                            .layers = 2,
                                            .heads = 2,
                                            .width = 32,
                                            .dropout = 0.1F});
  hs::mixed::GradientAccumulator accumulator(parameters);
  hs::Tape tape(runtime);
  auto window = accumulator.begin(
      tape, 0,
      {.micro_batches = micro_batches, .rows = 8 / micro_batches, .targets_per_row = length},
      {.first = begin, .count = count});
  for (const auto micro : window) {
    const auto batch = text.batch(micro, length);
    tape.begin(micro);
    window.backward(tape, hs::cross_entropy(gpt(tape, batch.inputs), batch.targets));
  }
  const auto gradients = std::move(window).unscale();
  Sum result;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    result.emplace_back(gradients.sum({i}).begin(), gradients.sum({i}).end());
  }
  return result;
}

double norm_of_difference(const Sum& a, const Sum* b) {
  double squares = 0.0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      const double off =
          static_cast<double>(a[p][i]) - (b == nullptr ? 0.0 : static_cast<double>((*b)[p][i]));
      squares += off * off;
    }
  }
  return std::sqrt(squares);
}

bool order(const hs::data::Text& text) {
  hs::Runtime runtime({.seed = 1});
  const Sum whole = gradient(runtime, text, 1, 0, 1), four = gradient(runtime, text, 4, 0, 4);
  const double relative = norm_of_difference(whole, &four) / norm_of_difference(whole, nullptr);
  std::printf(
      "8 rows at once, and as 4 micro-batches of 2: gradients differ by %.1e of their norm\n",
      relative);

  // The same four micro-batches, two here and two there, on another number of threads, and joined
  // by one addition: the same bits, since the sum over micro-batches is one tree, ((0 + 1) + (2 +
  // 3)).
  hs::Runtime here({.threads = 1, .seed = 1}), there({.threads = 3, .seed = 1});
  Sum joined = gradient(here, text, 4, 0, 2);
  const Sum rest = gradient(there, text, 4, 2, 2);
  for (std::size_t p = 0; p < joined.size(); ++p) {
    for (std::size_t i = 0; i < joined[p].size(); ++i)
      joined[p][i] += rest[p][i];
  }
  hs::Runtime other({.seed = 2});
  const bool same = joined == four, differs = gradient(other, text, 4, 0, 4) != four;
  std::printf("the same 4 micro-batches as 2 and 2: %s; of another seed: %s\n",
              same ? "the same bits" : "OTHER BITS", differs ? "other bits" : "THE SAME BITS");
  return relative < 1e-6 && relative > 0.0 && same && differs;
}

}  // namespace

int main() {
  hs::Runtime runtime;
  const bool divided = divisor(runtime);
  const auto text = hs::data::Text::from_string(hs::data::Grammar::sentences().generate(1, 20'000));
  return order(text) && divided ? 0 : 1;
}
