// SPDX-License-Identifier: MIT
// Second derivatives: every op's tangents against differences of gradients, known Hessians,
// products through segments, Gauss-Newton, what is left in memory, and what a product costs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/hessian.hpp>
#include <halfstep/autograd/hessian_check.hpp>
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
#include <halfstep/nn/gpt.hpp>

#include "op_inputs.hpp"

namespace hs = halfstep;

namespace {

using op_inputs::Inputs;
using op_inputs::numbers;

const std::vector<std::int32_t> tokens{0, 3, 3, 1, 6, 0, 3, 2, 5, 4};
const std::vector<std::int32_t> targets{2, 0, -1, 6, 1, 2, 2, -1, 3, 5};

template <class T>
hs::Loss judge(hs::Variable<T> out) {
  return hs::squared_error(out, numbers(out.shape().elements()));
}
template <class F>
hs::GradientReport check(hs::Shape shape, std::int64_t out, const F& f) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  return hs::hessian_check<Inputs>(runtime, {.micro = {0, 0, 6, 2}}, f, shape, out);
}

// Every op's outputs pass through a square (a loss of their own, or judge), so that each of its
// first derivatives shows in the second too.
const std::map<std::string, std::function<std::vector<hs::GradientReport>()>> checks{
    {"add",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         const auto x = use(t, m.x);
         return judge(x + use(t, m.y) * x + x);
       })};
     }},
    {"add_losses",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(use(t, m.x)) + judge(use(t, m.y) * use(t, m.x));
       })};
     }},
    {"attention",
     [] {
       std::vector<hs::GradientReport> reports;
       for (const std::int64_t length : {1, 5, 70}) {
         reports.push_back(check({2, length, 18}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
           return judge(attention(use(t, m.x) * use(t, m.y), 3));
         }));
       }
       reports.push_back(check({2, 9, 18}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(attention(use(t, m.x), 3, 0.4F, 99));
       }));
       return reports;
     }},
    {"cast",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         const auto x = hs::cast<T>(use(t, m.x));
         return judge(x * x);
       })};
     }},
    {"constant",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(use(t, m.x) * hs::constant<T>(t, {3, 5}, numbers(15)));
       })};
     }},
    {"cross_entropy",
     [] {
       return std::vector{check({10, 7}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return cross_entropy(use(t, m.x), targets);
       })};
     }},
    {"dropout",
     [] {
       return std::vector{check({2, 9}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(dropout(use(t, m.x) * use(t, m.y), 0.4F, 99));
       })};
     }},
    {"embedding",
     [] {
       return std::vector{
           check({7, 5}, 1,
                 []<class T>(const Inputs<T>& m, hs::Tape& t) {
                   return judge(gelu(embedding(t, m.x, tokens)));
                 }),
           check({7, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
             return judge(gelu(embedding(t, m.x, m.y, tokens)) + embedding(t, m.y, m.x, tokens));
           })};
     }},
    {"gelu",
     [] {
       return std::vector{
           check({4, 9}, 1,
                 []<class T>(const Inputs<T>& m, hs::Tape& t) { return judge(gelu(use(t, m.x))); }),
           check({4, 9}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
             return judge(gelu_erf(use(t, m.x)));
           })};
     }},
    {"head_loss",
     [] {
       return std::vector{check({10, 5}, 7, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return head_loss(use(t, m.x), m.w, targets) +
                head_loss(use(t, m.y), m.w, std::vector<std::int32_t>(10, 6));
       })};
     }},
    {"layer_norm",
     [] {
       return std::vector{
           check({5, 7}, 7,
                 []<class T>(const Inputs<T>& m, hs::Tape& t) {
                   return judge(layer_norm(use(t, m.x), m.b));
                 }),
           check({5, 7}, 7, []<class T>(const Inputs<T>& m, hs::Tape& t) {
             return judge(gelu(layer_norm(layer_norm(use(t, m.x), m.b, m.c), m.b, m.c)));  // tied
           })};
     }},
    {"linear",
     [] {
       return std::vector{check({3, 2, 5}, 4,
                                []<class T>(const Inputs<T>& m, hs::Tape& t) {
                                  return judge(linear(use(t, m.x), m.w));
                                }),
                          check({6, 5}, 4,
                                []<class T>(const Inputs<T>& m, hs::Tape& t) {
                                  return judge(logits(use(t, m.x), m.w));
                                }),
                          check({6, 5}, 5, []<class T>(const Inputs<T>& m, hs::Tape& t) {
                            return judge(linear(linear(use(t, m.x), m.w, m.b), m.w, m.b));  // tied
                          })};
     }},
    {"multiply",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         const auto x = use(t, m.x);
         return judge(x * x * use(t, m.y));
       })};
     }},
    {"rms_norm",
     [] {
       return std::vector{check({5, 7}, 7, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(gelu(rms_norm(rms_norm(use(t, m.x), m.b), m.b)));  // tied
       })};
     }},
    {"squared_error",
     [] {
       return std::vector{check({3, 40}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(use(t, m.x));
       })};
     }},
    {"use",
     [] {
       return std::vector{check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
         return judge(use(t, m.x) * use(t, m.x));
       })};
     }},
};

}  // namespace

TEST(Hessian, OfEveryOpInTheTreeIsThatOfDifferencesOfItsGradient) {
  std::size_t seen = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(HALFSTEP_SOURCE_DIR "/include/halfstep/autograd/ops")) {
    const std::string name = entry.path().stem().string();
    ++seen;
    const auto found = checks.find(name);
    ASSERT_NE(found, checks.end())
        << "autograd/ops/" << name << ".hpp has no check of second derivatives";
    for (const auto& report : found->second()) {
      EXPECT_TRUE(report.passed) << name << ": " << report.where << " is off by " << report.worst;
      EXPECT_EQ(report.rows.size(), 5U);
      bool reached = false;
      for (const auto& row : report.rows)
        reached = reached || row.numeric != 0.0;
      EXPECT_TRUE(reached) << name << ": no second derivative at all";
    }
  }
  EXPECT_EQ(seen, checks.size());
  std::printf("%zu ops, 0 without a check of second derivatives\n", seen);
}

namespace {

/// x^3, an op of the user's own: by DualOp, with the tangent of its gradient times `factor`.
template <class T, int factor>
struct Cube {
  static void infer(hs::autograd::Infer& c) { c.output<T>(c.input_shape(0)); }
  static void forward(hs::autograd::Forward& c) {
    const T* const x = c.input<T>(0);
    for (std::int64_t i = 0; i < c.output_shape().elements(); ++i)
      c.output<T>()[i] = x[i] * x[i] * x[i];
  }
  static void backward(hs::autograd::Backward& c) {
    const T* const x = c.input<T>(0);
    for (std::int64_t i = 0; i < c.output_shape().elements(); ++i) {
      c.input_gradient<T>(0)[i] = T(3) * x[i] * x[i] * c.output_gradient<T>()[i];
    }
  }
  static void forward_tangents(hs::autograd::Forward& c) {
    const auto x = hs::autograd::input_duals<T>(c, 0);
    hs::autograd::write_tangents(c.compute(), c.output_shape().elements(), c.output<T>(0, 1),
                                 [=](std::int64_t i) { return x[i] * x[i] * x[i]; });
  }
  static void backward_tangents(hs::autograd::Backward& c) {
    const auto x = hs::autograd::input_duals<T>(c, 0), dy = hs::autograd::gradient_duals<T>(c);
    hs::autograd::write_tangents(
        c.compute(), c.output_shape().elements(), c.input_gradient<T>(0, 1),
        [=](std::int64_t i) { return hs::dual<T>(T(factor)) * x[i] * x[i] * dy[i]; });
  }
  static constexpr hs::autograd::Op op{"cube", &infer, &forward, &backward};
};
template <int factor>
hs::GradientReport check_cube() {
  return check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
    using Op = Cube<hs::numeric::plane_t<T>, factor>;
    const auto x = use(t, m.x);
    return judge(
        t.handle<T>(t.record(hs::autograd::op_on<T, Op>(), {x}, {}, hs::autograd::NoPayload{})));
  });
}

}  // namespace

// Far out GELU is a line: tangents are finite, and that of its slope is 0.
TEST(Hessian, OfGeluIsFiniteInFloatHoweverFarOut) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const hs::Shape shape{101};
  const Inputs<float> model(parameters, shape, std::int64_t{1});
  for (std::size_t i = 0; i < 101; ++i)
    parameters.write(model.x.id)[i] = static_cast<float>(i) * 0.4F - 20.0F;
  auto curvature = hs::curvature<Inputs, float>(
      parameters, {},
      []<class T>(const Inputs<T>& m, hs::Tape& t) {
        return judge(gelu(use(t, m.x))) + judge(gelu_erf(use(t, m.x)));
      },
      shape, std::int64_t{1});
  const auto product = curvature.hessian_vector_product(std::vector<float>(curvature.size(), 1.0F));
  const auto x = curvature.part(product, "x");
  for (const float value : x)
    EXPECT_TRUE(std::isfinite(value)) << value;
  EXPECT_EQ(x.front(), 0.0F);
  EXPECT_EQ(x.back(), 4.0F) << "of two squares";
}

TEST(Hessian, OfAUsersOwnOpIsAcceptedWhenRightAndRefusedWhenWrong) {
  EXPECT_TRUE(check_cube<3>().passed);
  const auto wrong = check_cube<2>();
  EXPECT_FALSE(wrong.passed);
  EXPECT_EQ(wrong.where.substr(0, 44), "the derivative along x of the gradient of x[");
  EXPECT_THROW(wrong.require(), hs::NumericError);
}

namespace {

/// A loss times 3, or squared.
template <bool squared>
struct OfALoss {
  static void infer(hs::autograd::Infer& c) {
    c.output<double>({});
    if (!squared) c.backward_reads({}, {});
  }
  static void forward(hs::autograd::Forward& c) {
    const double loss = *c.input<double>(0);
    *c.output<double>() = loss * (squared ? loss : 3.0);
  }
  static void backward(hs::autograd::Backward& c) {
    *c.input_gradient<double>(0) =
        *c.output_gradient<double>() * (squared ? 2.0 * *c.input<double>(0) : 3.0);
  }
  static constexpr hs::autograd::Op op{"of_a_loss", &infer, &forward, &backward};
};
template <bool squared>
hs::GradientReport check_of_a_loss() {
  return check({3, 5}, 1, []<class T>(const Inputs<T>& m, hs::Tape& t) {
    const auto x = use(t, m.x);
    const auto loss = judge(x * x) + judge(x);
    const auto id = t.record(OfALoss<squared>::op, {loss.variable}, {}, hs::autograd::NoPayload{});
    return hs::Loss{t.handle<double>(id), 0.0, loss.count};
  });
}

}  // namespace

// A loss has no tangent: what is not linear in it would silently have another Hessian.
TEST(Hessian, OfAMultipleOfALossIsRightAndOfItsSquareRefused) {
  EXPECT_TRUE(check_of_a_loss<false>().passed);
  try {
    (void)check_of_a_loss<true>();
    ADD_FAILURE() << "a product without the slope of the square";
  } catch (const hs::StateError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 40), "of_a_loss: a loss of duals has no tangen");
  }
}

namespace {

/// (1 - x)^2 + 100 (y - x^2)^2.
template <class T>
struct Rosenbrock {
  hs::Parameter<T> x, y;
  explicit Rosenbrock(hs::Scope<T> s)
      : x(s.add("x", {1}, hs::Role::weight, hs::Init::constant(1.0F))),
        y(s.add("y", {1}, hs::Role::weight, hs::Init::constant(1.0F))) {}
};
const auto rosenbrock = []<class T>(const Rosenbrock<T>& m, hs::Tape& t) {
  const auto number = [&](float value) { return hs::constant<T>(t, {1}, std::vector{value}); };
  const auto x = use(t, m.x);
  return squared_error(x, std::vector{1.0F}) +
         squared_error(number(10.0F) * use(t, m.y) + number(-10.0F) * x * x, std::vector{0.0F});
};

}  // namespace

TEST(Hessian, OfRosenbrocksFunctionIsTheOneInTheBooks) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<double> parameters(runtime);
  const Rosenbrock<double> model(parameters);
  auto curvature = hs::curvature<Rosenbrock>(parameters, {}, rosenbrock);
  const auto times = [&](double a, double b) {
    return curvature.hessian_vector_product(std::vector{a, b});
  };
  EXPECT_EQ(times(1, 0), (std::vector{802.0, -400.0}));
  EXPECT_EQ(times(0, 1), (std::vector{-400.0, 200.0}));
  EXPECT_EQ(times(0.5, -2), (std::vector{1201.0, -600.0}));
  EXPECT_EQ(curvature.gradient(), (std::vector{0.0, 0.0}));

  // The values that the parameters have now, and not those of its making.
  parameters.write(model.x.id)[0] = -1.2;
  const auto product = times(0.5, -2);
  EXPECT_NEAR(product[0], -295.0, 1e-12);
  EXPECT_NEAR(product[1], -160.0, 1e-12);
  const std::vector<std::vector<double>> both{{1, 0}, {0, 1}};
  EXPECT_NEAR(curvature.hessian_vector_products(both)[0][0], 1330.0, 1e-12);
  EXPECT_EQ(curvature.hessian_vector_products(both)[1], times(0, 1));
  EXPECT_EQ(curvature.part(product, "y")[0], product[1]);
  EXPECT_THROW((void)curvature.hessian_vector_product(std::vector{1.0}), hs::ShapeError);
  EXPECT_THROW((void)curvature.part(product, "z"), hs::OptionError);
  (void)curvature.gauss_newton_vector_product(std::vector{1.0, 0.0});
  EXPECT_THROW((void)curvature.gradient(), hs::StateError);
}

namespace {

/// x W' with x [rows, in]: the Hessian of half the squared error, by W, is x' x for each output.
template <class T>
struct Regression {
  hs::Parameter<T> w;
  Regression(hs::Scope<T> s, std::int64_t in, std::int64_t out)
      : w(s.add("w", {out, in}, hs::Role::weight, hs::Init::normal(1.0F))) {}
};

}  // namespace

TEST(Hessian, OfALinearModelIsTheProductOfItsInputsAndTheGaussNewtonMatrix) {
  constexpr std::int64_t rows = 6, in = 3, out = 2;
  std::vector<float> x(rows * in);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 5) - 2.0F;
  hs::Runtime runtime({.threads = 2});
  hs::Parameters<float> parameters(runtime);
  const Regression<float> model(parameters, in, out);
  auto curvature = hs::curvature<Regression>(
      parameters, {},
      [&]<class T>(const Regression<T>& m, hs::Tape& t) {
        return judge(linear(hs::constant<T>(t, {rows, in}, x), m.w));
      },
      in, out);
  const std::vector<double> v{1, -2, 3, 4, 0, -5};
  std::vector<double> expected(out * in, 0.0);
  for (std::size_t o = 0; o < out; ++o) {
    for (std::size_t r = 0; r < rows; ++r) {
      double along = 0.0;
      for (std::size_t j = 0; j < in; ++j)
        along += static_cast<double>(x[r * in + j]) * v[o * in + j];
      for (std::size_t j = 0; j < in; ++j)
        expected[o * in + j] += 2.0 * static_cast<double>(x[r * in + j]) * along;
    }
  }
  EXPECT_EQ(curvature.hessian_vector_product(v), expected);
  EXPECT_EQ(curvature.gauss_newton_vector_product(v), expected);
  EXPECT_EQ(curvature.count(), 12.0);
}

namespace {

const hs::nn::GptOptions small{
    .vocabulary = 11, .context = 6, .layers = 3, .heads = 2, .width = 8, .dropout = 0.1F};
const hs::MicroBatch micro{4, 1, 10, 2};
const std::vector<std::int32_t> text{1, 4, 2, 10, 0, 4, 3, 3, 9, 8, 7, 1};
const std::vector<std::int32_t> next{4, 2, 10, 0, 4, -1, 3, 9, 8, 7, 1, 5};

const auto gpt_loss = []<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) {
  return gpt.loss(tape, text, next);
};
/// All but the last block in segments.
std::int64_t replayed = 0;
const auto segmented_loss = []<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) {
  auto x = gpt.embed(tape, text);
  x = hs::checkpoint(gpt.blocks[0], x);
  x = hs::checkpoint(gpt.blocks[1], x);
  replayed = tape.replayed_ops();
  return gpt.loss(gpt.blocks[2](x), next);
};

template <class S>
std::vector<S> direction(std::size_t size, std::uint64_t stream) {
  std::vector<S> v(size);
  for (std::size_t i = 0; i < size; ++i)
    v[i] = static_cast<S>(hs::numeric::normal(1, stream, i));
  return v;
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// A store with a model whose biases and gains are not the initial ones.
template <class T>
struct Store {
  hs::Runtime runtime{{.threads = 2, .seed = 7}};
  hs::Parameters<T> parameters{runtime};
  hs::nn::Gpt<T> gpt{parameters, small};
  Store() {
    std::uint64_t i = 0;
    for (T& w : parameters.write_all())
      w += static_cast<T>(0.2F * hs::numeric::normal(3, 3, i++));
  }
};

template <class S>
void values_have_the_bits_of_the_plain_pass() {
  Store<S> store;
  auto& parameters = store.parameters;
  hs::Tape tape(store.runtime);
  hs::Gradients<S> gradients(parameters, tape);
  tape.begin(micro);
  const auto loss = gpt_loss(store.gpt, tape);
  tape.backward(loss);
  std::vector<S> plain;
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    plain.insert(plain.end(), gradients[hs::ParameterId{p}].begin(),
                 gradients[hs::ParameterId{p}].end());
  }
  auto curvature = hs::curvature<hs::nn::Gpt, S>(parameters, micro, gpt_loss, small);
  const auto product = curvature.hessian_vector_product(direction<S>(plain.size(), 1));
  EXPECT_EQ(curvature.gradient(), plain);
  EXPECT_EQ(curvature.sum(), loss.sum);
  EXPECT_NE(product, plain);
  EXPECT_NE(curvature.hessian_vector_product(direction<S>(plain.size(), 2)), product)
      << "the vector has no part in it";
  EXPECT_EQ(curvature.gradient(), plain);
}

}  // namespace

TEST(Hessian, ValuesAndGradientsOfDualsHaveTheBitsOfThePlainPassInDouble) {
  values_have_the_bits_of_the_plain_pass<double>();
}
TEST(Hessian, ValuesAndGradientsOfDualsHaveTheBitsOfThePlainPassInFloat) {
  values_have_the_bits_of_the_plain_pass<float>();
}

TEST(Hessian, OfAGptPassesTheCheckDropoutAndAll) {
  hs::Runtime runtime({.threads = 2, .seed = 5});
  hs::nn::GptOptions options = small;
  options.layers = 1;
  // Embeddings of deviation 0.1 in front of a norm bend much within a step of 1e-3.
  hs::hessian_check<hs::nn::Gpt>(runtime, {.step = 1e-4, .micro = micro}, gpt_loss, options)
      .require();
}

TEST(Hessian, IsSymmetricAndLinearAndTheGaussNewtonMatrixHasNoNegativeCurvature) {
  Store<double> store;
  auto curvature = hs::curvature<hs::nn::Gpt>(store.parameters, micro, gpt_loss, small);
  const auto u = direction<double>(curvature.size(), 1), v = direction<double>(curvature.size(), 2);
  const auto Hu = curvature.hessian_vector_product(u), Hv = curvature.hessian_vector_product(v);
  const auto size = std::sqrt(dot(Hu, Hu) * dot(v, v));
  EXPECT_NEAR(dot(v, Hu), dot(u, Hv), 1e-13 * size);
  std::vector<double> sum(u.size());
  for (std::size_t i = 0; i < u.size(); ++i)
    sum[i] = 2.0 * u[i] - v[i];
  const auto Hsum = curvature.hessian_vector_product(sum);
  for (std::size_t i = 0; i < u.size(); ++i)
    ASSERT_NEAR(Hsum[i], 2.0 * Hu[i] - Hv[i], 1e-11) << i;
  const auto Gu = curvature.gauss_newton_vector_product(u),
             Gv = curvature.gauss_newton_vector_product(v);
  EXPECT_NEAR(dot(v, Gu), dot(u, Gv), 1e-13 * size);
  EXPECT_GT(dot(u, Gu), 0.0);
  EXPECT_GT(dot(v, Gv), 0.0);
  EXPECT_NE(Gu, Hu);
  EXPECT_EQ(curvature.hessian_vector_product(u), Hu)
      << "a Gauss-Newton product changes those that follow";
}

TEST(Hessian, ThroughSegmentsHasTheSameBits) {
  Store<float> store;
  auto plain = hs::curvature<hs::nn::Gpt, double>(store.parameters, micro, gpt_loss, small);
  auto segmented =
      hs::curvature<hs::nn::Gpt, double>(store.parameters, micro, segmented_loss, small);
  const auto v = direction<double>(plain.size(), 1);
  EXPECT_EQ(segmented.hessian_vector_product(v), plain.hessian_vector_product(v));
  EXPECT_EQ(segmented.gradient(), plain.gradient());
  EXPECT_EQ(segmented.gauss_newton_vector_product(v), plain.gauss_newton_vector_product(v));
  (void)segmented.hessian_vector_product(v);
  EXPECT_GT(replayed, 20) << "no segment ran again";
}

TEST(Hessian, AThousandProductsLeaveNothingBehind) {
  Store<float> store;
  auto& ledger = store.runtime.ledger();
  const auto before = ledger.live();
  {
    auto curvature =
        hs::curvature<hs::nn::Gpt, float>(store.parameters, micro, segmented_loss, small);
    const auto v = direction<float>(curvature.size(), 1);
    const auto first = curvature.hessian_vector_product(v);
    (void)curvature.gauss_newton_vector_product(v);
    const auto live = ledger.live();
    EXPECT_EQ(ledger.live(hs::core::Category::activations), 0);
    EXPECT_EQ(ledger.live(hs::core::Category::recompute), 0);
    EXPECT_EQ(ledger.live(hs::core::Category::workspace), 0);
    ledger.restart_peaks();
    std::int64_t peak = 0;
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(curvature.hessian_vector_product(v), first);
      if (i == 0) peak = ledger.peak();
    }
    EXPECT_EQ(ledger.live(), live);
    EXPECT_EQ(ledger.peak(), peak);
    EXPECT_GT(peak, live);
  }
  EXPECT_EQ(ledger.live(), before);
}

TEST(Hessian, KeepsTwiceWhatAGradientKeepsForASegment) {
  const auto peak = [](const auto& pass) {
    Store<double> store;
    auto& ledger = store.runtime.ledger();
    std::int64_t held = -1;
    pass(store, [&](hs::Tape&) { held = ledger.live(hs::core::Category::activations); });
    return held;
  };
  // What lives between the segments: inputs of the two, output of the second.
  static std::function<void(hs::Tape&)> look;
  const auto loss = []<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) {
    auto x = hs::constant<T>(tape, {2, 6, 8}, numbers(96));
    x = hs::checkpoint(gpt.blocks[0], x);
    x = hs::checkpoint(gpt.blocks[1], x);
    look(tape);
    return judge(x);
  };
  const auto real = peak([&](auto& store, const auto& note) {
    look = note;
    hs::Tape tape(store.runtime);
    hs::Gradients<double> gradients(store.parameters, tape);
    tape.begin(micro);
    tape.backward(loss(store.gpt, tape));
  });
  const auto dual = peak([&](auto& store, const auto& note) {
    look = note;
    auto curvature = hs::curvature<hs::nn::Gpt>(store.parameters, micro, loss, small);
    (void)curvature.hessian_vector_product(direction<double>(curvature.size(), 1));
  });
  EXPECT_EQ(real, 3 * 96 * 8);
  EXPECT_EQ(dual, 2 * real);
}

TEST(Hessian, AnExceptionInALossLeavesTheNextProductRight) {
  Store<double> store;
  bool fails = false;
  auto curvature = hs::curvature<hs::nn::Gpt>(
      store.parameters, micro,
      [&]<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) {
        const auto x = gpt.embed(tape, text);
        if (fails) throw std::runtime_error("the user's");
        return gpt.loss(gpt.blocks[0](x), next);
      },
      small);
  const auto v = direction<double>(curvature.size(), 1);
  const auto first = curvature.hessian_vector_product(v);
  fails = true;
  EXPECT_THROW((void)curvature.hessian_vector_product(v), std::runtime_error);
  EXPECT_THROW((void)curvature.gauss_newton_vector_product(v), std::runtime_error);
  fails = false;
  EXPECT_EQ(curvature.hessian_vector_product(v), first);
}

// The Hessian of cross-entropy by its logits is diag(p) - p p', row by row; it does not hold logits
// more often than the tape does.
TEST(Hessian, OfCrossEntropyAloneIsTheClosedFormAndItsOwnGaussNewtonMatrix) {
  hs::Runtime runtime({.threads = 1, .seed = 5});
  hs::Parameters<double> parameters(runtime);
  const hs::Shape shape{10, 7};
  const Inputs<double> model(parameters, shape, std::int64_t{1});
  auto curvature = hs::curvature<Inputs>(
      parameters, micro,
      []<class T>(const Inputs<T>& m, hs::Tape& t) { return cross_entropy(use(t, m.x), targets); },
      shape, std::int64_t{1});
  const auto v = direction<double>(curvature.size(), 1);
  const auto product = curvature.hessian_vector_product(v);
  EXPECT_EQ(curvature.gauss_newton_vector_product(v), product);
  const auto x = parameters.values(model.x);
  for (std::size_t row = 0; row < 10; ++row) {
    double whole = 0.0, along = 0.0;
    for (std::size_t j = 0; j < 7; ++j)
      whole += std::exp(x[row * 7 + j]);
    for (std::size_t j = 0; j < 7; ++j)
      along += std::exp(x[row * 7 + j]) / whole * v[row * 7 + j];
    for (std::size_t j = 0; j < 7; ++j) {
      const double p = targets[row] < 0 ? 0.0 : std::exp(x[row * 7 + j]) / whole;
      ASSERT_NEAR(product[row * 7 + j], p * (v[row * 7 + j] - along), 1e-14) << row << ' ' << j;
    }
  }
}

TEST(Timing, AHessianVectorProductCostsAtMostFourGradients) {
  using Clock = std::chrono::steady_clock;
  const hs::nn::GptOptions options{
      .vocabulary = 256, .context = 128, .layers = 2, .heads = 4, .width = 256};
  const hs::MicroBatch batch{0, 0, 0, 8};
  std::vector<std::int32_t> ids(8 * 128), wanted(8 * 128);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 7919 % 256), wanted[i] = (ids[i] + 31) % 256;
  const auto loss = [&]<class T>(const hs::nn::Gpt<T>& gpt, hs::Tape& tape) {
    return gpt.loss(tape, ids, wanted);
  };
  hs::Runtime runtime({.threads = 1, .seed = 5});
  hs::Parameters<float> parameters(runtime);
  const hs::nn::Gpt<float> gpt(parameters, options);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  auto curvature = hs::curvature<hs::nn::Gpt, float>(parameters, batch, loss, options);
  const auto v = direction<float>(curvature.size(), 1);
  const auto seconds = [](const auto& run) {
    const auto start = Clock::now();
    run();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  double hessian = 1e9, gauss_newton = 1e9;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double gradient = seconds([&] { tape.begin(batch), tape.backward(loss(gpt, tape)); });
    const double product = seconds([&] { (void)curvature.hessian_vector_product(v); });
    const double plain = seconds([&] { (void)curvature.gauss_newton_vector_product(v); });
    if (attempt == 0) continue;  // allocates
    hessian = std::min(hessian, product / gradient),
    gauss_newton = std::min(gauss_newton, plain / gradient);
  }
  std::printf("a Hessian-vector product costs %.2f gradients, a Gauss-Newton-vector product %.2f\n",
              hessian, gauss_newton);
  EXPECT_LE(hessian, 4.0);
  EXPECT_LE(gauss_newton, 3.0);
}
