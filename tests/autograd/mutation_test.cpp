// SPDX-License-Identifier: MIT
// Does the gradient checker see? Every op's backward is broken on purpose, each gradient that it
// writes in each of several ways, and every time the checker has to say so.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/gradient_check.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/add_losses.hpp>
#include <halfstep/autograd/ops/attention.hpp>
#include <halfstep/autograd/ops/cast.hpp>
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
namespace ops = hs::autograd::ops;
using hs::autograd::NoPayload;

namespace {

/// What goes wrong: nothing, the sign, a factor of 2, everything lost, one element lost (the
/// largest: a dropped term), each element where its neighbour belongs (a transpose), a hundredth
/// too much.
enum class Fault { none, sign, doubled, zero, one_lost, shifted, one_percent };
constexpr std::initializer_list<Fault> faults{Fault::sign,     Fault::doubled, Fault::zero,
                                              Fault::one_lost, Fault::shifted, Fault::one_percent};

/// Of which of the gradients that a backward writes: inputs first, then parameters.
struct Mutation {
  Fault fault = Fault::none;
  std::size_t target = 0;
  std::size_t targets = 0;  ///< that the op turned out to have
};
Mutation mutation;

void break_gradient(double* g, std::int64_t n) {
  double factor = 1.0;
  switch (mutation.fault) {
    case Fault::none:
      break;
    case Fault::sign:
      factor = -1.0;
      break;
    case Fault::doubled:
      factor = 2.0;
      break;
    case Fault::zero:
      factor = 0.0;
      break;
    case Fault::one_percent:
      factor = 1.01;
      break;
    case Fault::one_lost:
      *std::max_element(g, g + n, [](double a, double b) { return std::fabs(a) < std::fabs(b); }) =
          0.0;
      break;
    case Fault::shifted:
      if (n == 1) factor = 3.0;
      std::rotate(g, g + n / 2, g + n);
      break;
  }
  std::for_each(g, g + n, [factor](double& x) { x *= factor; });
}

/// The table of Real with a backward that calls the right one and then breaks one of its gradients.
template <class Real>
struct Mutant {
  static void backward(hs::autograd::Backward& c) {
    Real::backward(c);
    std::size_t target = 0;
    const auto next = [&](double* g, std::int64_t n) {
      if (g != nullptr && target++ == mutation.target) break_gradient(g, n);
    };
    for (std::size_t i = 0; i < c.inputs(); ++i) {
      double* g = c.input_gradient<double>(i);
      // An op that passes its output's gradient on has none of its own.
      if (g == nullptr && c.input_wants_gradient(i))
        g = const_cast<double*>(c.output_gradient<double>());
      next(g, c.input_shape(i).elements());
    }
    for (std::size_t i = 0; i < c.parameters(); ++i)
      next(c.parameter_gradient<double>(i).data, c.parameter_info(i).elements);
    mutation.targets = target;
  }
  static constexpr hs::autograd::Op op{Real::op.name, &Real::infer, &Real::forward, &backward};
};

using Result = hs::Variable<double>;
template <class Real, class P = NoPayload>
Result mutant(hs::Tape& t, std::initializer_list<hs::AnyVariable> inputs,
              std::initializer_list<hs::AnyParameter> parameters, const P& payload = {}) {
  return t.handle<double>(t.record(Mutant<Real>::op, inputs, parameters, payload));
}

using op_inputs::Inputs;
using op_inputs::numbers;
using Model = Inputs<double>;
hs::Loss judge(Result out) { return hs::squared_error(out, numbers(out.shape().elements())); }

/// The loss whose value is already on the tape. Its count has no part in a gradient.
hs::Loss loss(hs::Tape& t, Result sum) { return {sum, t.value(sum)[0], 1.0}; }

const std::vector<std::int32_t> tokens{0, 3, 3, 1, 6, 0, 3, 2, 5, 4};
const std::vector<std::int32_t> targets{2, 0, -1, 6, 1, 2, 2, -1, 3, 5};

struct Subject {
  hs::Shape shape;
  std::int64_t out;
  std::function<hs::Loss(const Model&, hs::Tape&)> loss;
  std::size_t targets;  ///< gradients that the backward writes
};

const std::map<std::string, std::vector<Subject>> subjects{
    {"add",
     {{{3, 5},
       1,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Add<double>>(t, {use(t, m.x), use(t, m.y)}, {}));
       },
       2}}},
    {"add_losses",
     {{{3, 5},
       1,
       [](const Model& m, hs::Tape& t) {
         return loss(t, mutant<ops::AddLosses>(
                            t, {judge(use(t, m.x)).variable, judge(use(t, m.y)).variable}, {}));
       },
       2}}},
    {"attention",
     {{{2, 5, 18},
       1,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::Attention<double>;
         return judge(mutant<Op>(t, {use(t, m.x)}, {}, Op::Payload{3, 0.0F, 0, 0}));
       },
       1}}},
    {"cast",
     {{{3, 5},
       1,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Cast<double, double>>(t, {use(t, m.x)}, {}));
       },
       1}}},
    {"cross_entropy",
     {{{10, 7},
       1,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::CrossEntropy<double>;
         hs::kernels::CrossEntropySum sum;
         return loss(t,
                     mutant<Op>(t, {use(t, m.x)}, {}, Op::Payload{targets.data(), 10, -1, &sum}));
       },
       1}}},
    {"dropout",
     {{{2, 9},
       1,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::Dropout<double>;
         return judge(mutant<Op>(t, {use(t, m.x)}, {}, Op::Payload{0.4F, 5, 99}));
       },
       1}}},
    {"embedding",
     {{{7, 5},
       1,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::Embedding<double>;
         return judge(mutant<Op>(t, {}, {m.x, m.y}, Op::Payload{tokens.data(), 2, 5}));
       },
       2}}},
    {"gelu",
     {{{4, 9},
       1,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Gelu<double, hs::kernels::GeluForm::tanh>>(t, {use(t, m.x)}, {}));
       },
       1},
      {{4, 9},
       1,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Gelu<double, hs::kernels::GeluForm::erf>>(t, {use(t, m.x)}, {}));
       },
       1}}},
    {"head_loss",
     {{{10, 5},
       7,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::HeadLoss<double>;
         hs::kernels::CrossEntropySum sum;
         return loss(t, mutant<Op>(t, {use(t, m.x)}, {m.w},
                                   Op::Payload{targets.data(), 10, -1, t.seed(), &sum}));
       },
       2}}},
    {"layer_norm",
     {{{5, 7},
       7,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::LayerNorm<double>;
         return judge(mutant<Op>(t, {use(t, m.x)}, {m.b, m.c}, Op::Payload{1e-5}));
       },
       3}}},
    {"linear",
     {{{6, 5},
       4,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Linear<double, double>>(t, {use(t, m.x)}, {m.w, m.b}));
       },
       3}}},
    {"multiply",
     {{{3, 5},
       1,
       [](const Model& m, hs::Tape& t) {
         return judge(mutant<ops::Multiply<double>>(t, {use(t, m.x), use(t, m.y)}, {}));
       },
       2}}},
    {"rms_norm",
     {{{5, 7},
       7,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::RmsNorm<double>;
         return judge(mutant<Op>(t, {use(t, m.x)}, {m.b}, Op::Payload{1e-5}));
       },
       2}}},
    {"squared_error",
     {{{3, 13},
       1,
       [](const Model& m, hs::Tape& t) {
         using Op = ops::SquaredError<double>;
         const auto wanted = numbers(39);
         return loss(t, mutant<Op>(t, {use(t, m.x)}, {}, Op::Payload{wanted.data(), 39}));
       },
       1}}},
    {"use",
     {{{3, 5},
       1,
       [](const Model& m, hs::Tape& t) { return judge(mutant<ops::Use<double>>(t, {}, {m.x})); },
       1}}},
};

hs::GradientReport check(const Subject& subject, Fault fault, std::size_t target) {
  mutation = {fault, target, 0};
  hs::Runtime runtime({.threads = 1, .seed = 5});
  return hs::gradient_check<Inputs>(runtime, {.elements = 180, .micro = {0, 0, 6, 2}}, subject.loss,
                                    subject.shape, subject.out);
}

}  // namespace

TEST(Mutation, OfAnyGradientOfAnyOpInTheTreeIsCaught) {
  std::size_t seen = 0, caught = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(HALFSTEP_SOURCE_DIR "/include/halfstep/autograd/ops")) {
    const std::string name = entry.path().stem().string();
    if (name == "constant") continue;  // has no gradient
    ++seen;
    const auto found = subjects.find(name);
    ASSERT_NE(found, subjects.end()) << "autograd/ops/" << name << ".hpp is not mutated";
    for (const Subject& subject : found->second) {
      EXPECT_TRUE(check(subject, Fault::none, 0).passed) << name << " as it is";
      ASSERT_EQ(mutation.targets, subject.targets) << name;
      for (std::size_t target = 0; target < subject.targets; ++target) {
        for (const Fault fault : faults) {
          const auto report = check(subject, fault, target);
          EXPECT_FALSE(report.passed)
              << name << ": fault " << static_cast<int>(fault) << " of gradient " << target;
          caught += report.passed ? 0 : 1;
        }
      }
    }
  }
  EXPECT_EQ(seen, subjects.size());
  std::printf("%zu ops, %zu faults caught\n", seen, caught);
}
