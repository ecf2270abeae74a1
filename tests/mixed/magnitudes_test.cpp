// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/random.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/histogram.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/mixed/underflow.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;
using mixed::Magnitudes;

core::Compute compute() { return {core::Isa::portable}; }
Magnitudes of(const std::vector<float>& values, double factor = 1.0) {
  return mixed::measure<float>(compute(), values, factor);
}
/// In [1, 2) times a power of two, either sign.
float some(std::uint64_t i, float power) {
  const auto bits = static_cast<std::uint32_t>(core::random_bits(1, 2, i));
  return std::bit_cast<float>(0x3F800000U | (bits & 0x7FFFFFU)) * power *
         ((bits >> 31) != 0U ? -1.0F : 1.0F);
}

// 10,000 values, of which 300 are below half of fp16's smallest number: 3.00 %. The smallest of
// them are in (2^-40, 2^-39], so 2^16 x as large they are above 2^-24, and 2^15 x as large some are
// at 2^-24 at most, but above 2^-25: the smallest scale that saves all is the 2^15 that the bins
// say.
TEST(Magnitudes, ThreePerCentBelowTheThresholdAreReportedWithTheScaleThatSavesThem) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 9'700; ++i)
    values.push_back(some(i, 0x1p-12F));
  for (std::uint64_t i = 0; i < 299; ++i)
    values.push_back(some(i, 0x1p-35F));
  values.push_back(0x1.8p-40F);
  const Magnitudes m = of(values);
  EXPECT_EQ(m.share_lost<fp16>(), 0.03);
  EXPECT_EQ(m.lost<fp16>(), 300);
  EXPECT_EQ(mixed::detail::per_cent(m.share_lost<fp16>()), "3.00 %");
  const auto advice = m.advised_scale<fp16>();
  EXPECT_EQ(advice.scale, 0x1p15);
  EXPECT_EQ(advice.still_lost, 0.0);
  // By rounding each of them: the advice saves all, half of it does not.
  const auto zeros = [&](double scale) {
    return std::count_if(values.begin(), values.end(), [&](float x) {
      return fp16(static_cast<double>(x) * scale) == fp16(0.0F);
    });
  };
  EXPECT_EQ(zeros(1.0), 300);
  EXPECT_EQ(zeros(advice.scale), 0);
  EXPECT_EQ(zeros(advice.scale / 2), 1);
  EXPECT_EQ(m.lost<fp16>(advice.scale / 2), 1);
  EXPECT_EQ(m.share_lost<bf16>(), 0.0);
  // Zeros are no underflow, and do not dilute the share.
  values.resize(20'000, 0.0F);
  const Magnitudes diluted = of(values);
  EXPECT_EQ(diluted.share_lost<fp16>(), 0.03);
  EXPECT_EQ(diluted.zeros, 10'000);
  EXPECT_EQ(diluted.nonzero(), 10'000);
}
// Against the conversion itself: every float of a stretch around each threshold, every scale.
template <class F>
void compare_with_rounding(float threshold, int least_shift) {
  std::int64_t inputs = 0, mismatches = 0, zeros = 0;
  for (int shift = least_shift; shift < least_shift + 9; ++shift) {
    const float scale = std::ldexp(1.0F, shift);
    const auto middle = std::bit_cast<std::uint32_t>(threshold);
    for (std::uint32_t bits = middle - 2'000; bits <= middle + 2'000; ++bits, ++inputs) {
      Magnitudes m;
      const auto x = static_cast<double>(std::bit_cast<float>(bits));
      m.add(x);
      const bool zero = F(x * static_cast<double>(scale)) == F(0.0F);
      zeros += zero ? 1 : 0;
      mismatches += (m.lost<F>(static_cast<double>(scale)) == 1) != zero ? 1 : 0;
    }
  }
  std::printf("%lld inputs, %lld mismatches\n", static_cast<long long>(inputs),
              static_cast<long long>(mismatches));
  EXPECT_EQ(inputs, 9 * 4'001);
  EXPECT_EQ(mismatches, 0);
  EXPECT_GT(zeros, 0);
  EXPECT_LT(zeros, inputs);
}
TEST(Magnitudes, LosesWhatTheFormatRoundsToZero) {
  for (const int k : {-25, -40, -10})
    compare_with_rounding<fp16>(std::ldexp(1.0F, k), -29 - k);
  for (const int k : {-125, -124})
    compare_with_rounding<bf16>(std::ldexp(1.0F, k), -138 - k);
}
TEST(Magnitudes, AdviceStopsWhereTheLargestWouldOverflow) {
  // 32 x 2^11 is beyond 65504, so that the smallest stays lost.
  const auto advice = of({32.0F, 0x1p-40F, 1.0F, 2.0F}).advised_scale<fp16>();
  EXPECT_EQ(advice.scale, 0x1p10);
  EXPECT_EQ(advice.still_lost, 0.25);
  EXPECT_EQ(of({65504.0F}).advised_scale<fp16>().scale, 1.0);
  EXPECT_EQ(of({65519.0F}).advised_scale<fp16>().scale, 1.0);  // rounds down
  EXPECT_EQ(of({65520.0F}).advised_scale<fp16>().scale, 0.5);
  EXPECT_EQ(of({1e6F}).advised_scale<fp16>().scale, 0x1p-4);  // a scale below 1
  EXPECT_EQ(of({1.0F}).advised_scale<fp16>().scale, 1.0);     // never lower than it need be
  EXPECT_EQ(of({0x1p-24F}).advised_scale<fp16>().scale, 1.0);
  EXPECT_EQ(of({0x1p-25F}).advised_scale<fp16>().scale, 2.0);
  EXPECT_EQ(of({}).advised_scale<fp16>().scale, 1.0);
  EXPECT_EQ(of({0x1p-40F}).advised_scale<bf16>().scale, 1.0);
}
TEST(Magnitudes, FindsTheEndsAndWhatIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Magnitudes m = of({0.0F, -3.0F, infinity, 0.25F, std::numeric_limits<float>::quiet_NaN(),
                           -0.0F, -infinity, 0.5F});
  EXPECT_EQ(m.elements, 8);
  EXPECT_EQ(m.zeros, 2);
  EXPECT_EQ(m.non_finite, 3);
  EXPECT_EQ(m.nonzero(), 3);
  EXPECT_EQ(m.largest, 3.0);
  EXPECT_EQ(m.smallest, 0.25);
  EXPECT_EQ(m.bin(2), 1);   // 3 is in (2, 4]
  EXPECT_EQ(m.bin(-2), 1);  // a bin holds its upper end
  EXPECT_EQ(m.bin(-1), 1);
  EXPECT_EQ(of({1e30F}, 1e30).bin(Magnitudes::highest), 1);  // 1e60
  EXPECT_EQ(of({1e-30F}, 1e-60).bin(Magnitudes::lowest), 1);
  EXPECT_EQ(of({1e-30F}, 1e-60).lost<bf16>(), 1);
}
TEST(Magnitudes, OfPartsAddUpToThatOfTheWhole) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 200'000; ++i)
    values.push_back(some(i, std::ldexp(1.0F, -static_cast<int>(i % 61))));
  const Magnitudes whole = of(values);
  Magnitudes sum;
  for (std::size_t i = 0; i < values.size(); i += 1'000)
    sum += mixed::measure<float>(compute(), std::span(values).subspan(i, 1'000));
  sum += Magnitudes{};
  Runtime runtime({.threads = 3});
  const Magnitudes threaded = mixed::measure<float>(runtime.compute(), values);
  for (const Magnitudes* other : {&std::as_const(sum), &threaded}) {
    EXPECT_EQ(other->bins, whole.bins);
    EXPECT_EQ(other->smallest, whole.smallest);
    EXPECT_EQ(other->largest, whole.largest);
    EXPECT_EQ(other->elements, 200'000);
  }
  EXPECT_LT(whole.smallest, 0x1p-59);
  EXPECT_GT(whole.largest, 1.0);
}

struct OfAGradient : testing::Test {
  Runtime runtime{{.threads = 2}};
  Parameters<float> parameters{runtime};
  ParameterId a = parameters.scope().add("a", {4}, Role::weight, Init::constant(1.0F)).id;
  ParameterId b = parameters.scope().add("b", {2}, Role::weight, Init::constant(1.0F)).id;
  mixed::LossScaler scaler;
  mixed::GradientAccumulator<float> accumulator{parameters, scaler};
  halfstep_tests::GivenTape tape;
};
TEST_F(OfAGradient, RowsAreThoseOfTheMeanLossAndOfEachParameter) {
  auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 4});
  tape.begin(*window.begin());
  // Summed over four targets: the mean's are a quarter.
  window.backward(tape,
                  halfstep_tests::GivenLoss<float>{
                      1, 4, {{a, {4.0F, -0x1p-23F, 0x1.8p-23F, 0.0F}}, {b, {0x1p-30F, 8.0F}}}});
  mixed::Underflow underflow;
  const auto gradients = std::move(window).unscale(&underflow);
  const auto rows = mixed::gradient_magnitudes(gradients);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "a");
  EXPECT_EQ(rows[0].magnitudes.largest, 1.0);
  EXPECT_EQ(rows[0].magnitudes.zeros, 1);
  EXPECT_EQ(rows[0].magnitudes.lost<fp16>(), 1);  // 2^-25 is, 1.5 x 2^-25 is not
  EXPECT_EQ(rows[1].name, "b");
  EXPECT_EQ(rows[1].magnitudes.lost<fp16>(), 1);
  EXPECT_EQ(rows[1].magnitudes.advised_scale<fp16>().scale, 0x1p8);
  const Magnitudes all = mixed::total(rows);
  EXPECT_EQ(all.elements, 6);
  EXPECT_EQ(all.advised_scale<fp16>().scale, 0x1p8);
  // As the figure that every run has at its end.
  EXPECT_EQ(underflow.fp16, all.lost<fp16>());
  EXPECT_EQ(underflow.fp16_scaled, all.lost<fp16>(65536.0));
  EXPECT_EQ(underflow.nonzero, all.nonzero());
  EXPECT_EQ(mixed::table_text(rows, 65536.0),
            "tensor  elements      zero   largest fp16 loses     x 2^16 saved by bf16 loses\n"
            "a              4   25.00 %   1.0e+00    33.33 %     0.00 %      2^1     0.00 %\n"
            "b              2    0.00 %   2.0e+00    50.00 %     0.00 %      2^8     0.00 %\n"
            "all            6   16.67 %   2.0e+00    40.00 %     0.00 %      2^8     0.00 %\n");
}
// The cheap figure and the histogram are one definition: subnormals count as what they are, what is
// not finite counts nowhere, and neither scale nor number of targets need be a power of two.
template <class T>
void expect_one_definition() {
  using G = typename Parameters<T>::gradient;
  Runtime runtime({.threads = 2});
  Parameters<T> parameters(runtime);
  const auto id = parameters.scope().add("w", {5'000}, Role::weight, Init::constant(1.0F)).id;
  auto scaler = mixed::LossScaler::fixed(3000.0F);
  mixed::GradientAccumulator<T> accumulator(parameters, scaler);
  halfstep_tests::GivenTape tape;
  std::vector<G> values;
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(core::random_bits(1, 3, i));
    values.push_back(i % 41 == 1    ? G{0}
                     : i % 997 == 5 ? std::numeric_limits<G>::infinity()
                     : i % 991 == 7 ? std::numeric_limits<G>::quiet_NaN()
                     : i % 3 == 0
                         ? static_cast<G>(std::bit_cast<float>(bits & 0x8000'0FFFU))
                         : static_cast<G>(some(i, std::ldexp(1.0F, -static_cast<int>(i % 126)))));
  }
  if (sizeof(G) == 8) values.front() = -static_cast<G>(0x1p-1060);
  auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 3});
  tape.begin(*window.begin());
  window.backward(tape, halfstep_tests::GivenLoss<G>{1, 3, {{id, values}}});
  mixed::Underflow cheap{.nonzero = -1};
  const auto gradients = std::move(window).unscale(&cheap);
  const double factor = gradients.unscale_factor();
  const double scaled = factor * static_cast<double>(scaler.scale());
  std::int64_t subnormal = 0, nonzero = 0, half = 0, half_scaled = 0, brain = 0;
  for (const G x : gradients.sum(id)) {
    const auto d = static_cast<double>(x);
    if (d == 0.0 || !std::isfinite(d)) continue;
    ++nonzero;
    subnormal += std::fabs(d) < 0x1p-126 ? 1 : 0;  // times the seed, 750, still
    half += fp16(d * factor) == fp16(0.0F) ? 1 : 0;
    half_scaled += fp16(d * scaled) == fp16(0.0F) ? 1 : 0;
    brain += bf16(d * factor) == bf16(0.0F) ? 1 : 0;
  }
  EXPECT_GT(subnormal, 1'000);
  EXPECT_GT(brain, 0);
  EXPECT_LT(brain, half_scaled);
  EXPECT_LT(half_scaled, half);
  const Magnitudes all = mixed::gradient_magnitudes(gradients)[0].magnitudes;
  EXPECT_EQ(cheap.nonzero, nonzero);
  EXPECT_EQ(cheap.fp16, half);
  EXPECT_EQ(cheap.fp16_scaled, half_scaled);
  EXPECT_EQ(cheap.bf16, brain);
  EXPECT_EQ(all.nonzero(), nonzero);
  EXPECT_EQ(all.lost<fp16>(), half);
  EXPECT_EQ(all.lost<bf16>(), brain);
  EXPECT_GE(all.lost<fp16>(static_cast<double>(scaler.scale())), half_scaled);
  EXPECT_EQ(mixed::measure(runtime.compute(), gradients.sum(id), scaled).template lost<fp16>(),
            half_scaled);
}
TEST(Magnitudes, AndTheCheapFigureAreOneDefinition) {
  expect_one_definition<bf16>();
  expect_one_definition<float>();
  expect_one_definition<double>();
}
TEST_F(OfAGradient, UnderflowsAreCountedInPassOneWhichFindsTheSame) {
  const auto swept = [&](double targets, mixed::Underflow* underflow) {
    auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.begin(*window.begin());
    window.backward(tape, halfstep_tests::GivenLoss<float>{
                              1, targets, {{a, {3, 0x1p-26F, 0, 0}}, {b, {0x1p-50F, 4}}}});
    return std::move(window).unscale(underflow).norm();
  };
  mixed::Underflow underflow{.nonzero = 7, .fp16 = 7};  // of another step
  EXPECT_EQ(swept(1, &underflow), swept(1, nullptr));
  EXPECT_EQ(underflow.nonzero, 4);
  EXPECT_EQ(underflow.fp16, 2);
  EXPECT_EQ(underflow.fp16_scaled, 1);
  EXPECT_EQ(underflow.bf16, 0);
  EXPECT_EQ(underflow.share(underflow.fp16), 0.5);
  swept(0, &underflow);  // without a target there is no mean
  EXPECT_EQ(underflow.nonzero, 0);
  EXPECT_EQ(underflow.fp16, 0);
}
TEST_F(OfAGradient, IsMeasuredBeforeClippingAndOnlyWhileItIsThere) {
  const auto swept = [&] {
    auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.begin(*window.begin());
    window.backward(tape, halfstep_tests::GivenLoss<float>{1, 1, {{a, {3, 0, 0, 0}}, {b, {4, 0}}}});
    return std::move(window).unscale();
  };
  auto gradients = swept().clip_norm(0.3F);
  EXPECT_EQ(mixed::total(mixed::gradient_magnitudes(gradients)).largest, 4.0);
  const auto taken = std::move(gradients);
  EXPECT_THROW(static_cast<void>(mixed::gradient_magnitudes(gradients)), StateError);
}
TEST(Histogram, ShowsEachPowerOfTwoAndWhatTheFormatsMakeOfIt) {
  EXPECT_EQ(
      mixed::histogram_text(of({0x1p-24F, 0x1p-25F, 0x1p-25F, 0x1p-23F}), 4.0),
      "   up to     share                                  fp16        fp16 x 2^2      bf16\n"
      "   2^-23   25.00 %  ###############                 subnormal   subnormal       normal\n"
      "   2^-24   25.00 %  ###############                 subnormal   subnormal       normal\n"
      "   2^-25   50.00 %  ##############################  zero        subnormal       normal\n");
  EXPECT_EQ(
      mixed::histogram_text(of({0x1p12F, 0x1p11F, 0x1p10F}), 32.0),
      "   up to     share                                  fp16        fp16 x 2^5      bf16\n"
      "    2^12   33.33 %  ##############################  normal      overflow        normal\n"
      "    2^11   33.33 %  ##############################  normal      at the limit    normal\n"
      "    2^10   33.33 %  ##############################  normal      normal          normal\n");
  EXPECT_EQ(mixed::histogram_text(of({0.0F}), 1.0),
            "   up to     share                                  fp16        fp16 x 2^0      bf16\n"
            "      no value but zero\n");
}

}  // namespace
