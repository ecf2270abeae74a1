// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/cast.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>

#include "allocations.hpp"

namespace hs = halfstep;

namespace {

using halfstep_tests::allocations;

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
      EXPECT_EQ(segments.replayed, 2 * last) << "up to the GELU's input: one op a block, two steps";
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
  EXPECT_NE(message([&] { tape.backward(loss); }).find("op 1 was 'gelu' [16, 96] in F32 and is 'linear' [16, 24] in F32"), std::string::npos);
  tape.begin();  // usable again
  tape.backward(squared_error(block(hs::constant<float>(tape, {rows, width}, data)), data));
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::recompute), 0);
}

TEST(Checkpoint, CallablesMayOwnMemory) {
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
  EXPECT_EQ(tape.replayed_ops(), 2 * 6);
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
  tape.settle();
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

namespace {

// A store, a tape and what a test looks at.
struct Bench {
  hs::Runtime runtime{{.threads = 1, .seed = 9}};
  hs::Parameters<float> parameters{runtime};
  Block<float> block{parameters.scope() / "a", width}, other{parameters.scope() / "b", width};
  hs::Tape tape{runtime};
  hs::Gradients<float> gradients{parameters, tape};

  hs::Variable<float> begin() {
    gradients.clear();
    tape.begin({0, 0, 0, 4});
    return hs::constant<float>(tape, {rows, width}, data);
  }
  std::vector<float> sweep(hs::Variable<float> x) {
    tape.backward(squared_error(x, data));
    std::vector<float> all;
    for (std::uint32_t p = 0; p < parameters.size(); ++p) {
      all.insert(all.end(), gradients[hs::ParameterId{p}].begin(), gradients[hs::ParameterId{p}].end());
    }
    return all;
  }
};

}  // namespace

TEST(Checkpoint, TakesSeveralInputsAndGivesSeveralOutputs) {
  Bench b;
  const auto both = hs::owns_its_captures([&](hs::Variable<float> x, hs::Variable<float> y) {
    const auto u = b.block(x + y);
    return std::pair(u, b.other(u));
  });
  const auto run = [&](bool segment) {
    const auto x = b.begin();
    const auto y = b.block(x);
    const auto [u, v] = segment ? hs::checkpoint(both, x, y) : both(x, y);
    return b.sweep(u + v);
  };
  const auto plain = run(false);
  EXPECT_EQ(b.tape.replayed_ops(), 0);
  EXPECT_EQ(run(true), plain);
  EXPECT_EQ(b.tape.replayed_ops(), 1 + 5 + 1);
}

TEST(Checkpoint, OutputsOfOtherFormatsAndUnusedOnesAreFine) {
  Bench b;
  const auto three = [](hs::Variable<float> x) {
    const auto y = gelu(x);
    return std::tuple(hs::cast<double>(y), y + y, x);
  };
  const auto run = [&](bool segment) {
    const auto x = b.block(b.begin());
    const auto result = segment ? hs::checkpoint(three, x) : three(x);
    return b.sweep(hs::cast<float>(std::get<0>(result)) + std::get<2>(result));
  };
  const auto plain = run(false);
  EXPECT_EQ(run(true), plain);
  const auto array = [](hs::Variable<float> x) { return std::array{gelu(x), x * x}; };
  const auto of_array = [&](bool segment) {
    const auto x = b.block(b.begin());
    const auto result = segment ? hs::checkpoint(array, x) : array(x);
    return b.sweep(result[0] + result[1]);
  };
  EXPECT_EQ(of_array(true), of_array(false));
}

TEST(Checkpoint, TheSameVariableReturnedTwiceGetsBothGradients) {
  Bench b;
  const auto twice = hs::owns_its_captures([&](hs::Variable<float> x) {
    const auto y = b.other(x);
    return std::pair(y, y);
  });
  const auto run = [&](bool segment) {
    const auto x = b.block(b.begin());
    const auto [u, v] = segment ? hs::checkpoint(twice, x) : twice(x);
    return b.sweep(u * v);
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, SegmentsNestAndAreReplayedFromTheOutsideIn) {
  Bench b;
  const auto inner = hs::owns_its_captures([&](hs::Variable<float> x) { return b.block(x); });
  const auto outer = hs::owns_its_captures([&](hs::Variable<float> x) { return b.other(hs::checkpoint(inner, hs::checkpoint(inner, x))); });
  const auto run = [&](bool segment) {
    const auto x = b.begin();
    return b.sweep(segment ? hs::checkpoint(outer, x) : b.other(b.block(b.block(x))));
  };
  const auto plain = run(false);
  EXPECT_EQ(run(true), plain);
  // The outer one's second run: both inner ones whole and an op of `other`; then each inner one.
  EXPECT_EQ(b.tape.replayed_ops(), (5 + 5 + 1) + 1 + 1);
  // x is read by the inner and the outer region, each op of the inner ran three times in all.
  int calls = 0;
  const auto add = hs::owns_its_captures([&](hs::Variable<float> x) {
    ++calls;
    return gelu(x);
  });
  const auto around = hs::owns_its_captures([&](hs::Variable<float> x) { return gelu(hs::checkpoint(add, x)); });
  const auto y = b.block(b.begin());
  (void)b.sweep(hs::checkpoint(around, y));
  EXPECT_EQ(calls, 3);
}

TEST(Checkpoint, ADeepNestReplaysEachLevelOnce) {
  // Wrapping the first half and recursing on both: n/2 log2(n) evaluations more.
  Bench b;
  int calls = 0;
  const std::function<hs::Variable<float>(hs::Variable<float>, int)> halves = [&](hs::Variable<float> x, int n) {
    if (n == 1) {
      ++calls;
      return b.block(x);
    }
    const auto first = hs::owns_its_captures([&, n](hs::Variable<float> v) { return halves(v, n / 2); });
    return halves(hs::checkpoint(first, x), n / 2);
  };
  std::vector<float> plain;
  for (const int n : {4, 8, 16}) {
    auto x = b.begin();
    for (int i = 0; i < n; ++i) x = b.block(x);
    plain = b.sweep(x);
    calls = 0;
    EXPECT_EQ(b.sweep(halves(b.begin(), n)), plain);
    const int levels = n == 4 ? 2 : n == 8 ? 3 : 4;
    EXPECT_EQ(calls, n + n / 2 * levels);
  }
}

TEST(Checkpoint, VariablesThatACallableCapturedGetTheirGradients) {
  Bench b;
  const auto run = [&](bool segment) {
    const auto x = b.begin();
    const auto captured = b.block(x);
    const auto uses = hs::owns_its_captures([&b, captured](hs::Variable<float> v) { return b.other(v * captured); });
    return b.sweep((segment ? hs::checkpoint(uses, x) : uses(x)) + captured);
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, FrozenParametersLeaveTheOthersTheirGradients) {
  // A frozen layer, then two in segments: nothing before them wants a gradient.
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> frozen(runtime), free(runtime);
  const Block<float> first(frozen, width);
  const auto up = free.add("up", {width, width}, hs::Role::weight, hs::Init::normal(0.1F));
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(free, tape);
  const auto layer = hs::owns_its_captures([&](hs::Variable<float> x) { return gelu(linear(first(x), up)); });
  const auto run = [&](bool segment) {
    tape.begin({0, 0, 0, 4});
    const auto x = first(hs::constant<float>(tape, {rows, width}, data));
    tape.backward(squared_error(segment ? hs::checkpoint(layer, hs::checkpoint(layer, x)) : layer(layer(x)), data));
    return std::vector<float>(gradients[up].begin(), gradients[up].end());
  };
  const auto plain = run(false);
  EXPECT_NE(plain[0], 0.0F);
  EXPECT_EQ(run(true), plain);
}

TEST(Checkpoint, AParameterUsedInsideAndOutsideIsFinishedOnce) {
  Bench b;
  const auto run = [&](bool segment) {
    const auto x = b.begin();
    const auto y = segment ? hs::checkpoint(b.block, hs::checkpoint(b.block, x)) : b.block(b.block(x));
    return b.sweep(b.block(y));
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Checkpoint, AHashOfValuesFindsWhatShapesDoNotShow) {
  Bench b;
  float factor = 1.0F;
  const auto fickle = hs::owns_its_captures([&](hs::Variable<float> x) {
    const std::vector<float> other(static_cast<std::size_t>(rows * width), factor++);
    return b.block(x * hs::constant<float>(b.tape, {rows, width}, other));
  });
  EXPECT_NO_THROW((void)b.sweep(hs::checkpoint(fickle, b.begin()))) << "shapes are the same";
  const auto text = message([&] { (void)b.sweep(hs::checkpoint({.hash_values = true}, fickle, b.begin())); });
  EXPECT_NE(text.find("op 0, 'constant' [16, 24], computes other values the second time"), std::string::npos) << text;
  const auto plain = b.sweep(b.block(b.begin()));
  const auto before = b.tape.replayed_ops();
  EXPECT_EQ(b.sweep(hs::checkpoint({.hash_values = true}, b.block, b.begin())), plain);
  EXPECT_EQ(b.tape.replayed_ops() - before, 5) << "with a hash no op is left out";
  const auto nested = hs::owns_its_captures([&](hs::Variable<float> x) { return hs::checkpoint({.hash_values = true}, fickle, x); });
  EXPECT_NE(message([&] { (void)b.sweep(hs::checkpoint(nested, b.begin())); }).find("'constant'"), std::string::npos);
}

TEST(Checkpoint, WhatTheCallableReadsIsComputedAgain) {
  Bench b;
  const auto reads = hs::owns_its_captures([&](hs::Variable<float> x) {
    const auto y = b.block(x);
    (void)y.value();
    return y;
  });
  (void)b.sweep(hs::checkpoint(reads, b.begin()));
  EXPECT_EQ(b.tape.replayed_ops(), 5) << "the block's output was looked at, so all of it runs again";
}

TYPED_TEST(CheckpointIn, WhatTheCallableReadsHasTheSameBitsBothTimes) {
  using T = TypeParam;
  hs::Runtime runtime({.threads = 2, .seed = 9});
  hs::Parameters<T> parameters(runtime);
  const Block<T> block(parameters, width);
  hs::Tape tape(runtime);
  hs::Gradients<T> gradients(parameters, tape);
  tape.set_seed(0x1p-8);
  // By run: the activations within the block, its dropped output and the sum.
  std::vector<std::vector<T>> seen;
  const auto reads = hs::owns_its_captures([&](hs::Variable<T> x) {
    const auto hidden = gelu(linear(x, block.up));
    const auto y = dropout(linear(hidden, block.down), 0.25F, block.stream);
    const auto sum = x + y;
    seen.emplace_back();
    for (const auto& v : {hidden, y, sum})
      seen.back().insert(seen.back().end(), v.value().begin(), v.value().end());
    return sum;
  });
  for (int sample = 0; sample < 2; ++sample) {
    tape.begin({0, 0, sample * 4, 4});
    const auto x = hs::checkpoint(reads, hs::constant<T>(tape, {rows, width}, data));
    tape.backward(squared_error(x, data));
  }
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].size(), static_cast<std::size_t>(rows * width * 6));
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[3], seen[2]);
  EXPECT_NE(seen[2], seen[0]) << "another sample draws another mask";
}

TEST(Checkpoint, AnotherShapeTheSecondTimeIsNamed) {
  Bench b;
  int calls = 0;
  const auto fickle = hs::owns_its_captures([&](hs::Variable<float> x) {
    const auto y = linear(gelu(linear(x, b.block.up)), b.block.down);
    return ++calls == 1 ? y : y + x;
  });
  EXPECT_NE(message([&] { (void)b.sweep(hs::checkpoint(fickle, b.begin())); }).find("op 3 was nothing and is 'add' [16, 24] in F32"),
            std::string::npos);
}

TEST(Checkpoint, AnExceptionInAReplayLeavesTheTapeUsableAndTheLedgerBalanced) {
  Bench b;
  const auto live = b.runtime.ledger().live();
  int calls = 0;
  for (const int throw_at : {2, 3, 4}) {
    const auto inner = hs::owns_its_captures([&](hs::Variable<float> x) {
      const auto y = b.block(x);
      if (++calls == throw_at) throw std::runtime_error("user");
      return y;
    });
    const auto outer = hs::owns_its_captures([&](hs::Variable<float> x) { return b.other(hs::checkpoint(inner, x)); });
    calls = 0;
    const auto x = b.begin();
    const auto y = hs::checkpoint(outer, x);
    if (throw_at <= 3) {
      EXPECT_THROW((void)b.sweep(y), std::runtime_error) << throw_at;
    } else {
      EXPECT_NO_THROW((void)b.sweep(y)) << "three runs in all";
    }
    EXPECT_FALSE(b.tape.is_replay());
    b.tape.begin({0, 0, 0, 4});
    EXPECT_EQ(b.runtime.ledger().live(), live);
  }
  const auto plain = b.sweep(b.other(b.block(b.begin())));
  const auto whole = hs::owns_its_captures([&](hs::Variable<float> x) { return b.other(hs::checkpoint(b.block, x)); });
  EXPECT_EQ(b.sweep(hs::checkpoint(whole, b.begin())), plain);
}

TEST(Checkpoint, HandlesFromInsideOfASegmentAreStale) {
  Bench b;
  hs::Variable<float> leaked;
  const auto leaks = hs::owns_its_captures([&](hs::Variable<float> x) {
    leaked = gelu(x);
    return b.block(leaked);
  });
  (void)hs::checkpoint(leaks, b.begin());
  EXPECT_NE(message([&] { (void)gelu(leaked); }).find("belongs to a segment that has been left"), std::string::npos);
}

TEST(Checkpoint, AThousandStepsLeaveNothingBehind) {
  Bench b;
  const auto inner = hs::owns_its_captures([&](hs::Variable<float> x) { return b.other(hs::checkpoint(b.block, x)); });
  (void)b.sweep(hs::checkpoint(inner, b.begin()));
  b.tape.begin();
  const auto live = b.runtime.ledger().live();
  for (int i = 0; i < 1000; ++i) (void)b.sweep(hs::checkpoint(inner, b.begin()));
  b.tape.begin();
  EXPECT_EQ(b.runtime.ledger().live(), live);
}

TEST(Checkpoint, ASegmentThatNothingUsesGivesItsParametersNoGradient) {
  Bench b;
  const auto x = b.begin();
  (void)hs::checkpoint(b.other, x);
  (void)b.sweep(hs::checkpoint(b.block, x));
  EXPECT_EQ(b.gradients[b.other.up][0], 0.0F);
  EXPECT_NE(b.gradients[b.block.up][0], 0.0F);
}

TEST(Checkpoint, AnOpWhoseBackwardReadsMoreThanItDeclaresIsNamed) {
  struct Greedy {
    static void infer(hs::autograd::Infer& c) {
      c.output<float>(c.input_shape(0));
      c.backward_reads({}, {});
    }
    static void forward(hs::autograd::Forward& c) { std::copy_n(c.input<float>(0), width * rows, c.output<float>()); }
    static void backward(hs::autograd::Backward& c) {
      const float* const y = c.output<float>();
      for (std::int64_t i = 0; i < width * rows; ++i) c.input_gradient<float>(0)[i] = y[i] * c.output_gradient<float>()[i];
    }
  };
  static constexpr hs::autograd::Op op{"greedy", &Greedy::infer, &Greedy::forward, &Greedy::backward};
  Bench b;
  const auto greedy = hs::owns_its_captures([&](hs::Variable<float> x) {
    return b.tape.handle<float>(b.tape.record(op, {b.block(x)}, {}, hs::autograd::NoPayload{}));
  });
  EXPECT_NE(message([&] { (void)b.sweep(hs::checkpoint(greedy, b.begin())); }).find("greedy: backward reads"), std::string::npos);
}

TEST(Checkpoint, NothingIsAllocatedAfterTheSecondStep) {
  Bench b;
  const auto inner = hs::owns_its_captures([&](hs::Variable<float> x) { return b.other(hs::checkpoint(b.block, x)); });
  const auto step = [&] {
    auto x = b.begin();
    for (int i = 0; i < 3; ++i) x = hs::checkpoint(inner, x);
    b.tape.backward(squared_error(x, data));
  };
  step(), step();
  const std::int64_t before = allocations;
  step(), step();
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(before, 0);
}
