// SPDX-License-Identifier: MIT
#include <cfenv>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/optim/plateau.hpp>

namespace {

using halfstep::OptionError;
using halfstep::optim::Plateau;
using halfstep::optim::PlateauOptions;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// What torch.optim.lr_scheduler.ReduceLROnPlateau of PyTorch 1.13 does with a rate of 1, step by
// step; printed by it: for loss in losses: scheduler.step(loss);
// print(optimizer.param_groups[0]['lr']).
struct Torch {
  PlateauOptions options;
  std::vector<double> losses, rates;
};

TEST(PlateauSchedule, IsPyTorchs) {
  const std::vector<Torch> cases = {
      {{.factor = 0.5, .patience = 0},
       {5, 4, 4, 3, 3.5, nan, 2},
       {1, 1, 0.5, 0.5, 0.25, 0.125, 0.125}},
      {{.factor = 0.5, .patience = 1},
       {5, 6, 6, 6, 6, 1, 6, 6},
       {1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}},
      {{.factor = 0.5, .patience = 0, .cooldown = 2},
       {5, 6, 6, 6, 6, 6},
       {1, 0.5, 0.5, 0.5, 0.25, 0.25}},
      {{.factor = 0.25, .patience = 0, .least = 0.125}, {5, 6, 6, 6}, {1, 0.25, 0.125, 0.125}},
      {{.factor = 0.5, .patience = 0, .threshold = 0.5},
       {8, 5, 3, 2, 1},
       {1, 0.5, 0.5, 0.25, 0.25}},
  };
  for (const Torch& c : cases) {
    Plateau plateau(c.options);
    for (std::size_t i = 0; i < c.losses.size(); ++i) {
      const double before = plateau.share();
      const bool reduced = plateau.observe(c.losses[i]);
      EXPECT_EQ(plateau.share(), c.rates[i]) << i;
      EXPECT_EQ(reduced, plateau.share() < before);
      EXPECT_EQ(plateau(2.0F), static_cast<float>(2.0 * c.rates[i]));
    }
  }
}

struct Copy {
  std::map<std::string, double, std::less<>> values;
  bool give = false;
  void tensor(const halfstep::tensor::StateTensor&) {}
  template <class V>
  void scalar(std::string_view name, V& x) {
    if (give) {
      x = static_cast<V>(values.find(name)->second);
    } else {
      values[std::string(name)] = static_cast<double>(x);
    }
  }
};

TEST(PlateauSchedule, GoesOnFromItsStateWhereverItIsCut) {
  const PlateauOptions options{.factor = 0.5, .patience = 1, .cooldown = 1};
  const std::vector<double> losses{5, 5, 5, 5, 4, 4, 4, 4, 4, 4};
  Plateau whole(options);
  for (const double loss : losses)
    whole.observe(loss);
  int cold_differs = 0;
  for (std::size_t cut = 1; cut < losses.size(); ++cut) {
    Plateau first(options), second(options), cold(options);
    for (std::size_t i = 0; i < cut; ++i)
      first.observe(losses[i]);
    Copy copy;
    first.visit_state(copy);
    EXPECT_EQ(copy.values.size(), 4U);
    copy.give = true;
    second.visit_state(copy);
    for (std::size_t i = cut; i < losses.size(); ++i) {
      second.observe(losses[i]);
      cold.observe(losses[i]);
    }
    EXPECT_EQ(second.share(), whole.share()) << cut;
    cold_differs += cold.share() != whole.share();
  }
  EXPECT_GT(cold_differs, 5);
}

TEST(PlateauSchedule, HasTheSameBitsInEveryRoundingMode) {
  const auto rate = [] {
    Plateau plateau({.factor = 0.3, .patience = 0});
    plateau.observe(1.0);
    for (int i = 0; i < 5; ++i)
      plateau.observe(1.0);
    return plateau(0.1F);
  };
  const float nearest = rate();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const float other = rate();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(other, nearest);
  }
}

TEST(PlateauSchedule, RefusesOptionsOutOfRange) {
  for (const PlateauOptions& bad :
       {PlateauOptions{.factor = 1.0}, PlateauOptions{.factor = 0.0}, PlateauOptions{.factor = nan},
        PlateauOptions{.patience = -1}, PlateauOptions{.threshold = 1.0},
        PlateauOptions{.cooldown = -1}, PlateauOptions{.least = -0.1}}) {
    EXPECT_THROW(Plateau{bad}, OptionError);
  }
}

}  // namespace
