// SPDX-License-Identifier: MIT
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>

namespace hs = halfstep;

namespace {

template <class T>
struct Block {
  using layer_tag = void;
  hs::Parameter<T> up, down;
  std::uint64_t stream;
  Block(hs::Scope<T> s, std::int64_t width)
      : up(s.add("up", {4 * width, width}, hs::Role::weight, hs::Init::normal(0.1F))),
        down(s.add("down", {width, 4 * width}, hs::Role::weight, hs::Init::normal(0.1F))),
        stream(hs::core::stream(s.name(), "dropout")) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const {
    return x + dropout(linear(gelu(linear(x, up)), down), 0.25F, stream);
  }
};

constexpr std::int64_t width = 24;
constexpr std::int64_t rows = 16;
const std::vector<float> data = [] {
  std::vector<float> out(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 13) / 6.0F - 1.0F;
  return out;
}();

struct Outcome {
  std::vector<float> gradients;
  std::int64_t peak = 0, replayed = 0;
  double loss = 0.0;
};

// Eight blocks, of which those before `last` are segments.
template <class T>
Outcome run(int last, int threads, hs::Tape::Mode mode = hs::Tape::Mode::real) {
  hs::Runtime runtime({.threads = threads, .seed = 9});
  hs::Parameters<T> parameters(runtime);
  std::vector<Block<T>> blocks;
  for (int b = 0; b < 8; ++b) blocks.emplace_back(parameters.scope() / "blocks" / b, width);
  hs::Tape tape(runtime, mode);
  hs::Gradients<T> gradients(parameters, tape);
  if (mode == hs::Tape::Mode::dry) tape.detach(parameters, gradients);
  tape.set_seed(0x1p-8);  // keeps the gradients of fp16 within its range
  Outcome result;
  for (int step = 0; step < 2; ++step) {
    const auto live = tape.ledger().live();
    tape.ledger().restart_peaks();
    tape.begin({step, 0, step * 4, 4});
    auto x = hs::constant<T>(tape, {rows, width}, data);
    for (int b = 0; b < 8; ++b) x = b < last ? hs::checkpoint(blocks[static_cast<std::size_t>(b)], x) : blocks[static_cast<std::size_t>(b)](x);
    const auto loss = squared_error(x, data);
    tape.backward(loss);
    result.loss = loss.sum;
    result.peak = tape.ledger().peak() - live;
    EXPECT_EQ(tape.ledger().live(), live);
  }
  result.replayed = tape.replayed_ops();
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    const auto g = gradients[hs::ParameterId{p}];
    result.gradients.insert(result.gradients.end(), g.begin(), g.end());
  }
  return result;
}

std::string message(const auto& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

template <class T>
class CheckpointIn : public testing::Test {};
using Formats = testing::Types<float, hs::bf16, hs::fp16>;
TYPED_TEST_SUITE(CheckpointIn, Formats);

TYPED_TEST(CheckpointIn, SegmentsChangeNoBitOfLossOrGradientsAndLowerThePeak) {
  const Outcome none = run<TypeParam>(0, 1);
  EXPECT_EQ(none.replayed, 0);
  for (const float g : none.gradients) ASSERT_TRUE(std::isfinite(g));
  std::int64_t peak = none.peak;
  for (const int last : {1, 4, 7}) {
    for (const int threads : {1, 2}) {
      const Outcome segments = run<TypeParam>(last, threads);
      EXPECT_EQ(segments.gradients, none.gradients);
      EXPECT_EQ(segments.loss, none.loss);
      EXPECT_EQ(segments.replayed, 2 * last * 5) << "five ops a block, two steps";
      if (threads == 1) {
        EXPECT_LT(segments.peak, peak);
        peak = segments.peak;
      }
    }
  }
}

TEST(Checkpoint, ADryRunPredictsThePeakOfReplaysToo) {
  for (const int last : {0, 3, 7}) {
    const Outcome real = run<float>(last, 2), dry = run<float>(last, 2, hs::Tape::Mode::dry);
    EXPECT_EQ(real.peak, dry.peak);
    EXPECT_EQ(real.replayed, dry.replayed);
  }
}

TEST(Checkpoint, AnotherMaskWouldShow) {
  // The counterpart of equality: the mask matters, so a replay that drew another would differ.
  hs::Runtime runtime({.threads = 1});
  hs::Tape tape(runtime);
  tape.begin({0, 0, 0, 4});
  const auto a = dropout(hs::constant<float>(tape, {rows, width}, data), 0.25F, 7);
  const std::vector<float> first(a.value().begin(), a.value().end());
  tape.begin({0, 0, 4, 4});
  const auto b = dropout(hs::constant<float>(tape, {rows, width}, data), 0.25F, 7);
  EXPECT_NE(first, std::vector<float>(b.value().begin(), b.value().end()));
}

TEST(Checkpoint, ACallableThatDiffersTheSecondTimeIsNamedByItsFirstOp) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  int calls = 0;
  const auto fickle = hs::owns_its_captures([&](hs::Variable<float> x) {
    return ++calls == 1 ? linear(gelu(linear(x, block.up)), block.down) : linear(linear(x, block.up), block.down);
  });
  tape.begin();
  const auto loss = squared_error(hs::checkpoint(fickle, hs::constant<float>(tape, {rows, width}, data)), data);
  EXPECT_NE(message([&] { tape.backward(loss); }).find("op 1 was 'gelu' [16, 96] and is 'linear' [16, 24]"), std::string::npos);
  tape.begin();  // usable again
  tape.backward(squared_error(block(hs::constant<float>(tape, {rows, width}, data)), data));
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::recompute), 0);
}

TEST(Checkpoint, CallablesThatOwnMemoryMoveWithTheirSegments) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  const auto owning = hs::owns_its_captures(
      [blocks = std::vector<Block<float>>(3, block)](hs::Variable<float> x) { return blocks[2](x); });
  for (int step = 0; step < 2; ++step) {
    tape.begin({step, 0, 4 * step, 4});
    auto x = hs::constant<float>(tape, {rows, width}, data);
    for (int segment = 0; segment < 6; ++segment) x = hs::checkpoint(owning, x);
    tape.backward(squared_error(x, data));
  }
  EXPECT_EQ(tape.replayed_ops(), 2 * 6 * 5);
}

TEST(Checkpoint, ASecondRunThatReturnsAnotherVariableIsNoticed) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  int calls = 0;
  const auto fickle = hs::owns_its_captures([&](hs::Variable<float> x) {
    const auto a = block(x), b = block(a);
    return ++calls == 1 ? b : a;
  });
  tape.begin({0, 0, 0, 4});
  const auto loss = squared_error(hs::checkpoint(fickle, hs::constant<float>(tape, {rows, width}, data)), data);
  EXPECT_NE(message([&] { tape.backward(loss); }).find("returns another variable"), std::string::npos);
}

TEST(Checkpoint, AWriteBetweenForwardAndReplayIsNamed) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin();
  const auto loss = squared_error(hs::checkpoint(block, hs::constant<float>(tape, {rows, width}, data)), data);
  parameters.write(block.up.id)[0] = 1.0F;
  EXPECT_NE(message([&] { tape.backward(loss); }).find("'up' at version 1, the first read 'up' at version 0"), std::string::npos);
}

TEST(Checkpoint, ASegmentThatThrowsLeavesTheTapeAsItWas) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  tape.begin();
  const auto x = block(hs::constant<float>(tape, {rows, width}, data));
  const auto live = runtime.ledger().live();
  const auto nodes = tape.nodes();
  const auto throwing = hs::owns_its_captures([&](hs::Variable<float> v) -> hs::Variable<float> {
    (void)linear(v, block.up);
    throw std::runtime_error("user");
  });
  EXPECT_THROW((void)hs::checkpoint(throwing, x), std::runtime_error);
  EXPECT_EQ(runtime.ledger().live(), live);
  EXPECT_EQ(tape.nodes(), nodes);
  tape.backward(squared_error(x, data));
  EXPECT_NE(gradients[block.up][0], 0.0F) << "the use inside the segment that threw was still waited for";
}

TEST(Checkpoint, SideEffectsCanSeeTheReplay) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Block<float> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  int calls = 0, effects = 0;
  const auto counted = hs::owns_its_captures([&](hs::Variable<float> x) {
    ++calls;
    if (!tape.is_replay()) ++effects;
    return block(x);
  });
  tape.begin();
  tape.backward(squared_error(hs::checkpoint(counted, hs::constant<float>(tape, {rows, width}, data)), data));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(effects, 1);
  tape.begin({}, hs::Record::nothing);
  (void)hs::checkpoint(counted, hs::constant<float>(tape, {rows, width}, data));
  EXPECT_EQ(calls, 3) << "evaluation records no segment";
}
