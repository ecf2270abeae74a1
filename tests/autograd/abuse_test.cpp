// SPDX-License-Identifier: MIT
// What nobody means to do to a tape, and some do: a million nodes, failures everywhere, old
// handles.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>
#include <halfstep/autograd/run_chain.hpp>

#include "allocations.hpp"

namespace hs = halfstep;

namespace {

constexpr std::int64_t width = 8, rows = 4;
const std::vector<float> data(rows* width, 0.5F);

struct Planned : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A countdown over every call of the user's code; the one that reaches 0 throws.
struct Fuse {
  int left = std::numeric_limits<int>::max();
  void burn(const char* where) {
    if (--left == 0) throw Planned(where);
  }
};

// The identity, which may fail in forward, replay and backward; keeps its fuse by pointer.
struct Fragile {
  struct Payload {
    Fuse* fuse;
  };
  static void infer(hs::autograd::Infer& c) {
    c.payload<Payload>().fuse->burn("infer");
    c.output<float>(c.input_shape(0));
    c.save<float>(10);
    c.workspace(100, 200);
    c.repeatable();
    c.backward_reads({0}, {});
  }
  static void forward(hs::autograd::Forward& c) {
    c.payload<Payload>().fuse->burn("forward");
    std::copy_n(c.input<float>(0), rows * width, c.output<float>());
  }
  static void backward(hs::autograd::Backward& c) {
    c.payload<Payload>().fuse->burn("backward");
    if (float* const dx = c.input_gradient<float>(0))
      std::copy_n(c.output_gradient<float>(), rows * width, dx);
  }
  static constexpr hs::autograd::Op op{"fragile", &infer, &forward, &backward};
};

// A sink that may fail, and that counts what it is told.
class FragileSink final : public hs::tensor::Sink {
 public:
  FragileSink(hs::Parameters<float>& owner, Fuse& fuse)
      : owner_(owner), fuse_(fuse), sums(static_cast<std::size_t>(owner.count())) {}
  hs::tensor::LeafTarget open(hs::ParameterId id) override {
    fuse_.burn("open");
    ++opened[id.index];
    return {sums.data() + owner_.info(id).offset, false};
  }
  void finish(hs::ParameterId id) override {
    fuse_.burn("finish");
    ++finished[id.index];
  }

 private:
  hs::Parameters<float>& owner_;
  Fuse& fuse_;

 public:
  std::vector<float> sums;
  std::map<std::uint32_t, int> opened, finished;
};

struct Layer {
  using layer_tag = void;
  hs::Parameter<float> weight;
  Fuse* fuse;
  hs::Variable<float> operator()(hs::Variable<float> x) const {
    fuse->burn("callable");
    const auto y = linear(x, weight);
    return x + x.tape->handle<float>(x.tape->record(Fragile::op, {y}, {}, Fragile::Payload{fuse}));
  }
};

// Three weights, one of them used five times; segments within segments, and a chain by a schedule.
struct Model {
  hs::Runtime runtime{{.threads = 1, .seed = 5}};
  hs::Parameters<float> parameters{runtime};
  Fuse fuse;
  std::vector<Layer> layers;
  hs::autograd::Schedule schedule = hs::autograd::revolve(4, 2);
  Model() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back({parameters.add("w" + std::to_string(i), {width, width}, hs::Role::weight,
                                       hs::Init::normal(0.2F)),
                        &fuse});
    }
    layers.push_back(layers[0]);  // shared
    parameters.lay_out();
  }
  hs::Variable<float> operator()(hs::Tape& tape) const {
    auto x = hs::constant<float>(tape, {rows, width}, data);
    x = hs::run_chain(std::span<const Layer>(layers), schedule, x);
    const auto inner =
        hs::owns_its_captures([this](hs::Variable<float> v) { return layers[1](v); });
    const auto outer = hs::owns_its_captures(
        [this, inner](hs::Variable<float> v) { return layers[0](hs::checkpoint(inner, v)); });
    return hs::checkpoint(outer, x);
  }
};

}  // namespace

TEST(Abuse, AMillionNodesAreSweptWithoutRecursion) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<double> parameters(runtime);
  const auto w = parameters.add("w", {1}, hs::Role::weight, hs::Init::constant(1.0F));
  hs::Tape tape(runtime);
  hs::Gradients<double> gradients(parameters, tape);
  tape.begin();
  auto x = use(tape, w);
  const auto one = x;
  for (int i = 0; i < 1'000'000; ++i)
    x = x + one;
  EXPECT_GT(tape.nodes(), 1'000'000U);
  const auto loss = squared_error(x, std::vector{0.0F});
  tape.backward(loss);
  EXPECT_EQ(gradients[w][0], 2.0 * 1'000'001.0 * 1'000'001.0);
}

TEST(Abuse, DiamondsInASegmentTakeLinearTimeToo) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<double> parameters(runtime);
  const auto w = parameters.add("w", {1}, hs::Role::weight, hs::Init::constant(1.0F));
  hs::Tape tape(runtime);
  hs::Gradients<double> gradients(parameters, tape);
  tape.begin();
  auto x = use(tape, w);
  const auto twice = [](hs::Variable<double> v) { return v + v; };
  const auto four = [](hs::Variable<double> v) {
    const auto two = hs::checkpoint([](hs::Variable<double> u) { return u + u; }, v);
    return two + two;
  };
  for (int i = 0; i < 20; ++i)
    x = i % 2 == 0 ? hs::checkpoint(twice, hs::checkpoint(twice, x)) : hs::checkpoint(four, x);
  tape.backward(squared_error(x, std::vector{0.0F}));
  EXPECT_EQ(gradients[w][0], 0x1p81);
}

hs::Keep all_again(std::string_view /*op*/) { return hs::Keep::recompute; }
TEST(Abuse, AFailureOfTheUsersCodeAnywhereLeavesTheTapeUsableAndTheLedgerBalanced) {
  Model model;
  hs::Tape tape(model.runtime);
  tape.keep(all_again);
  FragileSink sink(model.parameters, model.fuse);
  tape.attach(model.parameters, sink);
  const auto step = [&] {
    tape.begin({0, 0, 0, 1});
    tape.backward(squared_error(model(tape), data));
  };
  step();
  const auto right = sink.sums;
  tape.begin();
  const auto live = model.runtime.ledger().live();
  std::map<std::string, int> places;
  int n = 1;
  for (;; ++n) {
    model.fuse.left = n;
    try {
      step();
      break;  // no call is left that could fail
    } catch (const Planned& failure) {
      ++places[failure.what()];
    }
    model.fuse.left = std::numeric_limits<int>::max();
    ASSERT_FALSE(tape.is_replay());
    ASSERT_EQ(model.runtime.ledger().live(hs::core::Category::workspace), 0) << n;
    tape.begin();
    ASSERT_EQ(model.runtime.ledger().live(), live) << n;
    std::fill(sink.sums.begin(), sink.sums.end(), 0.0F);
    step();
    ASSERT_EQ(sink.sums, right) << n;
  }
  for (const char* place : {"infer", "forward", "backward", "callable", "open", "finish"})
    EXPECT_GT(places[place], 1) << place;
  EXPECT_GT(n, 40);
}

TEST(Abuse, AValueThatAFailureKeptFromBeingMadeAgainIsMadeByTheNextRead) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  Fuse fuse;
  const auto x = parameters.add("x", {rows, width}, hs::Role::weight, hs::Init::normal(1.0F));
  hs::Tape tape(runtime);
  FragileSink sink(parameters, fuse);
  tape.attach(parameters, sink);
  tape.keep(all_again);
  tape.begin({0, 0, 0, 1});
  std::vector<hs::Variable<float>> copies{use(tape, x)};
  for (int i = 0; i < 4; ++i) {
    copies.push_back(tape.handle<float>(
        tape.record(Fragile::op, {copies.back()}, {}, Fragile::Payload{&fuse})));
  }
  const auto live = runtime.ledger().live();
  for (const int op : {1, 2}) {  // of the two that run again, the one that fails
    fuse.left = op;
    EXPECT_THROW(tape.settle(copies[2]), Planned);
    EXPECT_EQ(tape.remade_ops(), op - 1);
  }
  fuse.left = std::numeric_limits<int>::max();
  tape.settle(copies[2]);
  EXPECT_GT(runtime.ledger().live(), live);
  EXPECT_TRUE(std::ranges::equal(tape.value(copies[2]), parameters.values(x)));
}

TEST(Abuse, AFailureOfAnyAllocationLeavesTheTapeUsableAndTheLedgerBalanced) {
  const std::vector<float> right = [] {
    Model model;
    hs::Tape tape(model.runtime);
    FragileSink sink(model.parameters, model.fuse);
    tape.attach(model.parameters, sink);
    tape.begin({0, 0, 0, 1});
    tape.backward(squared_error(model(tape), data));
    return sink.sums;
  }();
  int failures = 0;
  for (std::int64_t n = 0;; ++n) {
    Model model;
    hs::Tape tape(model.runtime);
    FragileSink sink(model.parameters, model.fuse);
    tape.attach(model.parameters, sink);
    const auto live = model.runtime.ledger().live();
    const auto step = [&] {
      tape.begin({0, 0, 0, 1});
      tape.backward(squared_error(model(tape), data));
    };
    bool failed = false;
    halfstep_tests::allocations_allowed = halfstep_tests::allocations + n;
    try {
      step();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    halfstep_tests::allocations_allowed = halfstep_tests::unlimited;
    if (!failed) break;
    ++failures;
    tape.begin();
    ASSERT_EQ(model.runtime.ledger().live(), live) << n;
    step();
    ASSERT_EQ(sink.sums, right) << n;
  }
  EXPECT_GT(failures, 30);
}

TEST(Abuse, EveryLeafIsOpenedAndFinishedOnceHoweverManySegmentsUseIt) {
  for (const auto& schedule : {hs::autograd::keep_all(4), hs::autograd::uniform(4, 4),
                               hs::autograd::revolve(4, 1), hs::autograd::mixed(4, 1)}) {
    Model model;
    model.schedule = schedule;
    hs::Tape tape(model.runtime);
    FragileSink sink(model.parameters, model.fuse);
    tape.attach(model.parameters, sink);
    tape.begin({0, 0, 0, 1});
    tape.backward(squared_error(model(tape), data));
    for (std::uint32_t p = 0; p < 3; ++p) {
      EXPECT_EQ(sink.opened[p], 1) << p;
      EXPECT_EQ(sink.finished[p], 1) << p;
    }
  }
}

TEST(Abuse, OldHandlesAreAnErrorWhateverWasDoneSince) {
  Model model;
  hs::Tape tape(model.runtime), other(model.runtime);
  FragileSink sink(model.parameters, model.fuse);
  tape.attach(model.parameters, sink);
  std::mt19937 random(3);
  const auto chance = [&](unsigned of) { return random() % of == 0; };
  struct Known {
    hs::Variable<float> v;
    int pass;
  };
  std::vector<Known> handles;
  int pass = 0, refused = 0, taken = 0;
  bool swept = false;
  const auto layer =
      hs::owns_its_captures([&](hs::Variable<float> v) { return model.layers[0](v); });
  tape.begin({0, 0, 0, 1});
  for (int i = 0; i < 20'000; ++i) {
    if (chance(20)) {
      tape.begin({0, 0, 0, 1});
      ++pass;
      swept = false;
    }
    if (!swept && chance(3))
      handles.push_back({hs::constant<float>(tape, {rows, width}, data), pass});
    if (handles.empty()) continue;
    const Known known = handles[random() % handles.size()];
    const bool good = known.pass == pass && !swept;
    try {
      const auto made = chance(2) ? hs::checkpoint(layer, known.v) : known.v + known.v;
      ASSERT_TRUE(good) << i;
      handles.push_back({made, pass});
      ++taken;
      if (chance(10)) {
        tape.backward(squared_error(model.layers[1](made), data));
        swept = true;
      }
    } catch (const hs::StateError&) {
      ASSERT_FALSE(good) << i;
      ++refused;
    }
    EXPECT_THROW((void)other.value(known.v), hs::StateError);
    if (handles.size() > 50) handles.erase(handles.begin(), handles.begin() + 25);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(taken, 1000);
}

TEST(Abuse, TapesOfSeveralThreadsWithSegmentsDoNotMeet) {
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&result] {
      Model model;
      hs::Tape tape(model.runtime);
      FragileSink sink(model.parameters, model.fuse);
      tape.attach(model.parameters, sink);
      for (int i = 0; i < 30; ++i) {
        tape.begin({i, 0, 0, 1});
        tape.backward(squared_error(model(tape), data));
      }
      result = sink.sums;
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_NE(results[0][0], 0.0F);
}

TEST(Abuse, AScheduledChainAllocatesNothingAfterTheSecondStep) {
  Model model;
  hs::Tape tape(model.runtime);
  FragileSink sink(model.parameters, model.fuse);
  tape.attach(model.parameters, sink);
  const auto step = [&] {
    tape.begin({0, 0, 0, 1});
    tape.backward(squared_error(model(tape), data));
  };
  step(), step();
  halfstep_tests::allocations_allowed = halfstep_tests::allocations.load();
  bool none = true;
  try {
    step(), step();
  } catch (const std::bad_alloc&) {
    none = false;
  }
  halfstep_tests::allocations_allowed = halfstep_tests::unlimited;
  EXPECT_TRUE(none);
}
