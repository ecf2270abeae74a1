// SPDX-License-Identifier: MIT
#include <halfstep/kernels/cross_entropy.hpp>

#include <limits>

#include <halfstep/numeric/elementary.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::DataError;
using halfstep::ShapeError;
namespace kernels = halfstep::kernels;
namespace numeric = halfstep::numeric;

template <class A>
class CrossEntropy : public testing::Test {};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, Accumulators);

TYPED_TEST(CrossEntropy, EveryPathAndThreadCountGivesTheBitsOfThePlainLoop) {
  using A = TypeParam;
  every_compute([](const Compute& compute, const std::string& name) {
    for (const std::int64_t v : {1, 2, 15, 16, 17, 31, 33, 65, 100, 257}) {
      for (const std::int64_t rows : {1, 3, 16, 17, 37}) {
        SCOPED_TRACE(name + ", rows " + std::to_string(rows) + ", classes " + std::to_string(v));
        const auto logits = values<A>(rows * v, 1, 9.0);
        std::vector<std::int32_t> targets;
        for (std::int64_t r = 0; r < rows; ++r) {
          targets.push_back(r % 5 == 3 ? -1 : static_cast<std::int32_t>((r * 7) % v));
        }
        const A seed = static_cast<A>(0x1.3p-5);
        std::vector<A> losses, lse, gradient(logits.size());
        Lanes<double> total;
        std::int64_t count = 0, correct = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          const A* in = logits.data() + r * v;
          const auto t = targets[static_cast<std::size_t>(r)];
          if (t < 0) {
            losses.push_back(0);
            lse.push_back(0);
            continue;
          }
          A most = in[0];
          for (std::int64_t j = 1; j < v; ++j)
            most = in[j] > most ? in[j] : most;
          Lanes<A> lanes;
          for (std::int64_t j = 0; j < v; ++j)
            lanes.add(j, numeric::exp(in[j] - most));
          const A logarithm = log_of_sum(lanes.sum());
          losses.push_back(logarithm + (most - in[t]));
          lse.push_back(most + logarithm);
          total.add(r, static_cast<double>(losses.back()));
          ++count;
          correct += in[t] == most ? 1 : 0;
          for (std::int64_t j = 0; j < v; ++j) {
            const A p = numeric::exp(in[j] - lse.back());
            gradient[static_cast<std::size_t>(r * v + j)] = times(j == t ? p - 1 : p, seed);
          }
        }
        Guarded<A> glogits(logits), glosses(rows), glse(rows), dlogits(rows * v);
        Guarded<std::int32_t> gtargets(targets);
        const auto result = kernels::cross_entropy<A>(compute, glogits, gtargets, glosses, glse);
        ASSERT_SAME_BITS(glosses.copy(), losses);
        ASSERT_SAME_BITS(glse.copy(), lse);
        ASSERT_EQ(result.sum, total.sum());
        ASSERT_EQ(result.count, count);
        ASSERT_EQ(result.correct, correct);
        kernels::cross_entropy_backward<A>(compute, glogits, gtargets, glse, seed, dlogits);
        ASSERT_SAME_BITS(dlogits.copy(), gradient);
        std::vector<bf16> rounded;
        for (const A g : gradient)
          rounded.push_back(static_cast<bf16>(static_cast<float>(g)));
        if constexpr (std::is_same_v<A, float>) {
          Guarded<bf16> small(rows * v);
          kernels::cross_entropy_backward<A, bf16>(compute, glogits, gtargets, glse, seed, small);
          ASSERT_SAME_BITS(small.copy(), rounded);
        }
        // In place.
        kernels::cross_entropy_backward<A>(compute, glogits, gtargets, glse, seed, glogits);
        ASSERT_SAME_BITS(glogits.copy(), gradient);
      }
    }
  });
}

TYPED_TEST(CrossEntropy, LossesAreThoseOfTheFormulaInLongDouble) {
  using A = TypeParam;
  constexpr std::int64_t rows = 50, v = 301;
  const auto logits = values<A>(rows * v, 7, 30.0, 100.0);
  std::vector<std::int32_t> targets;
  for (std::int32_t r = 0; r < rows; ++r)
    targets.push_back(r * 6);
  std::vector<A> losses(rows), lse(rows);
  kernels::cross_entropy<A>(widest(), logits, targets, losses, lse);
  for (std::size_t r = 0; r < rows; ++r) {
    long double sum = 0;
    for (std::size_t j = 0; j < v; ++j)
      sum += std::exp(static_cast<long double>(logits[r * v + j]));
    const long double wanted =
        std::log(sum) -
        static_cast<long double>(logits[r * v + static_cast<std::size_t>(targets[r])]);
    const double unit = std::numeric_limits<A>::epsilon();
    EXPECT_NEAR(static_cast<double>(losses[r]), static_cast<double>(wanted),
                8 * unit * static_cast<double>(1 + wanted));
  }
}

TEST(LogOfSum, IsWithinTwoUnitsOfTheLogarithm) {
  // exp(0) + 0 … + 0 over k equal logits is k: losses are log(k), from 1 to 2^16 and some.
  double worst = 0;
  for (std::int64_t k = 1; k <= 70000; k += k < 2000 ? 1 : 977) {
    std::vector<float> logits(static_cast<std::size_t>(k), 0.0F), loss(1), lse(1);
    kernels::cross_entropy<float>(widest(), logits, std::vector<std::int32_t>{0}, loss, lse);
    const double wanted = std::log(static_cast<double>(k));
    const double unit = wanted == 0 ? 1 : std::ldexp(1.0, std::ilogb(wanted) - 23);
    worst = std::max(worst, std::fabs(static_cast<double>(loss[0]) - wanted) / unit);
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
  std::printf("log_of_sum: worst error %.3f ulp\n", worst);
}

TEST(CrossEntropyKernel, TheDoubleBackwardIsTheSlopeOfItsForward) {
  constexpr std::int64_t rows = 4, v = 19;
  auto logits = values<double>(rows * v, 1, 2.0);
  const std::vector<std::int32_t> targets{3, 18, -1, 0};
  std::vector<double> losses(rows), lse(rows), gradient(logits.size());
  const Compute c = widest();
  const auto loss = [&] {
    return kernels::cross_entropy<double>(c, logits, targets, losses, lse).sum;
  };
  loss();
  kernels::cross_entropy_backward<double>(c, logits, targets, lse, 0.25, gradient);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double old = logits[i];
    logits[i] = old + 1e-6;
    const double up = loss();
    logits[i] = old - 1e-6;
    const double down = loss();
    logits[i] = old;
    ASSERT_NEAR(gradient[i], 0.25 * (up - down) / 2e-6, 1e-9) << i;
  }
}

TEST(CrossEntropyKernel, AllTargetsIgnoredIsZeroOfNothing) {
  const auto logits = values<float>(3 * 20, 1);
  const std::vector<std::int32_t> targets(3, 7);
  std::vector<float> losses(3, 5), lse(3, 5), gradient(60, 5);
  const kernels::CrossEntropyOptions options{.ignore = 7};
  const auto result =
      kernels::cross_entropy<float>(widest(), logits, targets, losses, lse, options);
  EXPECT_EQ(result.sum, 0.0);
  EXPECT_EQ(result.count, 0);
  EXPECT_EQ(result.correct, 0);
  EXPECT_EQ(losses, std::vector<float>(3, 0.0F));
  kernels::cross_entropy_backward<float>(widest(), logits, targets, lse, 1.0F, gradient, options);
  EXPECT_EQ(gradient, std::vector<float>(60, 0.0F));
  // With the default, 7 is a class like any other.
  EXPECT_EQ(kernels::cross_entropy<float>(widest(), logits, targets, losses, lse).count, 3);
}

TEST(CrossEntropyKernel, UniformLogitsCostTheLogarithmOfTheClassesAndSureOnesNothing) {
  std::vector<float> losses(1), lse(1);
  const auto cost = [&](const std::vector<float>& logits) {
    kernels::cross_entropy<float>(widest(), logits, std::vector<std::int32_t>{1}, losses, lse);
    return losses[0];
  };
  EXPECT_NEAR(static_cast<double>(cost(std::vector<float>(65, 3.0F))), 4.174387269895637, 1e-6);
  EXPECT_EQ(cost({-1000, 1000, 0}), 0.0F);
  EXPECT_EQ(cost({1000, -1000, 0}), 2000.0F);
  // A small loss beside a large logit survives: log(1 + e^-10), not 10000 - 10000.
  EXPECT_NEAR(static_cast<double>(cost({9990, 10000})), 4.5398899e-05, 6e-8);
}

TEST(CrossEntropyKernel, NanAndInfinityMakeTheirRowsLossNan) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  every_compute([&](const Compute& compute, const std::string& name) {
    for (const float bad : {inf, nan}) {
      for (std::size_t at = 0; at < 37; ++at) {
        auto logits = values<float>(2 * 37, 1);
        logits[at] = bad;
        std::vector<float> losses(2), lse(2);
        const auto result = kernels::cross_entropy<float>(
            compute, logits, std::vector<std::int32_t>{4, 5}, losses, lse);
        ASSERT_TRUE(std::isnan(losses[0])) << name << ", " << at;
        ASSERT_TRUE(std::isfinite(losses[1])) << name << ", " << at;
        ASSERT_TRUE(std::isnan(result.sum));
      }
    }
  });
}

TEST(CrossEntropyKernel, ATargetOutOfRangeIsNamedBeforeAnythingIsWritten) {
  const std::vector<float> logits(6);
  std::vector<float> losses(2, 9), lse(2, 9);
  EXPECT_EQ(message_of<DataError>([&] {
              kernels::cross_entropy<float>(widest(), logits, std::vector<std::int32_t>{-1, 3},
                                            losses, lse);
            }),
            "cross_entropy: target 3 of row 1 is not in [0, 3) and is not the ignored value -1. "
            "Was the text "
            "encoded by another tokenizer than the model's?");
  EXPECT_EQ(losses, std::vector<float>(2, 9.0F));
  std::vector<float> gradient(6);
  EXPECT_NE(message_of<DataError>([&] {
              kernels::cross_entropy_backward<float>(
                  widest(), logits, std::vector<std::int32_t>{-2, 0}, lse, 1.0F, gradient);
            }).find("cross_entropy_backward: target -2 of row 0"),
            std::string::npos);
}

TEST(CrossEntropyKernel, ErrorsNameTheSizes) {
  const std::vector<float> logits(7);
  std::vector<float> losses(2), lse(2), one(1);
  const std::vector<std::int32_t> targets{0, 0};
  EXPECT_EQ(message_of<ShapeError>(
                [&] { kernels::cross_entropy<float>(widest(), logits, targets, losses, lse); }),
            "cross_entropy: 7 logits for 2 targets; wanted the same number of logits, at least "
            "one, for each "
            "target. Do batch and model have the same length?");
  EXPECT_EQ(
      message_of<ShapeError>([&] {
        kernels::cross_entropy<float>(widest(), std::span(logits).first(6), targets, one, lse);
      }),
      "cross_entropy: 2 targets, but losses has 1 elements and lse 2; each wants one for a row.");
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::cross_entropy_backward<float>(widest(), std::span(logits).first(6), targets,
                                                     lse, 1.0F, one);
            }).find("lse has 2 elements and gradient 1"),
            std::string::npos);
}

}  // namespace
