// SPDX-License-Identifier: MIT
#include <halfstep/kernels/layer_norm.hpp>
#include <halfstep/kernels/rms_norm.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::OptionError;
using halfstep::ShapeError;
namespace kernels = halfstep::kernels;

constexpr std::int64_t widths[] = {1, 2, 7, 15, 16, 17, 31, 33, 47, 48, 63, 64, 65, 127, 130, 259};

/// What the docstrings define, in plain loops; `centered` is LayerNorm, else RMSNorm.
template <class E>
struct Reference {
  using A = accumulator_t<E>;
  std::vector<E> y, dx;
  std::vector<A> mean, rstd, dgain, dbias;

  Reference(bool centered, std::int64_t rows, std::int64_t d, const std::vector<E>& x,
            const std::vector<E>& gain, const std::vector<E>& bias, const std::vector<E>& dy)
      : y(x.size()),
        dx(x.size()),
        mean(static_cast<std::size_t>(rows)),
        rstd(mean),
        dgain(static_cast<std::size_t>(d)),
        dbias(dgain) {
    const auto at = [](const auto& v, std::int64_t i) {
      return static_cast<A>(v[static_cast<std::size_t>(i)]);
    };
    for (std::int64_t r = 0; r < rows; ++r) {
      Lanes<A> total, squares, sum_g, sum_along;
      for (std::int64_t j = 0; j < d; ++j)
        total.add(j, at(x, r * d + j));
      const A m = centered ? total.sum() / static_cast<A>(d) : A{0};
      const auto away = [&](std::int64_t j) {
        return centered ? at(x, r * d + j) - m : at(x, r * d + j);
      };
      for (std::int64_t j = 0; j < d; ++j)
        squares.set_fma(j, away(j), away(j));
      const A s = A{1} / std::sqrt(squares.sum() / static_cast<A>(d) + static_cast<A>(1e-5));
      mean[static_cast<std::size_t>(r)] = m;
      rstd[static_cast<std::size_t>(r)] = s;
      for (std::int64_t j = 0; j < d; ++j) {
        const A xhat = times(away(j), s);
        const A value =
            bias.empty() ? times(xhat, at(gain, j)) : std::fma(xhat, at(gain, j), at(bias, j));
        y[static_cast<std::size_t>(r * d + j)] = static_cast<E>(value);
        const A g = times(at(dy, r * d + j), at(gain, j));
        sum_g.add(j, g);
        sum_along.set_fma(j, g, xhat);
        auto& dg = dgain[static_cast<std::size_t>(j)];
        dg = std::fma(at(dy, r * d + j), xhat, dg);
        dbias[static_cast<std::size_t>(j)] += at(dy, r * d + j);
      }
      const A mean_g = sum_g.sum() / static_cast<A>(d);
      const A mean_along = sum_along.sum() / static_cast<A>(d);
      for (std::int64_t j = 0; j < d; ++j) {
        const A xhat = times(away(j), s);
        A g = times(at(dy, r * d + j), at(gain, j));
        if (centered) g = g - mean_g;
        dx[static_cast<std::size_t>(r * d + j)] =
            static_cast<E>(times(std::fma(-xhat, mean_along, g), s));
      }
    }
  }
};

template <class E>
class Norm : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Norm, Elements);

TYPED_TEST(Norm, EveryPathAndThreadCountGivesTheBitsOfThePlainLoop) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  every_compute([](const Compute& compute, const std::string& name) {
    for (const std::int64_t d : widths) {
      for (const std::int64_t rows : {1, 5, 38}) {
        SCOPED_TRACE(name + ", rows " + std::to_string(rows) + ", width " + std::to_string(d));
        const auto x = values<E>(rows * d, 1, 2.0, 0.3);
        const auto gain = values<E>(d, 2, 0.5, 1.0);
        const auto bias = values<E>(d, 3);
        const auto dy = values<E>(rows * d, 4);
        for (const bool with_bias : {true, false}) {
          const Reference<E> wanted(true, rows, d, x, gain, with_bias ? bias : std::vector<E>{},
                                    dy);
          Guarded<E> gx(x), ggain(gain), gbias(with_bias ? bias : std::vector<E>{}), gdy(dy);
          Guarded<E> y(rows * d), dx(rows * d);
          Guarded<A> mean(rows), rstd(rows), dgain(d), dbias(with_bias ? d : 0);
          kernels::layer_norm<E>(compute, gx, ggain, gbias, y, mean, rstd);
          kernels::layer_norm_backward_input<E>(compute, gdy, gx, ggain, mean, rstd, dx);
          kernels::layer_norm_backward_parameters<E>(compute, gdy, gx, mean, rstd, dgain, dbias);
          ASSERT_SAME_BITS(y.copy(), wanted.y);
          ASSERT_SAME_BITS(mean.copy(), wanted.mean);
          ASSERT_SAME_BITS(rstd.copy(), wanted.rstd);
          ASSERT_SAME_BITS(dx.copy(), wanted.dx);
          ASSERT_SAME_BITS(dgain.copy(), wanted.dgain);
          if (with_bias) {
            ASSERT_SAME_BITS(dbias.copy(), wanted.dbias);
          }
        }
        const Reference<E> wanted(false, rows, d, x, gain, {}, dy);
        Guarded<E> gx(x), ggain(gain), gdy(dy), y(rows * d), dx(rows * d);
        Guarded<A> rstd(rows), dgain(d);
        kernels::rms_norm<E>(compute, gx, ggain, y, rstd);
        kernels::rms_norm_backward_input<E>(compute, gdy, gx, ggain, rstd, dx);
        kernels::rms_norm_backward_gain<E>(compute, gdy, gx, rstd, dgain);
        ASSERT_SAME_BITS(y.copy(), wanted.y);
        ASSERT_SAME_BITS(rstd.copy(), wanted.rstd);
        ASSERT_SAME_BITS(dx.copy(), wanted.dx);
        ASSERT_SAME_BITS(dgain.copy(), wanted.dgain);
      }
    }
  });
}

TYPED_TEST(Norm, AccumulateAddsTheFinishedGradientWithOneRounding) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  constexpr std::int64_t rows = 9, d = 67;
  const auto x = values<E>(rows * d, 1), gain = values<E>(d, 2, 1, 2), dy = values<E>(rows * d, 3);
  std::vector<E> y(rows * d), dx(rows * d), sum = values<E>(rows * d, 5);
  std::vector<A> mean(rows), rstd(rows), dgain(d), dbias(d), gsum = values<A>(d, 6),
                                                             bsum = values<A>(d, 7);
  const auto before = sum;
  const auto gbefore = gsum, bbefore = bsum;
  const Compute c = widest();
  kernels::layer_norm<E>(c, x, gain, {}, y, mean, rstd);
  kernels::layer_norm_backward_input<E>(c, dy, x, gain, mean, rstd, dx);
  kernels::layer_norm_backward_input<E>(c, dy, x, gain, mean, rstd, sum, true);
  kernels::layer_norm_backward_parameters<E>(c, dy, x, mean, rstd, dgain, dbias);
  kernels::layer_norm_backward_parameters<E>(c, dy, x, mean, rstd, gsum, bsum, true);
  for (std::size_t j = 0; j < d; ++j) {
    ASSERT_EQ(gsum[j], gbefore[j] + dgain[j]);
    ASSERT_EQ(bsum[j], bbefore[j] + dbias[j]);
  }
  // dx itself is rounded to E when it is stored, so the sum may differ by that rounding in 16 bits.
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double two_roundings = static_cast<double>(before[i]) + static_cast<double>(dx[i]);
    const double unit = std::is_same_v<E, bf16>   ? 0x1p-7
                        : std::is_same_v<E, fp16> ? 0x1p-10
                                                  : 0x1p-23;
    ASSERT_NEAR(static_cast<double>(sum[i]), two_roundings,
                3 * unit * (1 + std::fabs(two_roundings)));
  }
}

TEST(LayerNorm, TheDoubleBackwardIsTheSlopeOfItsForward) {
  constexpr std::int64_t rows = 3, d = 21;
  const Compute c = widest();
  auto x = values<double>(rows * d, 1), gain = values<double>(d, 2, 1, 1),
       bias = values<double>(d, 3);
  const auto dy = values<double>(rows * d, 4);
  std::vector<double> y(rows * d), dx(rows * d), mean(rows), rstd(rows), dgain(d), dbias(d);
  for (const bool centered : {true, false}) {
    const auto loss = [&] {
      if (centered) {
        kernels::layer_norm<double>(c, x, gain, bias, y, mean, rstd);
      } else {
        kernels::rms_norm<double>(c, x, gain, y, rstd);
      }
      double total = 0;
      for (std::size_t i = 0; i < y.size(); ++i)
        total += y[i] * dy[i];
      return total;
    };
    const auto slope = [&](double& at) {
      const double h = 1e-6, old = at;
      at = old + h;
      const double up = loss();
      at = old - h;
      const double down = loss();
      at = old;
      return (up - down) / (2 * h);
    };
    loss();
    if (centered) {
      kernels::layer_norm_backward_input<double>(c, dy, x, gain, mean, rstd, dx);
      kernels::layer_norm_backward_parameters<double>(c, dy, x, mean, rstd, dgain, dbias);
    } else {
      kernels::rms_norm_backward_input<double>(c, dy, x, gain, rstd, dx);
      kernels::rms_norm_backward_gain<double>(c, dy, x, rstd, dgain);
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(dx[i], slope(x[i]), 1e-8) << i;
    for (std::size_t j = 0; j < d; ++j)
      ASSERT_NEAR(dgain[j], slope(gain[j]), 1e-8) << j;
    if (!centered) continue;
    for (std::size_t j = 0; j < d; ++j)
      ASSERT_NEAR(dbias[j], slope(bias[j]), 1e-8) << j;
  }
}

TEST(LayerNorm, EachOperandAndOptionShowsInTheResult) {
  constexpr std::int64_t rows = 4, d = 33;
  const Compute c = widest();
  const auto x = values<float>(rows * d, 1), gain = values<float>(d, 2), bias = values<float>(d, 3);
  std::vector<float> a(rows * d), b(rows * d), mean(rows), rstd(rows);
  kernels::layer_norm<float>(c, x, gain, bias, a, mean, rstd);
  kernels::layer_norm<float>(c, x, bias, gain, b, mean, rstd);
  EXPECT_NE(a, b);
  kernels::layer_norm<float>(c, x, gain, {}, b, mean, rstd);
  EXPECT_NE(a, b);
  kernels::layer_norm<float>(c, x, gain, bias, b, mean, rstd, {.eps = 1e-3});
  EXPECT_NE(a, b);
  kernels::rms_norm<float>(c, x, gain, b, rstd);
  EXPECT_NE(a, b);
}

TEST(LayerNorm, AConstantRowGivesTheBiasAndAShiftedOneTheSameRow) {
  const Compute c = widest();
  const std::vector<float> gain{2, 2, 2}, bias{0.5F, -1, 3};
  std::vector<float> y(6), mean(2), rstd(2);
  kernels::layer_norm<float>(c, std::vector<float>{7, 7, 7, 1024, 1024, 1024}, gain, bias, y, mean,
                             rstd);
  EXPECT_EQ(y, (std::vector<float>{0.5F, -1, 3, 0.5F, -1, 3}));
  // One pass with E[x^2] - E[x]^2 would lose all of the variance here.
  kernels::layer_norm<float>(c, std::vector<float>{-1, 0, 1, 65535, 65536, 65537}, gain, {}, y,
                             mean, rstd);
  EXPECT_EQ((std::vector<float>(y.begin(), y.begin() + 3)),
            (std::vector<float>(y.begin() + 3, y.end())));
}

TEST(LayerNorm, ErrorsNameTheFunctionAndTheSizes) {
  const Compute c = portable();
  std::vector<float> x(12), gain(4), y(12), mean(3), rstd(3), shorter(8), none;
  EXPECT_EQ(message_of<ShapeError>([&] {
              kernels::layer_norm<float>(c, x, std::vector<float>(5), {}, y, mean, rstd);
            }),
            "layer_norm: x has 12 elements, gain 5, mean 3 and rstd 3; x wants rows x width, mean "
            "and rstd one "
            "for each row. Does the layer's width fit the input's?");
  EXPECT_EQ(message_of<ShapeError>(
                [&] { kernels::layer_norm<float>(c, x, gain, {}, shorter, mean, rstd); }),
            "layer_norm: x has 12 elements but y 8. Was it made for another batch?");
  EXPECT_EQ(
      message_of<ShapeError>(
          [&] { kernels::layer_norm<float>(c, x, gain, shorter, y, mean, rstd); }),
      "layer_norm: gain has 4 elements but bias 8; both want the width of a row, or bias none.");
  EXPECT_EQ(
      message_of<ShapeError>([&] { kernels::layer_norm<float>(c, x, none, {}, y, mean, rstd); }),
      "layer_norm: gain is empty, so rows have no width. Was the layer built?");
  EXPECT_EQ(message_of<OptionError>(
                [&] { kernels::layer_norm<float>(c, x, gain, {}, y, mean, rstd, {.eps = 0}); }),
            "layer_norm: eps is 0; it wants to be a normal number above 0, or a constant row divides by 0.");
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::layer_norm_backward_input<float>(c, shorter, x, gain, mean, rstd, y);
            }).find("layer_norm_backward_input: x has 12 elements but dy 8"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::layer_norm_backward_parameters<float>(c, x, x, mean, rstd,
                                                             std::span<float>(y).first(4), shorter);
            }).find("layer_norm_backward_parameters: gain has 4 elements but bias 8"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::rms_norm<float>(c, x, gain, shorter, rstd);
            }).find("rms_norm: x has 12"),
            std::string::npos);
  EXPECT_NE(message_of<OptionError>([&] {
              kernels::rms_norm<float>(c, x, gain, y, rstd, {.eps = -1});
            }).find("rms_norm: eps is -1"),
            std::string::npos);
}

TEST(LayerNorm, NoRowsAreNoError) {
  std::vector<float> none, gain(4), dgain(4, 5.0F);
  kernels::layer_norm<float>(widest(), none, gain, {}, none, none, none);
  kernels::layer_norm_backward_parameters<float>(widest(), none, none, none, none, dgain, {});
  EXPECT_EQ(dgain, std::vector<float>(4, 0.0F));
}

}  // namespace
