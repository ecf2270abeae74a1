// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/lost_updates.hpp>
#include <halfstep/mixed/master_weights.hpp>

#include <mixed/given_tape.hpp>

namespace {

using namespace halfstep;

// Of every finite number but the largest: the next one is two halves away.
template <class F>
void compare_with_neighbours(std::uint16_t largest) {
  std::int64_t inputs = 0, mismatches = 0;
  for (std::uint16_t bits = 0; bits < largest; ++bits, ++inputs) {
    const auto x = F::from_bits(bits), next = F::from_bits(static_cast<std::uint16_t>(bits + 1));
    const double ulp = static_cast<double>(next) - static_cast<double>(x);
    mismatches += mixed::half_ulp(x) != ulp / 2 || mixed::half_ulp(-x) != ulp / 2 ? 1 : 0;
  }
  std::printf("%lld inputs, %lld mismatches\n", static_cast<long long>(inputs),
              static_cast<long long>(mismatches));
  EXPECT_EQ(inputs, largest);
  EXPECT_EQ(mismatches, 0);
}
TEST(LostUpdates, HalfAnUlpIsHalfTheWayToTheNextNumber) {
  compare_with_neighbours<fp16>(0x7BFF);
  compare_with_neighbours<bf16>(0x7F7F);
  EXPECT_EQ(mixed::half_ulp(1.0F), 0x1p-24);
}

/// A step of SGD with learning rate 1: the updates are the gradients that a test writes down.
template <class T>
struct Stepped {
  Runtime runtime{{.threads = 2}};
  Parameters<T> parameters{runtime};
  ParameterId a = parameters.scope().add("a", {4}, Role::weight, Init::constant(1.0F)).id;
  ParameterId b = parameters.scope().add("b", {2}, Role::bias, Init::constant(0.0F)).id;
  mixed::MasterWeights<optim::Sgd, T> optimizer{parameters, optim::SgdOptions{.momentum = 0.0F}};
  mixed::GradientAccumulator<T> accumulator{parameters};
  halfstep_tests::GivenTape tape;

  void step(std::vector<float> ga, std::vector<float> gb) {
    auto window = accumulator.begin(tape, 0, {.micro_batches = 1, .rows = 1, .targets_per_row = 1});
    tape.begin(*window.begin());
    if constexpr (std::is_same_v<T, double>) {
      window.backward(tape, halfstep_tests::GivenLoss<double>{
                                1, 1, {{a, {ga.begin(), ga.end()}}, {b, {gb.begin(), gb.end()}}}});
    } else {
      window.backward(tape, halfstep_tests::GivenLoss<float>{1, 1, {{a, ga}, {b, gb}}});
    }
    (void)optimizer.step(std::move(window).unscale(), 1.0F);
  }
};

TEST(LostUpdates, CountsWhatIsBelowHalfAnUlpOfTheWeightsFormat) {
  Stepped<bf16> s;
  mixed::LostUpdates probe(s.parameters);
  probe.before(s.optimizer);
  // Half an ulp of 1 in bf16 is 2^-8. A weight of 0 is moved by anything.
  s.step({0x1p-8F, 0x1p-9F, 0.0F, -0x1.fp-9F}, {0x1p-20F, 0.0F});
  const auto rows = probe.after(s.optimizer);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "a");
  EXPECT_EQ(rows[0].weights, 4);
  EXPECT_EQ(rows[0].updated, 3);
  EXPECT_EQ(rows[0].below_half, 2);
  EXPECT_EQ(rows[0].largest, 0x1p-8);
  EXPECT_EQ(rows[1].name, "b");
  EXPECT_EQ(rows[1].updated, 1);
  EXPECT_EQ(rows[1].below_half, 0);
  const auto all = mixed::total(rows);
  EXPECT_EQ(all.weights, 6);
  EXPECT_EQ(all.below_half, 2);
  EXPECT_EQ(all.share_below_half(), 0.5);
  // In fp16 half an ulp of 1 is 2^-11, in float 2^-24.
  EXPECT_EQ(mixed::total(probe.after<fp16>(s.optimizer)).below_half, 0);
  EXPECT_EQ(mixed::total(probe.after<float>(s.optimizer)).below_half, 0);
}
TEST(LostUpdates, OfEachFormatOfWeightsAreSeenThroughTheirFullPrecision) {
  const auto below = []<class T>(Stepped<T>& s) {
    mixed::LostUpdates probe(s.parameters);
    probe.before(s.optimizer);
    s.step({0x1p-10F, 0x1p-12F, 0x1p-13F, 0x1p-14F}, {0, 0});
    return mixed::total(probe.template after<fp16>(s.optimizer)).below_half;
  };
  Stepped<float> f;
  Stepped<double> d;
  Stepped<fp16> h;
  EXPECT_EQ(below(f), 3);
  EXPECT_EQ(below(d), 3);
  EXPECT_EQ(below(h), 3);
}
TEST(LostUpdates, ChangesNoBitAndReturnsItsMemory) {
  Stepped<bf16> plain, probed;
  {
    const auto bytes = probed.runtime.ledger().live();
    mixed::LostUpdates probe(probed.parameters);
    EXPECT_EQ(probed.runtime.ledger().live() - bytes, 8 * 6);
    for (int i = 0; i < 3; ++i) {
      plain.step({1e-3F, 1e-3F, 1e-3F, 0.5F}, {1, 2});
      probe.before(probed.optimizer);
      probed.step({1e-3F, 1e-3F, 1e-3F, 0.5F}, {1, 2});
      EXPECT_EQ(mixed::total(probe.after(probed.optimizer)).updated, 6);
    }
  }
  EXPECT_EQ(probed.optimizer.weights_hash(), plain.optimizer.weights_hash());
  EXPECT_EQ(probed.runtime.ledger().live(), plain.runtime.ledger().live());
}
TEST(LostUpdates, WantsAMomentToCompareWith) {
  Stepped<bf16> s;
  mixed::LostUpdates probe(s.parameters);
  try {
    static_cast<void>(probe.after(s.optimizer));
    FAIL();
  } catch (const StateError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "LostUpdates::after: there is nothing to compare with. Call before(optimizer) ahead of "
        "the step.");
  }
  Stepped<bf16> other;
  Runtime runtime;
  Parameters<bf16> small(runtime);
  (void)small.scope().add("w", {3}, Role::weight, Init::constant(1.0F));
  mixed::LostUpdates misfit(small);
  EXPECT_THROW(misfit.before(other.optimizer), StateError);
}
/// Shows 4 elements of 6, as a shard does.
struct Shard {
  std::vector<float> values = std::vector<float>(4, 1.0F);
  template <class Visitor>
  void visit_weights(Visitor& visitor) {
    visitor.tensor({"blocks.0.up", numeric::DType::f32, {2, 3}, 2,
                    std::as_writable_bytes(std::span(values))});
  }
};
TEST(LostUpdates, OfAPartOfATensorAreAnErrorThatNamesIt) {
  Stepped<float> s;
  mixed::LostUpdates probe(s.parameters);
  Shard shard;
  try {
    probe.before(shard);
    FAIL();
  } catch (const StateError& error) {
    EXPECT_EQ(std::string(error.what()),
              "LostUpdates: of 'blocks.0.up', 6 elements, 4 are held here. Is the optimizer one of "
              "several processes' shards? Only whole weights can be compared.");
  }
  shard.values.resize(6);
  EXPECT_NO_THROW(probe.before(shard));
}

}  // namespace
