// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace hs = halfstep;

namespace {
template <class T>
struct Pair {
  hs::Parameter<T> a, b;
  explicit Pair(hs::Scope<T> s)
      : a(s.add("a", {3, 5}, hs::Role::weight, hs::Init::normal(0.5F))),
        b((s / "inner" / 2).add("b", {4}, hs::Role::gain, hs::Init::constant(1.0F))) {}
};
std::string message(const auto& f) {
  try {
    f();
  } catch (const hs::Error& error) {
    return error.what();
  }
  return "";
}
}  // namespace

TEST(Parameters, AreContiguousInOrderOfRegistrationAndNamedByScope) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Pair<float> pair(parameters);
  EXPECT_EQ(parameters.count(), 19);
  EXPECT_EQ(pair.b.info().name, "inner.2.b");
  EXPECT_EQ(pair.b.info().offset, 15);
  EXPECT_EQ(hs::tensor::layer_name(pair.b.info()), "inner.2");
  EXPECT_EQ(parameters.find("inner.2.b"), pair.b.id);
  EXPECT_EQ(runtime.ledger().live(), 0) << "nothing is laid out before it is needed";
  parameters.lay_out();
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::weights), 19 * 4);
}

TEST(Parameters, InitialValuesDependOnSeedAndNameAlone) {
  hs::Runtime one({.threads = 1, .seed = 7}), two({.threads = 2, .seed = 7}), other({.seed = 8});
  const auto values = [](hs::Runtime& runtime, bool more_before) {
    hs::Parameters<float> parameters(runtime);
    if (more_before) (void)parameters.add("extra", {100}, hs::Role::weight, hs::Init::normal(1.0F));
    const Pair<float> pair(parameters);
    const auto span = parameters.values(pair.a);
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(values(one, false), values(two, true));
  EXPECT_NE(values(one, false), values(other, false));
}

TEST(Parameters, ATwinOfAnotherElementTypeHasTheSameValuesRoundedOnce) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Pair<float> pair(parameters);
  auto wide = parameters.as<double>();
  const Pair<double> twin(wide);
  auto narrow = parameters.as<hs::bf16>();
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_EQ(wide.values(twin.a)[i], static_cast<double>(parameters.values(pair.a)[i]));
    EXPECT_EQ(narrow.values(hs::ParameterId{0})[i].bits(), hs::bf16(parameters.values(pair.a)[i]).bits());
  }
  EXPECT_THROW((void)wide.add("new", {1}, hs::Role::bias, {}), hs::StateError);
}

TEST(Parameters, RefuseWhatWouldBeAmbiguousOrLate) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Pair<float> pair(parameters);
  EXPECT_NE(message([&] { const Pair<float> again(parameters); }).find("share a scope"), std::string::npos);
  EXPECT_THROW((void)parameters.scope().add("x.y", {1}, hs::Role::bias, {}), hs::OptionError);
  EXPECT_THROW((void)parameters.find("nobody"), hs::OptionError);
  parameters.lay_out();
  EXPECT_NE(message([&] { (void)parameters.add("c", {1}, hs::Role::bias, {}); }).find("too late"), std::string::npos);
}

TEST(Parameters, OfDualsAreTwoPlanesPrimalFirst) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<double> real(runtime);
  const Pair<double> pair(real);
  auto duals = real.as<hs::dual<double>>();
  const Pair<hs::dual<double>> twin(duals);
  EXPECT_EQ(runtime.ledger().live(hs::core::Category::weights), 19 * 8 + 2 * 19 * 8);
  EXPECT_EQ(duals.values(twin.b).data() + 4, duals.tangents(twin.b.id).data());
  EXPECT_EQ(duals.values(twin.a)[14], real.values(pair.a)[14]);
  for (const double t : duals.tangents(twin.a.id)) EXPECT_EQ(t, 0.0);
  EXPECT_EQ(duals.planes(), 2);
  EXPECT_EQ(duals.gradient_dtype(), hs::numeric::DType::f64);
}

TEST(Parameters, AWriteAdvancesTheVersion) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Pair<float> pair(parameters);
  const auto before = pair.a.info().version;
  parameters.write(pair.a.id)[0] = 3.0F;
  EXPECT_EQ(pair.a.info().version, before + 1);
  (void)parameters.write_all();
  EXPECT_EQ(pair.a.info().version, before + 2);
}

struct Setting {  // a visitor that stores `value` everywhere
  void tensor(const hs::tensor::StateTensor& t) {
    for (std::size_t i = 0; i < t.bytes.size(); i += sizeof value)
      std::memcpy(t.bytes.data() + i, &value, sizeof value);
  }
  void scalar(std::string_view, std::int64_t&) {}
  void scalar(std::string_view, double&) {}
  float value = 0.0F;
};
TEST(Parameters, AVisitAdvancesTheVersionsOfWhatItChangesAlone) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const auto a = parameters.add("a", {3}, hs::Role::weight, hs::Init::constant(1.0F));
  const auto b = parameters.add("b", {4}, hs::Role::weight, hs::Init::constant(2.0F));
  (void)hs::tensor::state_hash(parameters);
  EXPECT_EQ(a.info().version, 0U);
  Setting ones{1.0F};
  parameters.visit_state(ones);
  EXPECT_EQ(a.info().version, 0U);
  EXPECT_EQ(b.info().version, 1U);
  EXPECT_EQ(parameters.values(b)[3], 1.0F);
}

TEST(StateHash, DependsOnNamesShapesAndBitsNotOnOrder) {
  hs::Runtime runtime({.threads = 1});
  const auto hash = [&](bool swapped, float value, const char* name) {
    hs::Parameters<float> parameters(runtime);
    if (swapped) {
      (void)parameters.add("z", {2}, hs::Role::weight, hs::Init::constant(value));
      (void)parameters.add(name, {3}, hs::Role::weight, hs::Init::constant(1.0F));
    } else {
      (void)parameters.add(name, {3}, hs::Role::weight, hs::Init::constant(1.0F));
      (void)parameters.add("z", {2}, hs::Role::weight, hs::Init::constant(value));
    }
    return hs::tensor::state_hash(parameters);
  };
  EXPECT_EQ(hash(false, 2.0F, "a"), hash(true, 2.0F, "a"));
  EXPECT_NE(hash(false, 2.0F, "a"), hash(false, 3.0F, "a"));
  EXPECT_NE(hash(false, 2.0F, "a"), hash(false, 2.0F, "b"));
}
