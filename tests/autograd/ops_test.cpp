// SPDX-License-Identifier: MIT
// The gradient of every op, in double, against differences of its forward. The list of ops is read
// from the tree: a header in autograd/ops/ without a check here is a failure.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradient_check.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/keep.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/add_losses.hpp>
#include <halfstep/autograd/ops/attention.hpp>
#include <halfstep/autograd/ops/cast.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/head_loss.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/rms_norm.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>

#include "op_inputs.hpp"

namespace hs = halfstep;
using hs::GradientReport;

namespace {

using op_inputs::Inputs;
using op_inputs::numbers;
using Model = Inputs<double>;
using Result = hs::Variable<double>;

// Squares against fixed targets, so that every output gradient is another number.
hs::Loss judge(Result out) { return hs::squared_error(out, numbers(out.shape().elements())); }

GradientReport check(hs::Shape shape, std::int64_t out, const std::function<hs::Loss(const Model&, hs::Tape&)>& f) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  const hs::GradientCheckOptions options{.elements = 40, .micro = {0, 0, 6, 2}};
  return hs::gradient_check<Inputs>(runtime, options, f, shape, out);
}

const std::vector<std::int32_t> tokens{0, 3, 3, 1, 6, 0, 3, 2, 5, 4};
const std::vector<std::int32_t> targets{2, 0, -1, 6, 1, 2, 2, -1, 3, 5};

const std::map<std::string, std::function<std::vector<GradientReport>()>> checks{
    {"add", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       const auto x = use(t, m.x);
       return judge(x + use(t, m.y) + x);
     })}; }},
    {"add_losses", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       return judge(use(t, m.x)) + judge(use(t, m.y) * use(t, m.x));
     })}; }},
    {"attention", [] {
       std::vector<GradientReport> reports;
       for (const std::int64_t length : {1, 5, 70}) {
         reports.push_back(check({2, length, 18}, 1, [](const Model& m, hs::Tape& t) { return judge(attention(use(t, m.x), 2)); }));
       }
       reports.push_back(check({2, 9, 18}, 1, [](const Model& m, hs::Tape& t) { return judge(attention(use(t, m.x), 2, 0.4F, 99)); }));
       return reports;
     }},
    {"cast", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       return judge(hs::cast<double>(use(t, m.x)));
     })}; }},
    {"constant", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       return judge(use(t, m.x) * hs::constant<double>(t, {3, 5}, numbers(15)));
     })}; }},
    {"cross_entropy", [] { return std::vector{check({10, 7}, 1, [](const Model& m, hs::Tape& t) {
       return cross_entropy(use(t, m.x), targets);
     })}; }},
    {"dropout", [] { return std::vector{check({2, 9}, 1, [](const Model& m, hs::Tape& t) {
       return judge(dropout(use(t, m.x), 0.4F, 99));
     })}; }},
    {"embedding", [] {
       return std::vector{check({7, 5}, 1, [](const Model& m, hs::Tape& t) { return judge(embedding(t, m.x, tokens)); }),
                          check({7, 5}, 1, [](const Model& m, hs::Tape& t) { return judge(embedding(t, m.x, m.y, tokens)); })};
     }},
    {"gelu", [] {
       return std::vector{check({4, 9}, 1, [](const Model& m, hs::Tape& t) { return judge(gelu(use(t, m.x))); }),
                          check({4, 9}, 1, [](const Model& m, hs::Tape& t) { return judge(gelu_erf(use(t, m.x))); })};
     }},
    {"head_loss", [] {
       return std::vector{check({10, 5}, 7, [](const Model& m, hs::Tape& t) { return head_loss(use(t, m.x), m.w, targets); }),
                          check({10, 5}, 7, [](const Model& m, hs::Tape& t) {  // two losses on one head
                            const auto first = head_loss(use(t, m.x), m.w, targets);
                            return first + head_loss(use(t, m.y), m.w, std::vector<std::int32_t>(10, 6));
                          })};
     }},
    {"layer_norm", [] {
       return std::vector{check({5, 7}, 7, [](const Model& m, hs::Tape& t) { return judge(layer_norm(use(t, m.x), m.b)); }),
                          check({5, 7}, 7, [](const Model& m, hs::Tape& t) { return judge(layer_norm(use(t, m.x), m.b, m.c)); })};
     }},
    {"linear", [] {
       return std::vector{check({3, 2, 5}, 4, [](const Model& m, hs::Tape& t) { return judge(linear(use(t, m.x), m.w)); }),
                          check({6, 5}, 4, [](const Model& m, hs::Tape& t) { return judge(linear(use(t, m.x), m.w, m.b)); }),
                          check({6, 5}, 4, [](const Model& m, hs::Tape& t) { return judge(logits(use(t, m.x), m.w)); }),
                          check({6, 5}, 5, [](const Model& m, hs::Tape& t) {
                            return judge(linear(linear(use(t, m.x), m.w, m.b), m.w, m.b));  // tied
                          })};
     }},
    {"multiply", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       const auto x = use(t, m.x);
       return judge(x * x * use(t, m.y));
     })}; }},
    {"rms_norm", [] {
       return std::vector{check({5, 7}, 7, [](const Model& m, hs::Tape& t) { return judge(rms_norm(use(t, m.x), m.b)); })};
     }},
    {"squared_error", [] { return std::vector{check({3, 400}, 1, [](const Model& m, hs::Tape& t) { return judge(use(t, m.x)); })}; }},
    {"use", [] { return std::vector{check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
       return judge(use(t, m.x) + use(t, m.x));
     })}; }},
};

struct WrongSign {
  static void infer(hs::autograd::Infer& c) { c.output<double>(c.input_shape(0)); }
  static void forward(hs::autograd::Forward& c) {
    for (std::int64_t i = 0; i < c.output_shape().elements(); ++i) c.output<double>()[i] = 3.0 * c.input<double>(0)[i];
  }
  static void backward(hs::autograd::Backward& c) {
    for (std::int64_t i = 0; i < c.output_shape().elements(); ++i) {
      c.input_gradient<double>(0)[i] = -3.0 * c.output_gradient<double>()[i];
    }
  }
  static constexpr hs::autograd::Op op{"wrong_sign", &infer, &forward, &backward};
};

}  // namespace

TEST(Ops, EveryOneInTheTreePassesTheGradientCheckInDouble) {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HALFSTEP_SOURCE_DIR "/include/halfstep/autograd/ops")) {
    const std::string name = entry.path().stem().string();
    ++seen;
    const auto found = checks.find(name);
    ASSERT_NE(found, checks.end()) << "autograd/ops/" << name << ".hpp has no gradient check";
    for (const GradientReport& report : found->second()) {
      EXPECT_TRUE(report.passed) << name << ": " << report.where << " is off by " << report.worst;
      EXPECT_EQ(report.rows.size(), 5U);
      bool reached = false;
      for (const auto& row : report.rows) reached = reached || row.analytic != 0.0;
      EXPECT_TRUE(reached) << name << ": no gradient flowed at all";
    }
  }
  EXPECT_EQ(seen, checks.size());
  std::printf("%zu ops, 0 without a check\n", seen);
}

TEST(Ops, AWrongSignIsCaught) {
  const auto report = check({3, 5}, 1, [](const Model& m, hs::Tape& t) {
    const auto x = use(t, m.x);
    return judge(t.handle<double>(t.record(WrongSign::op, {x}, {}, hs::autograd::NoPayload{})));
  });
  EXPECT_FALSE(report.passed);
  EXPECT_GT(report.worst, 1.0);
  EXPECT_EQ(report.where.substr(0, 2), "x[");
  EXPECT_THROW(report.require(), hs::NumericError);
}

TEST(Ops, ShapeErrorsNameTheLayer) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const auto scope = parameters.scope() / "blocks" / 3 / "up";
  const auto weight = scope.add("weight", {1536, 384}, hs::Role::weight, {});
  hs::Tape tape(runtime);
  tape.begin();
  const auto x = hs::constant<float>(tape, {2, 128}, std::vector<float>(256));
  const auto nodes = tape.nodes();
  try {
    (void)linear(x, weight);
    FAIL();
  } catch (const hs::ShapeError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 61), "blocks.3.up: input has width 128, weight is [1536, 384] and w");
  }
  EXPECT_EQ(tape.nodes(), nodes) << "a refused op left something on the tape";
  EXPECT_THROW((void)(x + hs::constant<float>(tape, {256}, std::vector<float>(256))), hs::ShapeError);
  EXPECT_THROW((void)embedding(tape, weight, tokens), hs::ShapeError);  // the micro-batch has no rows
  EXPECT_THROW((void)cross_entropy(x, targets), hs::ShapeError);
  EXPECT_THROW((void)squared_error(x, numbers(3)), hs::ShapeError);
  EXPECT_THROW((void)attention(x, 3), hs::ShapeError);
  EXPECT_THROW((void)attention(x, 2, 1.0F), hs::OptionError);
  EXPECT_THROW((void)dropout(x, 1.0F, 0), hs::OptionError);
}

TEST(Ops, AttentionDropsByTheSamplesNumbersAndInTrainingAlone) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  hs::Parameters<float> parameters(runtime);
  const auto w = parameters.add("w", {2, 9, 12}, hs::Role::weight, hs::Init::normal(1.0F));
  hs::Tape tape(runtime);
  const auto run = [&](std::int64_t first_sample, float p, std::uint64_t stream, bool training) {
    tape.begin({0, 0, first_sample, 2}, training ? hs::Record::gradients : hs::Record::nothing);
    const auto out = attention(use(tape, w), 2, p, stream);
    const auto values = out.value();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto base = run(6, 0.4F, 99, true);
  EXPECT_EQ(base, run(6, 0.4F, 99, true));
  EXPECT_NE(base, run(7, 0.4F, 99, true));
  EXPECT_NE(base, run(6, 0.4F, 98, true));
  EXPECT_NE(base, run(6, 0.0F, 99, true));
  EXPECT_EQ(run(6, 0.4F, 99, false), run(6, 0.0F, 99, true));

  // The mask is that of the kernel, from the tape's seed and the micro-batch's first sample.
  std::vector<float> out(2 * 9 * 4), lse(2 * 9 * 2);
  const hs::kernels::AttentionShape s{2, 9, 2, 2};
  std::vector<std::byte> workspace(static_cast<std::size_t>(hs::kernels::attention_workspace<float>(s, 2)));
  tape.begin({0, 0, 0, 2}, hs::Record::nothing);
  const auto qkv = use(tape, w).value();
  hs::kernels::attention<float>(runtime.compute(), s, {qkv.data(), qkv.size()}, out, lse, workspace,
                                {.probability = 0.4F, .seed = 5, .stream = 99, .first_sample = 6});
  EXPECT_EQ(base, out);
}

TEST(Ops, AttentionTakesMemoryLinearInTokensByTheLedger) {
  const auto workspace = [](std::int64_t length) {
    hs::Runtime runtime({.threads = 2});
    hs::Parameters<float> parameters(runtime);
    const auto w = parameters.add("w", {1, length, 96}, hs::Role::weight, hs::Init::normal(1.0F));
    hs::Tape tape(runtime);
    hs::Gradients<float> gradients(parameters, tape);
    tape.begin();
    const auto y = attention(use(tape, w), 2);
    tape.backward(squared_error(y, numbers(y.shape().elements())));
    return static_cast<double>(runtime.ledger().peak(hs::core::Category::workspace));
  };
  for (const std::int64_t length : {64, 256, 1024}) {
    EXPECT_GT(workspace(length), 0.0);
    EXPECT_LE(workspace(2 * length), 2.1 * workspace(length)) << length;
  }
}

namespace {

struct HeadResult {
  std::vector<float> x, w;
  double sum = 0.0;
  std::uint64_t flops = 0;
};

/// The gradients and the products of a loss on a head whose weight an embedding uses too.
template <class T, class Make>
HeadResult head(const Make& make, double seed, hs::Record record = hs::Record::gradients) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  hs::Parameters<T> parameters(runtime);
  const auto w = parameters.add("w", {7, 24}, hs::Role::weight, hs::Init::normal(0.7F));
  const auto p = parameters.add("p", {10, 24}, hs::Role::weight, hs::Init::normal(0.7F));
  hs::Tape tape(runtime);
  hs::Gradients<T> gradients(parameters, tape);
  tape.set_seed(seed);
  tape.begin({0, 0, 0, 1}, record);
  const hs::Loss loss = make(embedding(tape, w, p, tokens), w, tape);
  HeadResult result;
  result.sum = loss.sum;
  if (record == hs::Record::gradients) {
    tape.backward(loss);
    result.x.assign(gradients[p].begin(), gradients[p].end());
    result.w.assign(gradients[w].begin(), gradients[w].end());
  }
  result.flops = runtime.counters().flops;
  return result;
}

/// Doubles the gradient, and nothing else: an upstream that no step's seed foresees.
struct Doubled {
  static void infer(hs::autograd::Infer& c) { c.output<double>({}); }
  static void forward(hs::autograd::Forward& c) { *c.output<double>() = 2.0 * *c.input<double>(0); }
  static void backward(hs::autograd::Backward& c) {
    *c.input_gradient<double>(0) = 3.0 * *c.output_gradient<double>();
  }
  static constexpr hs::autograd::Op op{"doubled", &infer, &forward, &backward};
};
hs::Loss doubled(hs::Tape& tape, const hs::Loss& loss) {
  const auto id = tape.record(Doubled::op, {loss.variable}, {}, hs::autograd::NoPayload{});
  return {tape.handle<double>(id), 2.0 * loss.sum, loss.count};
}

template <class T>
class FusedHead : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(FusedHead, Formats);

const auto apart = [](auto x, auto w, hs::Tape&) { return cross_entropy(logits(x, w), targets); };
const auto fused = [](auto x, auto w, hs::Tape&) { return head_loss(x, w, targets); };

TYPED_TEST(FusedHead, HasTheBitsOfLogitsAndCrossEntropy) {
  const auto expected = head<TypeParam>(apart, 0.25), found = head<TypeParam>(fused, 0.25);
  EXPECT_EQ(found.sum, expected.sum);
  EXPECT_EQ(found.x, expected.x);
  EXPECT_EQ(found.w, expected.w);
  EXPECT_EQ(found.flops, expected.flops) << "a product was computed twice";
  EXPECT_NE(head<TypeParam>(fused, 0.5).x, expected.x);
}

TYPED_TEST(FusedHead, IsRightForAnotherUpstreamGradientThanTheSeed) {
  const auto other = [](const auto& make) {
    return [&make](auto x, auto w, hs::Tape& tape) { return doubled(tape, make(x, w, tape)); };
  };
  const auto expected = head<TypeParam>(other(apart), 0.25), found = head<TypeParam>(other(fused), 0.25);
  EXPECT_EQ(found.x, expected.x);
  EXPECT_EQ(found.w, expected.w);
  EXPECT_GT(found.flops, expected.flops) << "the gradients of the seed were taken";
  EXPECT_NE(found.x, head<TypeParam>(fused, 0.25).x);
}

TYPED_TEST(FusedHead, BearsTwoLosses) {
  const auto two = [](const auto& make) {
    return [&make](auto x, auto w, hs::Tape& tape) { return make(x, w, tape) + doubled(tape, make(x, w, tape)); };
  };
  const auto expected = head<TypeParam>(two(apart), 0.25), found = head<TypeParam>(two(fused), 0.25);
  EXPECT_EQ(found.sum, expected.sum);
  EXPECT_EQ(found.x, expected.x);
  EXPECT_EQ(found.w, expected.w);
}

TYPED_TEST(FusedHead, ComputesNoGradientWhereNothingIsRecorded) {
  const auto nothing = head<TypeParam>(fused, 0.25, hs::Record::nothing);
  EXPECT_EQ(nothing.flops, 2U * 10 * 24 * 7);
  EXPECT_EQ(head<TypeParam>(fused, 0.25).flops, 3 * nothing.flops);
  EXPECT_EQ(nothing.sum, head<TypeParam>(fused, 0.25).sum);
}

TYPED_TEST(FusedHead, InASegmentComputesItsGradientsInTheSecondRunAlone) {
  hs::Loss loss;  // of the last run
  const auto segment = [&](auto x, auto w, hs::Tape& tape) {
    const auto call = hs::owns_its_captures([&loss, w](hs::Variable<TypeParam> v) {
      loss = head_loss(gelu(v), w, targets);
      return loss.variable;
    });
    const auto result = hs::checkpoint(call, x);
    EXPECT_EQ(tape.runtime().counters().flops, 2U * 10 * 24 * 7);
    return hs::Loss{result, loss.sum, loss.count};
  };
  const auto plain = [](auto x, auto w, hs::Tape&) { return cross_entropy(logits(gelu(x), w), targets); };
  const auto expected = head<TypeParam>(plain, 0.25), found = head<TypeParam>(segment, 0.25);
  EXPECT_EQ(found.sum, expected.sum);
  EXPECT_EQ(found.x, expected.x);
  EXPECT_EQ(found.w, expected.w);
  EXPECT_EQ(found.flops, expected.flops + 2 * 10 * 24 * 7) << "once more the logits alone";
}

namespace {

/// Gradients, counted products and declared operations of a head with a weight or an input that is frozen.
template <class T>
HeadResult frozen_head(const auto& make, bool freeze_weight, double* declared = nullptr) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  hs::Parameters<T> trained(runtime), frozen(runtime);
  auto& of_w = freeze_weight ? frozen : trained;
  auto& of_x = freeze_weight ? trained : frozen;
  const auto w = of_w.add("w", {7, 24}, hs::Role::weight, hs::Init::normal(0.7F));
  const auto x = of_x.add("x", {10, 24}, hs::Role::weight, hs::Init::normal(0.7F));
  hs::Tape tape(runtime);
  hs::Gradients<T> gradients(trained, tape);
  tape.set_seed(0.25);
  tape.begin({0, 0, 0, 1});
  const hs::Loss loss = make(use(tape, x), w, tape);
  const auto held = runtime.ledger().live(hs::core::Category::activations);
  tape.backward(loss);
  HeadResult result;
  result.sum = static_cast<double>(held);
  const auto g = freeze_weight ? gradients[x] : gradients[w];
  result.x.assign(g.begin(), g.end());
  result.flops = runtime.counters().flops;
  if (declared != nullptr) *declared = tape.flops();
  return result;
}

}  // namespace

TYPED_TEST(FusedHead, ComputesAndHoldsNoGradientThatNobodyWants) {
  for (const bool freeze_weight : {false, true}) {
    double declared = 0.0;
    const auto expected = frozen_head<TypeParam>(apart, freeze_weight), found = frozen_head<TypeParam>(fused, freeze_weight, &declared);
    EXPECT_EQ(found.x, expected.x);
    EXPECT_EQ(found.flops, 2U * 2 * 10 * 24 * 7) << "logits and one gradient";
    EXPECT_EQ(declared, 2.0 * 2 * 10 * 24 * 7 + 22.0 * 10 * 7) << "as declared";
  }
  constexpr double bytes_of_dw = 7 * 24 * 4;
  EXPECT_LE(frozen_head<TypeParam>(fused, true).sum + bytes_of_dw, frozen_head<TypeParam>(fused, false).sum + 10 * 24 * sizeof(TypeParam));
}

TYPED_TEST(FusedHead, HasTheSameBitsUnderEveryPolicyAndIsPredictedToTheByte) {
  static constexpr auto all_again = [](std::string_view) { return hs::Keep::recompute; };
  const auto expected = head<TypeParam>([](auto x, auto w, hs::Tape&) { return cross_entropy(logits(gelu(x), w), targets); }, 0.25);
  for (const hs::KeepPolicy policy : {hs::KeepPolicy{hs::keep_values}, hs::KeepPolicy{hs::keep_default}, hs::KeepPolicy{all_again}}) {
    hs::Runtime runtime({.threads = 2, .seed = 5});
    hs::Parameters<TypeParam> parameters(runtime);
    const auto w = parameters.add("w", {7, 24}, hs::Role::weight, hs::Init::normal(0.7F));
    const auto p = parameters.add("p", {10, 24}, hs::Role::weight, hs::Init::normal(0.7F));
    const auto pass = [&](hs::Tape& tape) {
      tape.keep(policy);
      tape.set_seed(0.25);
      tape.begin({0, 0, 0, 1});
      tape.backward(head_loss(gelu(embedding(tape, w, p, tokens)), w, targets));
    };
    hs::Tape dry(runtime, hs::Tape::Mode::dry), tape(runtime);
    pass(dry);
    hs::Gradients<TypeParam> gradients(parameters, tape);
    const auto live = runtime.ledger().live();
    runtime.ledger().restart_peaks();
    pass(tape);
    EXPECT_EQ(runtime.ledger().peak() - live, dry.ledger().peak());
    EXPECT_EQ(tape.flops(), dry.flops());
    EXPECT_EQ(std::vector<float>(gradients[p].begin(), gradients[p].end()), expected.x);
    EXPECT_EQ(std::vector<float>(gradients[w].begin(), gradients[w].end()), expected.w);
  }
}

}  // namespace
