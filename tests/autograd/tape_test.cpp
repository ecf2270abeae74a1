// SPDX-License-Identifier: MIT
#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>
#include <halfstep/autograd/tape.hpp>

#include "allocations.hpp"

namespace hs = halfstep;

namespace {

using halfstep_tests::allocations;

template <class T>
struct Mlp {
  hs::Parameter<T> up, bias, down;
  Mlp(hs::Scope<T> s, std::int64_t width)
      : up(s.add("up", {4 * width, width}, hs::Role::weight, hs::Init::normal(0.3F))),
        bias(s.add("bias", {4 * width}, hs::Role::bias, hs::Init::normal(0.3F))),
        down(s.add("down", {width, 4 * width}, hs::Role::weight, hs::Init::normal(0.3F))) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const { return x + linear(gelu(linear(x, up, bias)), down); }
};

const std::vector<float> data = [] {
  std::vector<float> out(64);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 13) / 6.0F - 1.0F;
  return out;
}();

/// A small model on a tape, with all that it needs.
struct Setting {
  hs::Runtime runtime{{.threads = 2, .seed = 3}};
  hs::Parameters<float> parameters{runtime};
  const Mlp<float> mlp{parameters, 8};
  hs::Tape tape{runtime};
  [[nodiscard]] hs::Loss forward() {
    return squared_error(mlp(hs::constant<float>(tape, {8, 8}, data)), data);
  }
};
class Tape : public testing::Test, public Setting {};

std::string message(const auto& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_F(Tape, AFirstGradientIsRight) {
  hs::Parameters<float> store(runtime);
  const auto w = store.add("w", {2}, hs::Role::weight, hs::Init::constant(3.0F));
  hs::Gradients<float> gradients(store, tape);
  tape.begin();
  const auto loss = squared_error(use(tape, w) * hs::constant<float>(tape, {2}, std::vector{1.0F, 2.0F}), std::vector{0.0F, 10.0F});
  EXPECT_EQ(loss.sum, 9.0 + 16.0);
  EXPECT_EQ(loss.mean(), 12.5);
  tape.backward(loss);
  EXPECT_EQ(gradients[w][0], 6.0F);    // 2 (3 - 0) 1
  EXPECT_EQ(gradients[w][1], -16.0F);  // 2 (6 - 10) 2
}

TEST_F(Tape, TheSeedScalesEveryGradientExactly) {
  hs::Gradients<float> gradients(parameters, tape);
  const auto run = [&](double seed) {
    tape.set_seed(seed);
    tape.begin();
    tape.backward(forward());
    return std::vector<float>(gradients[mlp.up].begin(), gradients[mlp.up].end());
  };
  const auto one = run(1.0), scaled = run(0.03125);
  for (std::size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i] * 0.03125F, scaled[i]);
}

TEST_F(Tape, NothingIsAllocatedAfterTheSecondStep) {
  hs::Gradients<float> gradients(parameters, tape);
  std::vector<std::int64_t> counts;
  for (int step = 0; step < 5; ++step) {
    const std::int64_t before = allocations;
    tape.begin();
    tape.backward(squared_error(mlp(mlp(hs::constant<float>(tape, {8, 8}, data))), data));
    counts.push_back(allocations - before);
  }
  EXPECT_GT(counts[0], 0) << "the counter does not count";
  EXPECT_EQ(counts[2] + counts[3] + counts[4], 0);
}

TEST_F(Tape, ADryRunPredictsTheLedgerToTheByte) {
  const auto step = [&](hs::Tape& on) {
    on.begin();
    on.backward(squared_error(mlp(mlp(hs::constant<float>(on, {8, 8}, data))), data));
  };
  hs::Tape dry(runtime, hs::Tape::Mode::dry);
  step(dry);
  EXPECT_EQ(runtime.ledger().peak(), 0) << "the dry run took memory";
  hs::Gradients<float> gradients(parameters, tape);
  const auto before = runtime.ledger().live();
  step(tape);
  EXPECT_GT(dry.ledger().peak(), 0);
  EXPECT_EQ(runtime.ledger().peak() - before, dry.ledger().peak());
  EXPECT_EQ(tape.flops(), dry.flops());
  dry.begin();
  const auto x = mlp(hs::constant<float>(dry, {8, 8}, data));
  EXPECT_NE(message([&] { (void)x.value(); }).find("output of 'add' has no values in a dry run"), std::string::npos);
}

TEST_F(Tape, AllMemoryOfAStepIsGivenBack) {
  hs::Gradients<float> gradients(parameters, tape);
  const auto before = runtime.ledger().live();
  tape.begin();
  tape.backward(forward());
  EXPECT_EQ(runtime.ledger().live(), before) << "the sweep left something live";
  tape.begin();
  (void)mlp(hs::constant<float>(tape, {8, 8}, data));
  EXPECT_GT(runtime.ledger().live(), before);
  tape.begin();
  EXPECT_EQ(runtime.ledger().live(), before);
}

TEST_F(Tape, StaleAndForeignHandlesThrow) {
  hs::Tape other(runtime);
  EXPECT_NE(message([&] { (void)hs::constant<float>(tape, {64}, data); }).find("has not begun"), std::string::npos);
  tape.begin(), other.begin();
  const auto x = hs::constant<float>(tape, {64}, data);
  EXPECT_EQ(x.value()[3], data[3]);
  EXPECT_NE(message([&] { (void)(x + hs::constant<float>(other, {64}, data)); }).find("another tape"), std::string::npos);
  tape.begin();
  (void)hs::constant<float>(tape, {64}, data);
  EXPECT_NE(message([&] { (void)gelu(x); }).find("stale"), std::string::npos);
  EXPECT_THROW((void)hs::Variable<float>{}.shape(), hs::StateError);
  EXPECT_THROW((void)gelu(hs::Variable<float>{}), hs::StateError);
}

TEST_F(Tape, BackwardTwiceAndOpsAfterItThrow) {
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin();
  const auto x = hs::constant<float>(tape, {8, 8}, data);
  const auto loss = squared_error(mlp(x), data);
  tape.backward(loss);
  EXPECT_THROW(tape.backward(loss), hs::StateError);
  EXPECT_NE(message([&] { (void)mlp(x); }).find("swept"), std::string::npos);
  EXPECT_NE(message([&] { (void)x.value(); }).find("a backward sweep has let it go"), std::string::npos);
}

TEST_F(Tape, BackwardWithoutASinkOrARecordIsRefused) {
  tape.begin();
  EXPECT_NE(message([&] { tape.backward(forward()); }).find("sink"), std::string::npos);
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin({}, hs::Record::nothing);
  EXPECT_NE(message([&] { tape.backward(forward()); }).find("records nothing"), std::string::npos);
}

TEST_F(Tape, AWriteBetweenForwardAndBackwardIsAnErrorThatNamesTheParameter) {
  hs::Gradients<float> gradients(parameters, tape);
  const auto step = [&](bool write) {
    tape.begin();
    const auto loss = forward();
    if (write) parameters.write(mlp.down.id)[0] = 1.0F;
    tape.backward(loss);
  };
  EXPECT_NE(message([&] { step(true); }).find("parameter 'down' was at version"), std::string::npos);
  step(false);  // and the tape is usable again
}

namespace {
// Hands out each parameter from memory that it fills with NaN on release.
class Poisoning final : public hs::tensor::Store<float> {
 public:
  explicit Poisoning(hs::Parameters<float>& owner) : owner_(owner), copies_(owner.size()), held_(owner.size()) {}
  const float* acquire(hs::ParameterId id) override {
    if (held_[id.index]++ == 0) {
      const auto from = owner_.values(id);
      copies_[id.index].assign(from.begin(), from.end());
      ++acquires;
    }
    return copies_[id.index].data();
  }
  void release(hs::ParameterId id) override {
    if (--held_[id.index] == 0) std::fill(copies_[id.index].begin(), copies_[id.index].end(), std::nanf(""));
  }
  [[nodiscard]] bool all_released() const {
    for (const int held : held_) {
      if (held != 0) return false;
    }
    return true;
  }
  int acquires = 0;

 private:
  hs::Parameters<float>& owner_;
  std::vector<std::vector<float>> copies_;
  std::vector<int> held_;
};
}  // namespace

TEST_F(Tape, ReadsWeightsOnlyBetweenAcquireAndRelease) {
  hs::Gradients<float> gradients(parameters, tape);
  const auto run = [&] {
    gradients.clear();
    tape.begin();
    tape.backward(forward());
    std::vector<float> all;
    for (std::uint32_t p = 0; p < parameters.size(); ++p) all.insert(all.end(), gradients[hs::ParameterId{p}].begin(), gradients[hs::ParameterId{p}].end());
    return all;
  };
  const auto resident = run();
  Poisoning poisoning(parameters);
  parameters.use(poisoning);
  EXPECT_EQ(run(), resident);
  EXPECT_TRUE(poisoning.all_released());
  EXPECT_EQ(poisoning.acquires, 3 + 1) << "three in forward; down again for the gradient of its input";
}

namespace {
// Looks in backward at a parameter that infer says it does not read.
struct Peeking {
  static void infer(hs::autograd::Infer& c) {
    c.output<float>(c.input_shape(0));
    c.backward_reads_parameters({});
  }
  static void forward(hs::autograd::Forward& c) {
    std::copy_n(c.input<float>(0), c.output_shape().elements(), c.output<float>());
  }
  static void backward(hs::autograd::Backward& c) { static_cast<void>(c.parameter<float>(0)); }
  static constexpr hs::autograd::Op op{"peeking", &infer, &forward, &backward};
};
}  // namespace

TEST_F(Tape, RefusesABackwardThatReadsAParameterWhichInferDoesNotDeclare) {
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin();
  const auto x = hs::constant<float>(tape, {8, 8}, data);
  const auto y = tape.handle<float>(
      tape.record(Peeking::op, {x}, {mlp.up}, hs::autograd::NoPayload{}));
  const auto loss = squared_error(y, data);
  EXPECT_EQ(message([&] { tape.backward(loss); }),
            "peeking: backward reads parameter 'up', which infer does not declare by "
            "backward_reads_parameters");
}

namespace {
// Records the order of calls, and adds where it was told to expect several micro-batches.
class Watching final : public hs::tensor::Sink {
 public:
  explicit Watching(hs::Parameters<float>& p) : buffer(static_cast<std::size_t>(p.count())), owner(p) {}
  hs::tensor::LeafTarget open(hs::ParameterId id) override {
    calls += "o" + std::to_string(id.index);
    return {buffer.data() + owner.info(id).offset, accumulate};
  }
  void finish(hs::ParameterId id) override { calls += "f" + std::to_string(id.index); }
  std::string calls;
  std::vector<float> buffer;
  hs::Parameters<float>& owner;
  bool accumulate = false;
};
}  // namespace

TEST_F(Tape, ASinkSeesEachLeafOnceFinishedWithAllItsUses) {
  (void)parameters.add("unused", {4}, hs::Role::bias, {});
  Watching sink(parameters);
  tape.attach(parameters, sink);
  tape.begin();
  tape.backward(forward());
  EXPECT_EQ(sink.calls, "o2f2o0o1f0f1") << "down first, then up and its bias";
}

TEST_F(Tape, UsesOfATiedLeafAreSummedBeforeTheyEnterTheTree) {
  hs::Parameters<float> store(runtime);
  const auto w = store.add("w", {3}, hs::Role::weight, hs::Init::constant(1.0F));
  Watching sink(store);
  sink.accumulate = true;
  tape.attach(store, sink);
  // What is in the sink is so large that u1 and u2 vanish one by one, but not their sum.
  sink.buffer.assign(3, 16777216.0F);
  tape.begin();
  const auto half = hs::constant<float>(tape, {3}, std::vector{0.5F, 0.5F, 0.5F});
  const auto x = use(tape, w) * half + use(tape, w) * half;
  tape.backward(squared_error(x, std::vector{0.0F, 0.0F, 0.0F}));  // each use: 2 * 1 * 0.5 = 1
  EXPECT_EQ(sink.buffer[0], 16777218.0F);
  EXPECT_EQ(sink.calls, "o0f0");
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::gradients), 0);
}

namespace {
struct Throwing {
  static inline bool in_backward = false;
  static void infer(hs::autograd::Infer& c) { c.output<float>(c.input_shape(0)), c.save<float>(100), c.workspace(1000, 1000); }
  static void forward(hs::autograd::Forward& /*c*/) {
    if (!in_backward) throw std::runtime_error("forward");
  }
  static void backward(hs::autograd::Backward& /*c*/) { throw std::runtime_error("backward"); }
  static constexpr hs::autograd::Op op{"throwing", &infer, &forward, &backward};
};
}  // namespace

TEST_F(Tape, AnExceptionInForwardOrBackwardLeavesItUsableAndTheLedgerBalanced) {
  hs::Gradients<float> gradients(parameters, tape);
  const auto live = runtime.ledger().live();
  for (const bool in_backward : {false, true}) {
    Throwing::in_backward = in_backward;
    tape.begin();
    const auto x = mlp(hs::constant<float>(tape, {8, 8}, data));
    const auto before = runtime.ledger().live();
    const auto throwing = [&] { return tape.handle<float>(tape.record(Throwing::op, {x}, {}, hs::autograd::NoPayload{})); };
    if (!in_backward) {
      EXPECT_THROW((void)throwing(), std::runtime_error);
      EXPECT_EQ(runtime.ledger().live(), before);
      tape.backward(squared_error(x, data));  // the op is as if it had not been
    } else {
      const auto loss = squared_error(throwing(), data);
      EXPECT_THROW(tape.backward(loss), std::runtime_error);
    }
    tape.begin();
    EXPECT_EQ(runtime.ledger().live(), live);
    tape.backward(forward());
  }
}

TEST_F(Tape, AValueThatABrokenSweepHasLetGoIsMadeAgain) {
  struct Broken {
    static void infer(hs::autograd::Infer& c) { c.output<float>(c.input_shape(0)); }
    static void forward(hs::autograd::Forward& c) { std::copy_n(c.input<float>(0), 64, c.output<float>()); }
    static void backward(hs::autograd::Backward& /*c*/) { throw std::runtime_error("user"); }
  };
  static constexpr hs::autograd::Op op{"broken", &Broken::infer, &Broken::forward, &Broken::backward};
  hs::Parameters<float> store(runtime);
  const auto w = store.add("w", {8, 8}, hs::Role::weight, hs::Init::normal(0.3F));
  hs::Gradients<float> gradients(store, tape);
  tape.begin();
  const auto first = linear(hs::constant<float>(tape, {8, 8}, data), w).value();
  const std::vector<float> expected(first.begin(), first.end());
  tape.begin();
  const auto x = hs::constant<float>(tape, {8, 8}, data), v = linear(x, w);
  const auto broken = tape.handle<float>(tape.record(op, {linear(x, w)}, {}, hs::autograd::NoPayload{}));
  const auto loss = squared_error(v * v + broken, data);
  EXPECT_THROW(tape.backward(loss), std::runtime_error);
  for (int time = 0; time < 2; ++time) {
    const auto again = v.value();
    EXPECT_EQ(std::vector<float>(again.begin(), again.end()), expected);
  }
  tape.begin();
  const auto again = linear(hs::constant<float>(tape, {8, 8}, data), w);
  EXPECT_EQ(again.value().size(), 64U);
}

TEST_F(Tape, ThePolicyOfAPassIsSetBeforeItsFirstOp) {
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin();
  EXPECT_NO_THROW(tape.keep(hs::keep_values));
  const auto loss = forward();
  EXPECT_NE(message([&] { tape.keep(hs::keep_default); }).find("Tape::keep: this pass has recorded 6 ops"), std::string::npos);
  tape.backward(loss);
  EXPECT_NO_THROW(tape.keep(hs::keep_default));
}

TEST_F(Tape, AParameterThatAppearsTwiceInOneOpIsRefused) {
  hs::Parameters<float> store(runtime);
  const auto w = store.add("w", {1, 64}, hs::Role::weight, {});
  tape.begin();
  const auto x = hs::constant<float>(tape, {1, 64}, data);
  EXPECT_NE(message([&] { (void)linear(x, w, w); }).find("'w' appears twice"), std::string::npos);
}

TEST_F(Tape, ASinkThatLeavesTakesNoOtherWithIt) {
  Watching sink(parameters);
  {
    hs::Gradients<float> looked_at(parameters, tape);
    tape.attach(parameters, sink);
  }
  tape.begin();
  tape.backward(forward());
  EXPECT_EQ(sink.calls, "o2f2o0o1f0f1");
}

TEST_F(Tape, ASinkThatComesAfterTheOpsIsRefused) {
  Watching first(parameters), second(parameters);
  tape.attach(parameters, first);
  tape.begin();
  const auto loss = forward();
  tape.attach(parameters, second);
  EXPECT_NE(message([&] { tape.backward(loss); }).find("attached after the ops"), std::string::npos);
}

TEST_F(Tape, AParameterOfNoStoreIsRefused) {
  tape.begin();
  EXPECT_NE(message([&] { (void)use(tape, hs::Parameter<float>{}); }).find("in no store"), std::string::npos);
}

TEST_F(Tape, AFrozenGainLeavesTheGradientOfItsBias) {
  hs::Parameters<float> frozen(runtime), free(runtime);
  const auto gain = frozen.add("gain", {8}, hs::Role::gain, hs::Init::constant(1.0F));
  const auto bias = free.add("bias", {8}, hs::Role::bias, hs::Init::constant(0.5F));
  hs::Gradients<float> gradients(free, tape);
  tape.begin();
  const auto y = layer_norm(hs::constant<float>(tape, {8, 8}, data), gain, bias);
  tape.backward(squared_error(y, std::vector<float>(64, 0.0F)));
  EXPECT_NE(gradients[bias][0], 0.0F);
}

TEST_F(Tape, ADiamondOfFortyLevelsTakesLinearTime) {
  hs::Parameters<double> store(runtime);
  const auto w = store.add("w", {1}, hs::Role::weight, hs::Init::constant(1.0F));
  hs::Gradients<double> gradients(store, tape);
  tape.begin();
  auto x = use(tape, w);
  for (int i = 0; i < 40; ++i) x = x + x;
  const auto loss = squared_error(x, std::vector{0.0F});
  EXPECT_EQ(loss.sum, 0x1p80);
  tape.backward(loss);
  EXPECT_EQ(gradients[w][0], 0x1p81);
}

TEST_F(Tape, HoldsDualsAsPlanes) {
  tape.begin();
  const auto x = hs::constant<hs::dual<double>>(tape, {3}, std::vector{1.0F, 2.0F, 3.0F});
  EXPECT_EQ(tape.value(x, 0)[2], 3.0);
  EXPECT_EQ(tape.value(x, 1)[2], 0.0);
  EXPECT_EQ(tape.value(x, 1).data() - tape.value(x, 0).data(), 8) << "planes start on a cache line each";
}

TEST_F(Tape, TwoTapesOnTwoThreadsDoNotMeet) {
  const auto run = [](std::vector<float>& out) {
    Setting own;
    hs::Gradients<float> gradients(own.parameters, own.tape);
    for (int i = 0; i < 50; ++i) {
      own.tape.begin();
      own.tape.backward(own.forward());
    }
    out.assign(gradients[own.mlp.up].begin(), gradients[own.mlp.up].end());
  };
  std::vector<float> a, b;
  std::thread first([&] { run(a); }), second([&] { run(b); });
  first.join(), second.join();
  EXPECT_EQ(a, b);
  EXPECT_NE(a[0], 0.0F);
}
