// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/keep.hpp>
#include <halfstep/autograd/memory_report.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/nn/segmented_gpt.hpp>

namespace hs = halfstep;

namespace {

constexpr int rows = 2, length = 32, vocabulary = 11;
const std::vector<std::int32_t> tokens = [] {
  std::vector<std::int32_t> out;
  for (int i = 0; i < rows * length; ++i)
    out.push_back(i * 7 % vocabulary);
  return out;
}();

hs::nn::GptOptions options(int layers) {
  return {.vocabulary = vocabulary,
          .context = length,
          .layers = layers,
          .heads = 4,
          .width = 64,
          .dropout = 0.1F};
}

struct Outcome {
  std::vector<float> gradients;
  std::int64_t peak = 0, remade = 0;
};

template <class T>
Outcome run(hs::KeepPolicy policy, int segments, hs::Tape::Mode mode = hs::Tape::Mode::real) {
  hs::Runtime runtime({.threads = 2, .seed = 3});
  hs::Parameters<T> parameters(runtime);
  const hs::nn::Gpt<T> gpt(parameters, options(3));
  const hs::nn::SegmentedGpt<T> model(gpt, segments);
  hs::Tape tape(runtime, mode);
  tape.keep(policy);
  hs::Gradients<T> gradients(parameters, tape);
  if (mode == hs::Tape::Mode::dry) tape.detach(parameters, gradients);
  tape.set_seed(0x1p-8);
  const auto live = tape.ledger().live();
  tape.begin({0, 0, 0, rows});
  tape.ledger().restart_peaks();
  tape.backward(hs::cross_entropy(model(tape, tokens), tokens));
  EXPECT_EQ(tape.ledger().live(), live);
  Outcome result{{}, tape.ledger().peak() - live, tape.remade_ops()};
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    result.gradients.insert(result.gradients.end(), gradients[hs::ParameterId{p}].begin(),
                            gradients[hs::ParameterId{p}].end());
  }
  return result;
}

hs::Keep everything_again(std::string_view /*op*/) { return hs::Keep::recompute; }
hs::Keep gelus_in_bf16(std::string_view op) {
  return op == "gelu" ? hs::Keep::as_bf16 : hs::Keep::save;
}

// A store of float weights, a tape, and the gradients of a pass.
struct Bench {
  hs::Runtime runtime{{.threads = 1, .seed = 9}};
  hs::Parameters<float> parameters{runtime};
  hs::Parameter<float> gain =
      parameters.add("gain", {24}, hs::Role::gain, hs::Init::constant(1.5F));
  hs::Parameter<float> a = parameters.add("a", {24, 24}, hs::Role::weight, hs::Init::normal(0.2F));
  hs::Parameter<float> b = parameters.add("b", {24, 24}, hs::Role::weight, hs::Init::normal(0.2F));
  hs::Tape tape{runtime};
  hs::Gradients<float> gradients{parameters, tape};
  std::vector<float> data = std::vector<float>(16 * 24);
  Bench() {
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>(i % 13) / 6.0F - 1.0F;
  }
  template <class F>
  std::vector<float> pass(hs::KeepPolicy policy, const F& f) {
    tape.keep(policy);
    tape.begin({0, 0, 0, 1});
    runtime.ledger().restart_peaks();
    tape.backward(squared_error(f(hs::constant<float>(tape, {16, 24}, data)), data));
    std::vector<float> all;
    for (std::uint32_t p = 0; p < parameters.size(); ++p) {
      all.insert(all.end(), gradients[hs::ParameterId{p}].begin(),
                 gradients[hs::ParameterId{p}].end());
    }
    return all;
  }
};

}  // namespace

template <class T>
class KeepIn : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(KeepIn, Formats);

TYPED_TEST(KeepIn, WhatIsMadeAgainChangesNoBitAndLowersThePeak) {
  const auto all = run<TypeParam>(hs::keep_values, 1);
  EXPECT_EQ(all.remade, 0);
  for (const int segments : {1, 3}) {
    const auto cheap = run<TypeParam>(hs::keep_default, segments),
               most = run<TypeParam>(everything_again, segments);
    EXPECT_EQ(cheap.gradients, all.gradients);
    EXPECT_EQ(most.gradients, all.gradients);
    EXPECT_EQ(cheap.remade, 3 * 3 + 1) << "two norms and a GELU a block, and the last norm";
    EXPECT_GT(most.remade, cheap.remade);
    EXPECT_LT(cheap.peak, run<TypeParam>(hs::keep_values, segments).peak);
    EXPECT_EQ(cheap.peak, run<TypeParam>(hs::keep_default, segments, hs::Tape::Mode::dry).peak);
    EXPECT_EQ(most.peak, run<TypeParam>(everything_again, segments, hs::Tape::Mode::dry).peak);
  }
}

TEST(Keep, ABlockIn16BitsHoldsTwentyBytesAWidthUnitAndTheStatistics) {
  hs::Runtime runtime({.threads = 1});
  const auto kept = [&](int layers) {
    hs::Parameters<hs::bf16> parameters(runtime);
    const hs::nn::Gpt<hs::bf16> gpt(parameters, options(layers));
    return hs::report_kept(
               runtime, {0, 0, 0, rows},
               [&](hs::Tape& tape) { return hs::cross_entropy(gpt(tape, tokens), tokens); })
        .bytes;
  };
  constexpr std::int64_t width = 64, heads = 4;
  EXPECT_EQ(kept(3) - kept(2), rows * length * (20 * width + 16 + 4 * heads));
}

TEST(Keep, InBf16TakesHalfAndIsNotTheSameGradient) {
  Bench bench;
  std::int64_t live = 0;
  const auto f = [&](hs::Variable<float> x) {
    auto y = x;
    for (int i = 0; i < 4; ++i)
      y = linear(gelu(linear(y, bench.a)), bench.b);
    bench.tape.settle();
    live = bench.runtime.ledger().live();
    return y;
  };
  const auto exact = bench.pass(hs::keep_values, f);
  const auto whole = live;
  const auto rounded = bench.pass(gelus_in_bf16, f);
  EXPECT_EQ(whole - live, 4 * 16 * 24 * 2) << "of four GELUs, half";
  EXPECT_NE(rounded, exact);
  double worst = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(rounded[i]) - exact[i]));
    largest = std::max(largest, std::abs(static_cast<double>(exact[i])));
  }
  EXPECT_LT(worst, largest / 128) << "half an ulp of bf16 is 1/512 of a value";
}

TEST(Keep, ANormThatSeveralInARowReadIsMadeAgainOnce) {
  Bench bench;
  const auto f = [&](hs::Variable<float> x) {
    const auto n = layer_norm(x * x, bench.gain);
    return linear(n, bench.a) * linear(n, bench.b);
  };
  const auto plain = bench.pass(hs::keep_values, f);
  const auto before = bench.tape.remade_ops();
  EXPECT_EQ(bench.pass(hs::keep_default, f), plain);
  EXPECT_EQ(bench.tape.remade_ops() - before, 1);
}

TEST(Keep, WhatWasForgottenIsThereForWhoeverAsksLater) {
  Bench bench;
  std::vector<float> first, later;
  const auto f = [&](hs::Variable<float> x) {
    const auto n = layer_norm(x * x, bench.gain);
    const auto h = gelu(linear(n, bench.a));
    const auto y = linear(h, bench.b);
    const auto z = y + y;  // n and h are gone by now
    bench.tape.settle();
    later.assign(h.value().begin(), h.value().end());
    return z + n * h;
  };
  const auto again = [&](hs::Variable<float> x) {
    const auto h = gelu(linear(layer_norm(x * x, bench.gain), bench.a));
    first.assign(h.value().begin(), h.value().end());
    return h;
  };
  (void)bench.pass(hs::keep_values, again);
  const auto plain = bench.pass(hs::keep_values, f);
  EXPECT_EQ(bench.pass(hs::keep_default, f), plain);
  EXPECT_EQ(later, first);
  EXPECT_EQ(bench.pass(everything_again, f), plain);
}

TEST(Keep, InputsOfWhatIsMadeAgainStayForIt) {
  // Sums are made again, whose own backward reads nothing: what they add must still be there.
  Bench bench;
  const auto f = [&](hs::Variable<float> x) {
    const auto u = linear(x, bench.a), v = gelu(linear(x, bench.b));
    const auto w = u + v;
    const auto y = linear(w, bench.a) * linear(v, bench.b);
    return y + w * u;
  };
  EXPECT_EQ(bench.pass(everything_again, f), bench.pass(hs::keep_values, f));
}

TEST(Keep, ManyUsesOfLongForgottenChainsTakeLinearTime) {
  // Two thousand sums, each used once more at the end: none is more than three ops away.
  Bench bench;
  const auto f = [&](hs::Variable<float> x) {
    std::vector<hs::Variable<float>> all{linear(x, bench.a)};
    for (int i = 0; i < 2000; ++i)
      all.push_back(all.back() + x);
    auto y = all[0];
    for (const auto& v : all)
      y = y + v;
    return y;
  };
  const auto plain = bench.pass(hs::keep_values, f);
  EXPECT_EQ(bench.pass(everything_again, f), plain);
  EXPECT_LT(bench.tape.remade_ops(), 2 * 3 * 2002);
}

TEST(Keep, AnOpThatDoesNotSayThatItRepeatsIsSaved) {
  struct Once {
    static void infer(hs::autograd::Infer& c) { c.output<float>(c.input_shape(0)); }
    static void forward(hs::autograd::Forward& c) {
      std::copy_n(c.input<float>(0), 16 * 24, c.output<float>());
    }
    static void backward(hs::autograd::Backward& c) {
      std::copy_n(c.output_gradient<float>(), 16 * 24, c.input_gradient<float>(0));
    }
  };
  static constexpr hs::autograd::Op op{"once", &Once::infer, &Once::forward, &Once::backward};
  Bench bench;
  const auto f = [&](hs::Variable<float> x) {
    const auto y = bench.tape.handle<float>(
        bench.tape.record(op, {linear(x, bench.a)}, {}, hs::autograd::NoPayload{}));
    return linear(y, bench.b);
  };
  const auto plain = bench.pass(hs::keep_values, f);
  const auto before = bench.tape.remade_ops();
  EXPECT_EQ(bench.pass(everything_again, f), plain);
  EXPECT_EQ(bench.tape.remade_ops() - before, 2) << "the two products, and not itself";
}

TEST(Keep, AWriteBetweenForwardAndTheSecondRunIsAnError) {
  Bench bench;
  bench.tape.begin({0, 0, 0, 1});
  const auto x = hs::constant<float>(bench.tape, {16, 24}, bench.data);
  const auto loss = squared_error(linear(layer_norm(x * x, bench.gain), bench.a), bench.data);
  bench.parameters.write(bench.gain.id)[0] = 3.0F;
  EXPECT_THROW(bench.tape.backward(loss), hs::StateError);
}
