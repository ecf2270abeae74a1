// SPDX-License-Identifier: MIT
#include <halfstep/kernels/sgd.hpp>

#include <cmath>

#include "cases.hpp"
#include "torch_problem.hpp"

namespace {

using namespace cases;
using halfstep::OptionError;
using halfstep::ShapeError;
using halfstep::kernels::sgd_step;
using halfstep::kernels::SgdOptions;

constexpr SgdOptions variants[] = {
    {.lr = 0.1},
    {.lr = 0.1, .weight_decay = 0.01},
    {.lr = 0.1, .momentum = 0.9},
    {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};

template <class P, class Copy>
void check(std::int64_t n, const SgdOptions& o) {
  const auto start = values<P>(n, 1), gradient = values<P>(n, 2);
  std::vector<P> w(start), buffer(w.size());
  std::vector<Copy> rounded(w.size());
  for (int step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      P g = times(gradient[i], static_cast<P>(0.7));
      if (o.weight_decay != 0) g = std::fma(static_cast<P>(o.weight_decay), w[i], g);
      if (o.momentum != 0) {
        buffer[i] = std::fma(static_cast<P>(o.momentum), buffer[i], g);
        g = o.nesterov ? std::fma(static_cast<P>(o.momentum), buffer[i], g) : buffer[i];
      }
      w[i] = std::fma(-static_cast<P>(o.lr), g, w[i]);
      rounded[i] = static_cast<Copy>(w[i]);
    }
  }
  every_compute([&](const Compute& compute, const std::string& name) {
    Guarded<P> weights(start), g(gradient), velocity(o.momentum == 0 ? 0 : n);
    Guarded<Copy> copy(n);
    for (int step = 0; step < 2; ++step)
      sgd_step<P, Copy>(compute, o, 0.7, weights, g, velocity, copy);
    ASSERT_SAME_BITS(weights.copy(), w) << name << ", " << n;
    ASSERT_SAME_BITS(copy.copy(), rounded) << name << ", " << n;
    if (o.momentum != 0) {
      ASSERT_SAME_BITS(velocity.copy(), buffer) << name << ", " << n;
    }
  });
}

TEST(Sgd, EveryPathAndThreadCountTakesTheWrittenStepsAtEveryLength) {
  for (const SgdOptions& o : variants) {
    for (std::int64_t n = 0; n <= 70; ++n)
      check<float, float>(n, o);
    for (const std::int64_t n : {5, 31, 1025, 40'003}) {
      check<float, halfstep::bf16>(n, o);
      check<float, halfstep::fp16>(n, o);
      check<double, double>(n, o);
    }
  }
}

struct Line {
  int update;
  double w, b;
};
void against_torch(const SgdOptions& o, const std::vector<Line>& lines) {
  auto w = torch_start();
  std::vector<double> velocity(o.momentum == 0 ? 0 : 13);
  std::size_t next = 0;
  for (int update = 0; update <= 1000; ++update) {
    sgd_step<double>(widest(), o, 1.0, w, torch_gradient(w), velocity);
    if (update != lines[next].update) continue;
    EXPECT_NEAR(w[0], lines[next].w, 1e-12) << update;
    EXPECT_NEAR(w[12], lines[next].b, 1e-12) << update;
    if (++next == lines.size()) return;
  }
}
// W1[0] and b2 after update i, counted from 0; PyTorch's own numbers. Each option shows in them.
TEST(Sgd, AgreesWithPyTorchOnItsOwnProblem) {
  against_torch({.lr = 0.1}, {{0, -0.21063957030131192, -0.14255126505509488},
                              {2, -0.20972966938493184, -0.27812220412881095},
                              {100, -0.15543131540224012, -1.873409073108485},
                              {1000, -0.07583232846497832, -2.877716472882302}});
  against_torch({.lr = 0.1, .weight_decay = 1e-2},
                {{0, -0.21042867144447805, -0.14248012693079315},
                 {2, -0.20909898341119826, -0.27772903556055095},
                 {100, -0.13579982290274883, -1.8045854907382846},
                 {1000, 0.052771609187326055, -2.176236807160431}});
  against_torch({.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-2},
                {{0, -0.21042867144447805, -0.14248012693079315},
                 {2, -0.20765211644734388, -0.4589625428521652},
                 {100, 0.0056118487251954775, -2.3359277661920594},
                 {1000, 0.17948886155124505, -2.0634616066978615}});
  against_torch({.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-6, .nesterov = true},
                {{0, -0.21040617235121148, -0.2068230782168696},
                 {2, -0.20719836080288725, -0.607643745644847},
                 {100, -0.1262387113548655, -3.7728444542017687},
                 {1000, -0.07326215742204903, -4.192162739857097}});
}

TEST(SgdErrors, NameTheLengthsAndTheMomentum) {
  std::vector<float> three(3), none;
  EXPECT_EQ(
      message_of<ShapeError>(
          [&] { sgd_step<float>(portable(), {.momentum = 0.9}, 1.0, three, three, none); }),
      "sgd_step: weights has 3 elements, but gradient has 3 and velocity 0 (wanted 3). "
      "Was the optimizer built before a layer was resized?");
  EXPECT_EQ(message_of<OptionError>(
                [&] { sgd_step<float>(portable(), {.nesterov = true}, 1.0, three, three, none); }),
            "sgd_step: nesterov needs a momentum, which is 0.");
}

}  // namespace
