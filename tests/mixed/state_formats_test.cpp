// SPDX-License-Identifier: MIT
#include <halfstep/mixed/state_formats.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/core/isa.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/memory.hpp>

#include <optim/given_gradients.hpp>

namespace {

using namespace halfstep;
using halfstep_tests::GivenGradients;
using mixed::FloatMaster;
using mixed::Kahan;
using mixed::MasterWeights;
using mixed::SplitMaster;
using mixed::Stochastic;
using optim::AdamW;
using optim::AdamWOptions;
using optim::Bytes;
using optim::Sgd;
using optim::SgdOptions;

// Bytes of weights, gradients, masters, moments: figures of the compiler.
template <class T, class State>
inline constexpr Bytes adamw = MasterWeights<AdamW, T, State>::bytes_per_parameter();
static_assert(adamw<float, FloatMaster<>> == Bytes{4, 4, 0, 8});
static_assert(adamw<float, FloatMaster<>>.total() == 16);
static_assert(adamw<double, FloatMaster<>>.total() == 32);
static_assert(adamw<bf16, FloatMaster<>> == Bytes{2, 4, 4, 8});
static_assert(adamw<bf16, FloatMaster<>>.total() == 18);
static_assert(adamw<fp16, FloatMaster<>>.total() == 18);
// Megatron's 20 for fp16 has a 16-bit copy beside the float gradients. Here gradients leave the
// tape in float, so there is none; a packed 16-bit copy of the weights makes the figure 20 too.
static_assert(adamw<fp16, FloatMaster<>>.with_packed(2) == 20);
static_assert(adamw<float, FloatMaster<bf16>>.total() == 12);
static_assert(adamw<bf16, FloatMaster<bf16>>.total() == 14);
static_assert(adamw<bf16, FloatMaster<bf16, float>>.total() == 16);
static_assert(adamw<bf16, SplitMaster<>> == Bytes{2, 4, 2, 8});
static_assert(adamw<bf16, SplitMaster<>>.total() == 16);
static_assert(adamw<bf16, SplitMaster<float, float, bf16>>.total() == 14);
static_assert(adamw<bf16, SplitMaster<bf16>>.total() == 12);
static_assert(adamw<bf16, Kahan<bf16, bf16, bf16>>.total() == 10);
static_assert(adamw<bf16, Kahan<>>.total() == 16);
static_assert(adamw<bf16, Stochastic<bf16, bf16, bf16>>.total() == 8);
static_assert(adamw<bf16, Stochastic<float, float, bf16>>.total() == 12);
static_assert(adamw<fp16, Stochastic<>>.total() == 14);
static_assert(MasterWeights<Sgd, bf16, SplitMaster<>>::bytes_per_parameter().total() == 8);
static_assert(
    MasterWeights<Sgd, bf16, SplitMaster<>>::bytes_per_parameter({.momentum = 0.9}).total() == 12);

static_assert(optim::optimizer<MasterWeights<AdamW, bf16, SplitMaster<>>, GivenGradients<float>>);
static_assert(optim::optimizer<MasterWeights<Sgd, fp16, Kahan<fp16>>, GivenGradients<float>>);
static_assert(optim::optimizer<MasterWeights<AdamW, bf16, Stochastic<bf16, bf16, bf16>>,
                               GivenGradients<bf16>>);
static_assert(
    optim::optimizer<MasterWeights<AdamW, float, FloatMaster<bf16>>, GivenGradients<float>>);

template <class T>
struct Model {
  explicit Model(Scope<T> scope)
      : weight(scope.add("weight", {3, 400}, Role::weight, Init::normal(0.02F))),
        gain(scope.add("gain", {7}, Role::gain, Init::constant(1.0F))) {}
  Parameter<T> weight, gain;
};
template <class T>
struct Bench {
  explicit Bench(const RuntimeOptions& options = {.threads = 2}) : runtime(options) {}
  Runtime runtime;
  Parameters<T> parameters{runtime};
  Model<T> model{parameters.scope() / "layer"};
};
template <class G, class T>
GivenGradients<G> gradients(Bench<T>& bench, int step, float size = 1e-3F) {
  std::vector<G> g;
  for (std::size_t i = 0; i < static_cast<std::size_t>(bench.parameters.count()); ++i)
    g.push_back(
        G(size * (static_cast<float>((i * 7 + static_cast<std::size_t>(step)) % 23) - 11.0F)));
  return {bench.parameters, std::move(g)};
}
template <class T>
std::vector<std::uint16_t> bits(Bench<T>& bench) {
  std::vector<std::uint16_t> out;
  for (std::uint32_t i = 0; i < bench.parameters.size(); ++i)
    for (const T x : bench.parameters.values(ParameterId{i}))
      out.push_back(x.bits());
  return out;
}

template <template <class> class O, class W, class S>
struct Case {
  template <class X>
  using Optimizer = O<X>;
  using T = W;
  using State = S;
  using G = typename S::gradient;
  using Under = MasterWeights<O, W, S>;
};
template <class Case>
struct States : testing::Test {};
using Cases =
    testing::Types<Case<AdamW, bf16, FloatMaster<bf16, float>>, Case<AdamW, bf16, SplitMaster<>>,
                   Case<Sgd, bf16, SplitMaster<fp16, fp16, bf16>>,
                   Case<AdamW, bf16, Kahan<bf16, bf16, bf16>>, Case<AdamW, fp16, Kahan<>>,
                   Case<AdamW, bf16, Stochastic<bf16, bf16, bf16>>,
                   Case<Sgd, fp16, Stochastic<fp16>>>;
TYPED_TEST_SUITE(States, Cases);

template <class Options>
Options options_of() {
  if constexpr (std::is_same_v<Options, SgdOptions>) {
    return {.momentum = 0.9, .weight_decay = 0.1};
  } else {
    return {.weight_decay = 0.1};
  }
}

TYPED_TEST(States, TakeWhatTheCompilerSaysToTheByte) {
  using U = typename TypeParam::Under;
  Bench<typename TypeParam::T> bench;
  const auto options = options_of<typename U::Options>();
  U optimizer(bench.parameters, options);
  const auto n = bench.parameters.count();
  const tensor::Memory<typename TypeParam::G> gradient(bench.runtime.ledger(),
                                                       core::Category::gradients, n);
  const Bytes each = U::bytes_per_parameter(options);
  const auto& ledger = bench.runtime.ledger();
  EXPECT_EQ(ledger.live(core::Category::weights), each.weights * n);
  EXPECT_EQ(ledger.live(core::Category::gradients), each.gradients * n);
  EXPECT_EQ(ledger.live(core::Category::master), each.master * n);
  EXPECT_EQ(ledger.live(core::Category::moments), each.moments * n);
  EXPECT_EQ(ledger.live(), each.total() * n);
  const Bytes all = optimizer.bytes();
  EXPECT_EQ(all, (Bytes{each.weights * n, each.gradients * n, each.master * n, each.moments * n}));
  const tensor::Memory<typename TypeParam::T> packed(bench.runtime.ledger(), core::Category::packed,
                                                     n);
  EXPECT_EQ(ledger.live(), each.with_packed(2) * n);
}
TYPED_TEST(States, GiveTheSameBitsOnEveryPathAndNumberOfThreads) {
  using U = typename TypeParam::Under;
  const auto run = [](core::Isa isa, int threads, std::uint64_t seed = 1) {
    Bench<typename TypeParam::T> bench({.threads = threads, .seed = seed, .isa = isa});
    U optimizer(bench.parameters, options_of<typename U::Options>());
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(optimizer.step(gradients<typename TypeParam::G>(bench, i), 1e-3F));
    return std::pair(optimizer.weights_hash(), tensor::state_hash(optimizer));
  };
  const auto wanted = run(core::Isa::portable, 1);
  for (const auto isa : core::available_isas()) {
    for (const int threads : {1, 2, 3})
      EXPECT_EQ(run(isa, threads), wanted) << core::to_string(isa) << ' ' << threads;
  }
  EXPECT_NE(run(core::Isa::portable, 1, 2), wanted);
}
TYPED_TEST(States, ASkippedStepChangesNoBitAndNoLaterDraw) {
  using U = typename TypeParam::Under;
  using G = typename TypeParam::G;
  Bench<typename TypeParam::T> bench, peer;
  U optimizer(bench.parameters, options_of<typename U::Options>());
  U other(peer.parameters, options_of<typename U::Options>());
  ASSERT_TRUE(optimizer.step(gradients<G>(bench, 0), 1e-3F));
  ASSERT_TRUE(other.step(gradients<G>(peer, 0), 1e-3F));
  const auto weights = bits(bench);
  const auto state = tensor::state_hash(optimizer);
  auto bad = gradients<G>(bench, 1);
  bad.outcome.applied = false;
  bad.outcome.why = optim::Skip::non_finite;
  EXPECT_FALSE(optimizer.step(std::move(bad), 1e-3F));
  EXPECT_EQ(bits(bench), weights);
  EXPECT_EQ(tensor::state_hash(optimizer), state);
  EXPECT_EQ(optimizer.steps(), 1);
  ASSERT_TRUE(optimizer.step(gradients<G>(bench, 2), 1e-3F));
  ASSERT_TRUE(other.step(gradients<G>(peer, 2), 1e-3F));
  EXPECT_EQ(bits(bench), bits(peer));
  EXPECT_NE(bits(bench), weights);
}

/// Copies state out of one and into another, as it is: a changed format would not fit.
struct Copying {
  std::map<std::string, std::pair<std::string, std::vector<std::byte>>> tensors;
  std::map<std::string, std::int64_t> integers;
  bool load = false;
  void tensor(const tensor::StateTensor& t) {
    auto& kept = tensors[std::string(t.name)];
    const std::string format = core::text(numeric::to_string(t.dtype), ' ', to_string(t.shape));
    if (load) {
      ASSERT_EQ(kept.first, format) << t.name;
      ASSERT_EQ(kept.second.size(), t.bytes.size()) << t.name;
      std::copy(kept.second.begin(), kept.second.end(), t.bytes.begin());
    } else {
      kept = {format, {t.bytes.begin(), t.bytes.end()}};
    }
  }
  void scalar(std::string_view name, std::int64_t& value) {
    (load ? value : integers[std::string(name)]) = load ? integers[std::string(name)] : value;
  }
  void scalar(std::string_view, double&) {}
};
TYPED_TEST(States, ContinueFromTheirStateBitForBitWhateverIsLoadedFirst) {
  using U = typename TypeParam::Under;
  using G = typename TypeParam::G;
  Bench<typename TypeParam::T> through, cold;
  U a(through.parameters, options_of<typename U::Options>());
  U c(cold.parameters, options_of<typename U::Options>());
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(a.step(gradients<G>(through, i), 1e-3F));
  Copying weights, state;
  through.parameters.visit_state(weights);
  a.visit_state(state);
  weights.load = state.load = true;
  const auto at_three = tensor::state_hash(a);
  ASSERT_TRUE(a.step(gradients<G>(through, 3), 1e-3F));
  for (const std::string_view order : {"sw", "ws", "s"}) {
    Bench<typename TypeParam::T> resumed;
    U b(resumed.parameters, options_of<typename U::Options>());
    for (const char what : order) {
      if (what == 's') {
        b.visit_state(state);
      } else {
        resumed.parameters.visit_state(weights);
      }
    }
    EXPECT_EQ(b.steps(), 3);
    EXPECT_EQ(tensor::state_hash(b), at_three) << order;
    ASSERT_TRUE(b.step(gradients<G>(resumed, 3), 1e-3F));
    EXPECT_EQ(bits(resumed), bits(through)) << order;
    EXPECT_EQ(b.weights_hash(), a.weights_hash()) << order;
    EXPECT_EQ(tensor::state_hash(b), tensor::state_hash(a)) << order;
  }
  ASSERT_TRUE(c.step(gradients<G>(cold, 3), 1e-3F));
  EXPECT_NE(c.weights_hash(), a.weights_hash());
}
TYPED_TEST(States, StartAnewFromWeightsThatOthersLoadAndFromNoneThatTheyLookAt) {
  using U = typename TypeParam::Under;
  using G = typename TypeParam::G;
  using T = typename TypeParam::T;
  const auto run = [](int what) {
    Bench<T> bench;
    U optimizer(bench.parameters, options_of<typename U::Options>());
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(optimizer.step(gradients<G>(bench, i), 1e-3F));
    if (what == 1) (void)tensor::state_hash(bench.parameters);
    if (what == 2) {
      Copying weights;
      bench.parameters.visit_state(weights);
      weights.load = true;
      bench.parameters.visit_state(weights);  // the same values
    }
    if (what == 3 || what == 4) {
      Copying weights;
      bench.parameters.visit_state(weights);
      auto& bytes = weights.tensors["layer.weight"].second;
      for (std::size_t i = 0; i < bytes.size(); i += 2) {
        const auto code = T(0.5F + static_cast<float>(i) * 0x1p-12F).bits();
        std::memcpy(bytes.data() + i, &code, 2);
      }
      weights.load = true;
      bench.parameters.visit_state(weights);
      if (what == 4) optimizer.reload();  // for the loaded parameter, what happens by itself
    }
    const auto before = optimizer.weights_hash();
    Copying state;
    optimizer.visit_state(state);
    for (const std::string_view kept : {"low.layer.weight", "compensation.layer.weight"}) {
      const auto at = state.tensors.find(std::string(kept));
      if (at == state.tensors.end()) continue;
      const auto& bytes = at->second.second;
      const bool nothing =
          std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; });
      EXPECT_EQ(nothing, what >= 3) << kept << ' ' << what;
    }
    EXPECT_TRUE(optimizer.step(gradients<G>(bench, 3), 0.0F));
    return std::pair(before, bits(bench));
  };
  const auto plain = run(0);
  EXPECT_EQ(run(1), plain);
  EXPECT_EQ(run(2), plain);
  const auto loaded = run(3), reloaded = run(4);
  EXPECT_NE(loaded.first, plain.first);
  // A step with lr 0 leaves weights that are their own masters where they are.
  for (std::size_t i = 0; i < 1200; ++i) {
    ASSERT_EQ(loaded.second[i], T(0.5F + static_cast<float>(2 * i) * 0x1p-12F).bits()) << i;
    ASSERT_EQ(reloaded.second[i], loaded.second[i]) << i;
  }
}

TEST(SplitMasterState, IsTheFloatMasterBitForBitAndItsWeightsDifferAtTiesAlone) {
  Bench<bf16> split, whole;
  MasterWeights a(split.parameters, AdamWOptions{.weight_decay = 0.1}, SplitMaster<>{});
  MasterWeights b(whole.parameters, AdamWOptions{.weight_decay = 0.1});
  EXPECT_EQ(a.weights_hash(), b.weights_hash());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(a.step(gradients<float>(split, i), 1e-3F));
    ASSERT_TRUE(b.step(gradients<float>(whole, i), 1e-3F));
    ASSERT_EQ(a.weights_hash(), b.weights_hash()) << i;
  }
  const auto x = bits(split), y = bits(whole);
  for (const auto id : {split.model.weight.id, split.model.gain.id}) {
    const auto master = b.master(id);
    const auto offset = static_cast<std::size_t>(split.parameters.info(id).offset);
    for (std::size_t i = 0; i < master.size(); ++i) {
      std::uint32_t u = 0;
      std::memcpy(&u, &master[i], 4);
      if ((u & 0xFFFFU) != 0x8000U) {
        ASSERT_EQ(x[offset + i], y[offset + i]) << i;
      }
    }
  }
  ASSERT_TRUE(a.step(gradients<float>(split, 50), 1e-3F));
  EXPECT_NE(a.weights_hash(), b.weights_hash());
}
TEST(SplitMasterState, ShowsBothHalves) {
  Bench<bf16> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{}, SplitMaster<bf16, float>{});
  Copying state;
  optimizer.visit_state(state);
  std::map<std::string, std::string> formats;
  for (const auto& [name, entry] : state.tensors)
    formats[name] = entry.first;
  EXPECT_EQ(formats,
            (std::map<std::string, std::string>{{"adamw.m.layer.gain", "BF16 [7]"},
                                                {"adamw.m.layer.weight", "BF16 [3, 400]"},
                                                {"adamw.v.layer.gain", "F32 [7]"},
                                                {"adamw.v.layer.weight", "F32 [3, 400]"},
                                                {"low.layer.gain", "U16 [7]"},
                                                {"low.layer.weight", "U16 [3, 400]"},
                                                {"weights.layer.gain", "BF16 [7]"},
                                                {"weights.layer.weight", "BF16 [3, 400]"}}));
}

// One weight of 1 and `steps` updates by lr times a gradient of 1.
template <class T, class State>
float pushed(int steps, float lr, State state, bool forget = false, std::uint64_t seed = 1,
             std::int64_t elements = 1, double* mean = nullptr) {
  Runtime runtime({.threads = 1, .seed = seed});
  Parameters<T> parameters(runtime);
  const auto w = parameters.scope().add("w", {elements}, Role::gain, Init::constant(1.0F)).id;
  MasterWeights optimizer(parameters, SgdOptions{}, state);
  const std::vector<float> g(static_cast<std::size_t>(elements), 1.0F);
  for (int i = 0; i < steps; ++i) {
    if (forget) optimizer.reload();
    EXPECT_TRUE(optimizer.step(GivenGradients<float>(parameters, g), lr));
  }
  if (mean != nullptr) {
    double sum = 0.0;
    for (const T x : parameters.values(w))
      sum += static_cast<double>(x);
    *mean = sum / static_cast<double>(elements);
  }
  return static_cast<float>(parameters.values(w)[0]);
}
TEST(ShortFormats, AWeightOf1LosesAThousandth1000Times) {
  EXPECT_EQ((pushed<bf16>(1000, 1e-3F, FloatMaster<>{}, true)), 1.0F);
  EXPECT_EQ((pushed<fp16>(1000, 1e-4F, FloatMaster<>{}, true)), 1.0F);
  EXPECT_NEAR((pushed<bf16>(1000, 1e-3F, FloatMaster<>{})), 0.0F, 1e-5F);
  EXPECT_NEAR((pushed<bf16>(1000, 1e-3F, SplitMaster<>{})), 0.0F, 1e-5F);
  // The printed trace, 4.6e-4, rounds the compensated update to bf16 as well: an oracle of its own.
  const auto round = [](float x) {
    std::uint32_t u = 0;
    std::memcpy(&u, &x, 4);
    u = (u + 0x7FFFU + ((u >> 16) & 1U)) & 0xFFFF0000U;
    std::memcpy(&x, &u, 4);
    return x;
  };
  float w = 1.0F, rest = 0.0F;
  for (int i = 0; i < 1000; ++i) {
    const float y = round(rest - 1e-3F), next = round(w + y);
    rest = round(y + round(w - next));
    w = next;
    if (i == 499) {
      EXPECT_EQ(w, 0.5F);
      EXPECT_NEAR(rest, 1.9e-4F, 5e-7F);
    }
  }
  EXPECT_NEAR(w, 4.6e-4F, 5e-6F);
  EXPECT_EQ((pushed<bf16>(500, 1e-3F, Kahan<>{})), 0.5F);
  EXPECT_NEAR((pushed<bf16>(1000, 1e-3F, Kahan<>{})), 4.25e-4F, 5e-7F);  // y is float: nearer to 0
  EXPECT_NEAR((pushed<fp16>(1000, 1e-4F, Kahan<>{})), 0.9F, 5e-4F);
}
TEST(ShortFormats, RoundedByChanceTheMeanIsRightAndTheSpreadIsKnown) {
  double mean = 0.0;
  (void)pushed<bf16>(500, 1e-3F, Stochastic<>{}, false, 1, 4096, &mean);
  EXPECT_NEAR(mean, 0.5, 4 * 0.038 / 64.0);  // sd 0.038 of one weight
  double other = 0.0;
  (void)pushed<bf16>(500, 1e-3F, Stochastic<>{}, false, 2, 4096, &other);
  EXPECT_NE(mean, other);
  (void)pushed<fp16>(1000, 1e-4F, Stochastic<>{}, false, 1, 4096, &mean);
  EXPECT_NEAR(mean, 0.9, 1e-3);
}
TEST(ShortFormats, AThousandStepsOfDecayAloneAreAThousandStepsOfDecay) {
  const auto run = []<class State>(State state, bool forget = false) {
    Runtime runtime({.threads = 1});
    Parameters<bf16> parameters(runtime);
    const auto w = parameters.scope().add("w", {4096}, Role::weight, Init::constant(1.0F)).id;
    MasterWeights optimizer(parameters, AdamWOptions{.weight_decay = 0.1}, state);
    const std::vector<float> g(4096, 0.0F);
    for (int i = 0; i < 1000; ++i) {
      if (forget) optimizer.reload();
      EXPECT_TRUE(optimizer.step(GivenGradients<float>(parameters, g), 1e-3F));
    }
    double sum = 0.0;
    for (const bf16 x : parameters.values(w))
      sum += static_cast<double>(x);
    return sum / 4096.0;
  };
  EXPECT_EQ(run(FloatMaster<>{}, true), 1.0);
  EXPECT_NEAR(run(FloatMaster<>{}), 0.9048, 2e-3);  // half an ulp
  EXPECT_NEAR(run(SplitMaster<>{}), 0.9048, 2e-3);
  EXPECT_NEAR(run(Kahan<bf16>{}), 0.9048, 2e-3);
  EXPECT_NEAR(run(Stochastic<bf16>{}), 0.9048, 1e-3);
}
TEST(ShortFormats, AdamWInBf16MovesWithEachOfTheFour) {
  const auto run = []<class State>(State state, bool forget = false) {
    Runtime runtime({.threads = 1});
    Parameters<bf16> parameters(runtime);
    const auto w = parameters.scope().add("w", {1}, Role::weight, Init::constant(1.0F)).id;
    MasterWeights optimizer(parameters, AdamWOptions{}, state);
    for (int i = 0; i < 100; ++i) {
      if (forget) optimizer.reload();
      EXPECT_TRUE(optimizer.step(GivenGradients<float>(parameters, {0.1F}), 6e-4F));
    }
    return static_cast<double>(parameters.values(w)[0]);
  };
  EXPECT_EQ(run(FloatMaster<>{}, true), 1.0);
  EXPECT_NEAR(run(FloatMaster<>{}), 0.94, 2e-3);
  EXPECT_NEAR(run(SplitMaster<bf16>{}), 0.94, 4e-3);
  EXPECT_NEAR(run(Kahan<bf16>{}), 0.94, 4e-3);
  EXPECT_NEAR(run(Stochastic<bf16>{}), 0.94, 0.05);
}

// The second moment alone, as AdamW's rule keeps it in a format.
template <class Format>
double second_moment(float from, float gradient, int steps, int* stuck = nullptr) {
  using E = optim::stored_as<Format>;
  Runtime runtime({.threads = 1});
  Parameters<float> parameters(runtime);
  parameters.scope().add("w", {1024}, Role::gain, Init::constant(1.0F));
  parameters.lay_out();
  optim::AdamWRule<float, float, Format> rule(parameters, {.beta2 = 0.999},
                                              optim::whole_parts(parameters));
  struct Visitor {
    std::vector<E> values;
    bool load = false;
    void tensor(const tensor::StateTensor& t) {
      if (t.name != "adamw.v.w") return;
      if (load) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
      values.resize(1024);
      std::memcpy(static_cast<void*>(values.data()), t.bytes.data(), t.bytes.size());
    }
    void scalar(std::string_view, std::int64_t&) {}
    void scalar(std::string_view, double&) {}
  } visitor{std::vector<E>(1024, E(from)), true};
  rule.visit_state(visitor);
  visitor.load = false;
  const std::vector<float> g(1024, gradient);
  const auto weights = parameters.write_all();
  E last(from);
  for (int i = 0; i < steps; ++i) {
    rule.advance();
    rule.run(runtime.compute(), 0, optim::Update<float>{weights.data(), g.data(), 1.0, 1e-3F});
    rule.visit_state(visitor);
    if (stuck != nullptr && static_cast<float>(visitor.values[0]) != static_cast<float>(last))
      *stuck = i + 1;
    last = visitor.values[0];
  }
  double sum = 0.0;
  for (const E x : visitor.values)
    sum += static_cast<double>(x);
  return sum / 1024.0;
}
TEST(ShortFormats, ASecondMomentIn16BitsSticksToNearestAndNotByChance) {
  EXPECT_EQ(second_moment<bf16>(1.0F, 0.0F, 2000), 1.0);
  EXPECT_NEAR(second_moment<float>(1.0F, 0.0F, 2000), 0.135, 5e-4);
  EXPECT_NEAR(second_moment<optim::drawn<bf16>>(1.0F, 0.0F, 2000), 0.135, 3e-3);
  int last = 0;
  EXPECT_EQ(second_moment<bf16>(0.0F, 1.0F, 2000, &last), 0.25);
  EXPECT_EQ(last, 256);
  EXPECT_NEAR(second_moment<fp16>(0.0F, 1.0F, 2000, &last), 0.756, 5e-4);
  EXPECT_EQ(last, 1229);
  EXPECT_NEAR(second_moment<optim::drawn<bf16>>(0.0F, 1.0F, 5000), 0.9933, 3e-3);
}

// cases.md, Numerics 51: with eps rounded to fp16, which is 0, a gradient of 0 divides 0 by 0.
TEST(MomentsInFp16, OfAGradientOfZeroMoveNothing) {
  Bench<fp16> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{}, FloatMaster<fp16>{});
  const auto before = bits(bench);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(optimizer.step(gradients<float>(bench, i, 0.0F), 1e-3F));
  EXPECT_EQ(bits(bench), before);
}

// cases.md, Numerics 45 to 47.
TEST(StochasticState, DrawsForEachParameterAndStepAnewAndTheSameOnEveryReplica) {
  struct Two {
    explicit Two(std::uint64_t seed) : runtime({.threads = 2, .seed = seed}) {
      a = parameters.scope().add("a", {512}, Role::gain, Init::constant(1.0F)).id;
      b = parameters.scope().add("b", {512}, Role::gain, Init::constant(1.0F)).id;
      parameters.lay_out();
    }
    std::vector<float> of(ParameterId id) {
      std::vector<float> out;
      for (const bf16 x : parameters.values(id))
        out.push_back(static_cast<float>(x));
      return out;
    }
    Runtime runtime;
    Parameters<bf16> parameters{runtime};
    ParameterId a, b;
  };
  const auto step = [](Two& two, auto& optimizer) {
    return optimizer.step(GivenGradients<float>(two.parameters, std::vector<float>(1024, 1.0F)),
                          1e-3F);
  };
  Two one(1), replica(1), other(2);
  MasterWeights x(one.parameters, SgdOptions{}, Stochastic<>{});
  MasterWeights y(replica.parameters, SgdOptions{}, Stochastic<>{});
  MasterWeights z(other.parameters, SgdOptions{}, Stochastic<>{});
  ASSERT_TRUE(step(one, x) && step(replica, y) && step(other, z));
  const auto first = one.of(one.a);
  EXPECT_EQ(replica.of(replica.a), first);
  EXPECT_NE(other.of(other.a), first);
  EXPECT_NE(one.of(one.b), first);
  // Not overwritten by a plain copy: nearest-even would leave all at 1.
  const auto moved = std::count_if(first.begin(), first.end(), [](float w) { return w < 1.0F; });
  EXPECT_NEAR(static_cast<double>(moved), 512 * 1e-3 * 256, 40.0);
  // The second step does not move the ones that the first did.
  ASSERT_TRUE(step(one, x));
  const auto second = one.of(one.a);
  int both = 0, once = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    both += first[i] < 1.0F && second[i] < first[i];
    once += first[i] < 1.0F && second[i] == first[i];
  }
  EXPECT_GT(both, 0);
  EXPECT_GT(once, 0);
}

// cases.md, Numerics 53: steps are 64-bit integers, in bias corrections, draws and state.
TEST(Steps, AreCountedBeyondEveryNarrowerType) {
  Bench<bf16> bench;
  MasterWeights optimizer(bench.parameters, AdamWOptions{}, Stochastic<bf16>{});
  Copying state;
  optimizer.visit_state(state);
  state.load = true;
  for (const std::int64_t steps : {std::int64_t{1} << 31, (std::int64_t{1} << 53) + 1}) {
    state.integers["adamw.steps"] = steps;
    optimizer.visit_state(state);
    EXPECT_EQ(optimizer.steps(), steps);
    const auto before = bits(bench);
    ASSERT_TRUE(optimizer.step(gradients<float>(bench, 0), 1e-3F));
    EXPECT_EQ(optimizer.steps(), steps + 1);
    EXPECT_NE(bits(bench), before);
  }
}

// A rule of one's own: it knows floats alone and wants whole tensors.
template <class R>
struct UnitRule {
  struct Options {
    double weight_decay = 0.0;
  };
  static constexpr optim::Grain grain = optim::Grain::tensor;
  static constexpr std::string_view name = "Unit";
  UnitRule(const tensor::ParameterTable& parameters, const Options& options,
           std::vector<optim::Part> parts)
      : options_(options), parts_(parts), sum_(parameters, std::move(parts)) {}
  void advance() { ++steps_; }
  void run(const core::Compute&, std::size_t part, const optim::Update<R>& update) {
    double squares = 0.0;
    const auto sum = sum_.values(part);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += update.gradient[i] * static_cast<R>(update.factor);
      squares += static_cast<double>(sum[i]) * static_cast<double>(sum[i]);
    }
    const auto scale = static_cast<R>(static_cast<double>(update.lr) / std::sqrt(squares));
    for (std::size_t i = 0; i < sum.size(); ++i)
      update.weights[i] -= scale * sum[i];
  }
  std::int64_t steps() const { return steps_; }
  const Options& options() const { return options_; }
  template <tensor::state_visitor Visitor>
  void visit_state(Visitor& visitor) {
    visitor.scalar("unit.steps", steps_);
    sum_.visit_state(visitor, "unit.sum.");
  }
  Options options_;
  std::vector<optim::Part> parts_;
  optim::Moments<R> sum_;
  std::int64_t steps_ = 0;
};
template <class T>
struct Unit : optim::Direct<UnitRule<T>, T> {
  using optim::Direct<UnitRule<T>, T>::Direct;
};
template <class State>
std::uint64_t run_unit(std::vector<float>* weights = nullptr) {
  Bench<bf16> bench;
  MasterWeights<Unit, bf16, State> optimizer(bench.parameters, {});
  static_assert(MasterWeights<Unit, bf16, State>::grain == optim::Grain::tensor);
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(optimizer.step(gradients<float>(bench, i), 0.01F));
  const auto& ledger = bench.runtime.ledger();
  const Bytes all = optimizer.bytes();
  EXPECT_EQ(ledger.live(core::Category::master), all.master);
  EXPECT_EQ(ledger.live(core::Category::moments), all.moments);
  EXPECT_EQ(all.moments, 4 * bench.parameters.count());
  EXPECT_EQ(ledger.live(core::Category::workspace), State::keep == mixed::Keep::master ? 0 : 4800);
  if (weights != nullptr) {
    for (const bf16 x : bench.parameters.values(bench.model.weight))
      weights->push_back(static_cast<float>(x));
  }
  return optimizer.weights_hash();
}
TEST(ARuleOfOnesOwn, RunsOnEveryState) {
  Bench<float> full;
  Unit<float> peer(full.parameters, {});
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(peer.step(gradients<float>(full, i), 0.01F));
  EXPECT_EQ(peer.bytes(), (Bytes{4 * 1207, 4 * 1207, 0, 4 * 1207}));
  EXPECT_EQ(run_unit<FloatMaster<>>(), peer.weights_hash());
  EXPECT_EQ(run_unit<SplitMaster<>>(), peer.weights_hash());
  std::vector<float> kahan, chance;
  (void)run_unit<Kahan<>>(&kahan);
  (void)run_unit<Stochastic<>>(&chance);
  const auto wanted = full.parameters.values(full.model.weight);
  double off = 0.0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(kahan[i], wanted[i], 0x1p-8F * std::abs(wanted[i]) + 1e-7F);
    off += static_cast<double>(chance[i] - wanted[i]);
  }
  EXPECT_NEAR(off / static_cast<double>(wanted.size()), 0.0, 1e-5);
}

TEST(MomentsOfAFloatModel, MayHave16Bits) {
  Bench<float> narrow, wide;
  MasterWeights a(narrow.parameters, AdamWOptions{}, FloatMaster<bf16>{});
  MasterWeights b(wide.parameters, AdamWOptions{});
  static_assert(std::is_same_v<decltype(b), MasterWeights<AdamW, float>>);
  EXPECT_EQ(narrow.runtime.ledger().live(core::Category::moments), 4 * narrow.parameters.count());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(a.step(gradients<float>(narrow, i), 1e-3F));
    ASSERT_TRUE(b.step(gradients<float>(wide, i), 1e-3F));
  }
  EXPECT_NE(a.weights_hash(), b.weights_hash());
  const auto x = narrow.parameters.values(narrow.model.weight);
  const auto y = wide.parameters.values(wide.model.weight);
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], 5e-3F * 5e-3F + 1e-4F);
}

}  // namespace
