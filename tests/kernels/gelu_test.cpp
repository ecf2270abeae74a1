// SPDX-License-Identifier: MIT
#include <halfstep/kernels/gelu.hpp>

#include <cmath>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
using halfstep::kernels::GeluForm;

long double tanh_form(long double x) {
  const long double u = 0.797884560802865355879892119868763737L * (x + 0.044715L * x * x * x);
  return 0.5L * x * (1 + std::tanh(u));
}
long double erf_form(long double x) { return 0.5L * x * (1 + std::erf(x / std::sqrt(2.0L))); }
long double slope(long double (*form)(long double), long double x) {
  const long double h = 1e-6L;
  return (form(x + h) - form(x - h)) / (2 * h);
}

template <class E, GeluForm form>
std::vector<E> forward(const Compute& compute, std::vector<E> x) {
  Guarded<E> in(x), out(static_cast<std::int64_t>(x.size()));
  halfstep::kernels::gelu_forward<E, form>(compute, in, out);
  return out.copy();
}
template <class E, GeluForm form>
std::vector<E> backward(const Compute& compute, std::vector<E> x, std::vector<E> dy) {
  Guarded<E> in(x), d(dy), out(static_cast<std::int64_t>(x.size()));
  halfstep::kernels::gelu_backward<E, form>(compute, in, d, out);
  return out.copy();
}

template <class E, GeluForm form>
std::vector<E> tangents(const Compute& compute, std::vector<E> x, std::vector<E> tx,
                        std::vector<E> dy, std::vector<E> tdy) {
  Guarded<E> a(x), b(tx), c(dy), d(tdy), out(static_cast<std::int64_t>(x.size()));
  halfstep::kernels::gelu_backward_tangents<E, form>(compute, a, b, c, d, out);
  return out.copy();
}

template <class E>
class Gelu : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Gelu, Elements);

template <class E, GeluForm form>
void check_paths(std::int64_t n) {
  const auto x = values<E>(n, 1, 6.0), dy = values<E>(n, 2);
  const auto y = forward<E, form>(portable(), x), dx = backward<E, form>(portable(), x, dy);
  every_compute([&](const Compute& compute, const std::string& name) {
    ASSERT_SAME_BITS((forward<E, form>(compute, x)), y) << name << ", " << n;
    ASSERT_SAME_BITS((backward<E, form>(compute, x, dy)), dx) << name << ", " << n;
  });
}
TYPED_TEST(Gelu, EveryPathAndThreadCountGivesThePortableBits) {
  for (const std::int64_t n : {1, 2, 15, 16, 17, 31, 33, 64, 70, 1025, 40001}) {
    check_paths<TypeParam, GeluForm::tanh>(n);
    check_paths<TypeParam, GeluForm::erf>(n);
  }
}

template <class E, GeluForm form>
void check_tangents(long double (*formula)(long double), double bound) {
  for (const std::int64_t n : {1, 15, 17, 70, 4097}) {
    const auto x = values<E>(n, 1, 6.0), tx = values<E>(n, 2), dy = values<E>(n, 3),
               tdy = values<E>(n, 4);
    const auto out = tangents<E, form>(portable(), x, tx, dy, tdy);
    every_compute([&](const Compute& compute, const std::string& name) {
      ASSERT_SAME_BITS((tangents<E, form>(compute, x, tx, dy, tdy)), out) << name << ", " << n;
    });
    for (std::size_t i = 0; i < out.size(); ++i) {
      const long double h = 1e-4L, at = x[i];
      const long double bend = (formula(at + h) - 2 * formula(at) + formula(at - h)) / (h * h);
      const long double wanted = dy[i] * bend * tx[i] + tdy[i] * slope(formula, at);
      ASSERT_NEAR(static_cast<double>(out[i]), static_cast<double>(wanted), bound)
          << "x " << x[i] << ", " << n;
    }
  }
}
TEST(GeluTangents, AreThoseOfTheBackwardAndTheSameOnEveryPath) {
  check_tangents<double, GeluForm::tanh>(&tanh_form, 1e-7);
  check_tangents<double, GeluForm::erf>(&erf_form, 1e-7);
  check_tangents<float, GeluForm::tanh>(&tanh_form, 2e-5);
  check_tangents<float, GeluForm::erf>(&erf_form, 2e-5);
  const float far = 1e30F;  // flat, and no NaN
  const auto out = tangents<float, GeluForm::tanh>(portable(), {far, -far}, {1, 1}, {1, 1}, {3, 3});
  EXPECT_EQ(out[0], 3.0F);
  EXPECT_NEAR(out[1], 0.0F, 1e-30F);
  EXPECT_EQ((tangents<float, GeluForm::tanh>(portable(), {far, -far, -20}, {1, 1, 1}, {1, 1, 1},
                                             {0, 0, 0})),
            (std::vector{0.0F, 0.0F, 0.0F}));
}

TEST(GeluValues, AreTheFormulasToTheStatedError) {
  std::vector<float> x;
  for (int i = -200000; i <= 200000; ++i)
    x.push_back(static_cast<float>(i) * 5e-5F);
  const std::vector<float> one(x.size(), 1.0F);
  const auto t = forward<float, GeluForm::tanh>(widest(), x),
             e = forward<float, GeluForm::erf>(widest(), x);
  const auto dt = backward<float, GeluForm::tanh>(widest(), x, one),
             de = backward<float, GeluForm::erf>(widest(), x, one);
  long double near = 0, far = 0, erf_error = 0, slope_error = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double want = tanh_form(x[i]);
    const long double size = std::max(std::abs(want), 0x1p-24L);
    const long double ulps = std::abs(t[i] - want) / size * 0x1p24L;
    (x[i] > -1.0F ? near : far) = std::max(x[i] > -1.0F ? near : far, ulps);
    erf_error =
        std::max(erf_error, std::abs(e[i] - erf_form(x[i])) / std::max(std::abs(x[i]), 1e-6F));
    slope_error = std::max({slope_error, std::abs(dt[i] - slope(tanh_form, x[i])),
                            std::abs(de[i] - slope(erf_form, x[i]))});
  }
  std::printf("tanh form: %.2Lf ulp above -1, %.2Lf below; erf form: %.3Lg of |x|; slopes: %.3Lg\n",
              near, far, erf_error, slope_error);
  EXPECT_LT(near, 4);
  EXPECT_LT(far, 40);
  EXPECT_LT(erf_error, 0x1p-23L);
  EXPECT_LT(slope_error, 4e-7L);
}

TEST(GeluValues, InDoubleAreTheFormulasToFifteenDigits) {
  for (const double x : {-6.0, -2.5, -0.3, 0.0, 1e-9, 0.7, 3.0, 12.0}) {
    const auto t = forward<double, GeluForm::tanh>(widest(), {x}),
               e = forward<double, GeluForm::erf>(widest(), {x});
    EXPECT_NEAR(t[0], static_cast<double>(tanh_form(x)), 1e-15 * std::max(1.0, std::abs(x)));
    EXPECT_NEAR(e[0], static_cast<double>(erf_form(x)), 1e-15 * std::max(1.0, std::abs(x)));
    EXPECT_NEAR((backward<double, GeluForm::tanh>(widest(), {x}, {1.0})[0]),
                static_cast<double>(slope(tanh_form, x)), 1e-9);
    EXPECT_NEAR((backward<double, GeluForm::erf>(widest(), {x}, {1.0})[0]),
                static_cast<double>(slope(erf_form, x)), 1e-9);
  }
}

TEST(GeluValues, NoFiniteNumberBecomesInfiniteOrNan) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 5003) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isfinite(value)) x.push_back(value);
  }
  x.insert(x.end(), {0.0F, -0.0F, 3.4e38F, -3.4e38F, -10.0F, 10.0F, -5.1F, 1e19F, -1e19F});
  const std::vector<float> one(x.size(), 1.0F);
  for (const auto& y :
       {forward<float, GeluForm::tanh>(widest(), x), forward<float, GeluForm::erf>(widest(), x),
        backward<float, GeluForm::tanh>(widest(), x, one),
        backward<float, GeluForm::erf>(widest(), x, one)}) {
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(std::isfinite(y[i])) << x[i];
  }
}

TEST(GeluValues, NanStaysNanAndTheFormsDiffer) {
  const float nan = std::nanf("");
  for (const Isa isa : halfstep::core::available_isas()) {
    const Compute compute{.isa = isa};
    EXPECT_TRUE(std::isnan((forward<float, GeluForm::tanh>(compute, {nan})[0])));
    EXPECT_TRUE(std::isnan((forward<float, GeluForm::erf>(compute, {nan})[0])));
    EXPECT_TRUE(std::isnan((backward<float, GeluForm::tanh>(compute, {nan}, {1.0F})[0])));
    EXPECT_TRUE(std::isnan((backward<float, GeluForm::erf>(compute, {nan}, {1.0F})[0])));
    EXPECT_NE((forward<float, GeluForm::tanh>(compute, {2.0F})[0]),
              (forward<float, GeluForm::erf>(compute, {2.0F})[0]));
  }
}

TEST(GeluErrors, NameTheSpansThatDiffer) {
  std::vector<float> three(3), four(4);
  EXPECT_EQ(message_of<ShapeError>([&] {
              halfstep::kernels::gelu_forward<float, GeluForm::tanh>(portable(), three, four);
            }),
            "gelu_forward: x has 3 elements but y has 4. Were they made for different batches or "
            "layers?");
  EXPECT_EQ(message_of<ShapeError>([&] {
              halfstep::kernels::gelu_backward<float, GeluForm::erf>(portable(), three, four,
                                                                     three);
            }),
            "gelu_backward: x has 3 elements but dy has 4. Were they made for different batches or "
            "layers?");
}

}  // namespace
