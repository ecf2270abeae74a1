// SPDX-License-Identifier: MIT
// What must not compile; each case is one macro away from a program that does.
// CASE 0: a split master needs bf16 weights
// CASE 1: a float or double weight is its own master
// CASE 2: moments of 16-bit weights are float, bf16, fp16
// CASE 3: these gradients have another format than the one that the state formats name
// CASE 4: this optimizer's rule keeps its state in float
// CASE 5: gradients of 16-bit weights are float, bf16 or fp16
// CASE 6: takes float gradients alone
#include <string_view>
#include <vector>

#include <halfstep/mixed/master_weights.hpp>

#include <optim/given_gradients.hpp>

namespace hs = halfstep;

template <class R>
struct OwnRule {
  struct Options {
    double weight_decay = 0.0;
  };
  static constexpr hs::optim::Grain grain = hs::optim::Grain::tensor;
  static constexpr std::string_view name = "Own";
  OwnRule(const hs::tensor::ParameterTable&, const Options&, std::vector<hs::optim::Part>) {}
  void advance() {}
  void run(const hs::core::Compute&, std::size_t, const hs::optim::Update<R>&) {}
  std::int64_t steps() const { return 0; }
  Options options() const { return {}; }
  template <class Visitor>
  void visit_state(Visitor&) {}
};
template <class T>
struct Own : hs::optim::Direct<OwnRule<T>, T> {
  using hs::optim::Direct<OwnRule<T>, T>::Direct;
};

int main() {
  hs::Runtime runtime;
  hs::Parameters<hs::bf16> half(runtime);
  half.scope().add("w", {3}, hs::Role::weight, hs::Init::constant(1.0F));
  using hs::mixed::MasterWeights;
  using hs::optim::AdamW;
  using hs::optim::AdamWOptions;
#if !defined(CASE)
  MasterWeights split(half, AdamWOptions{}, hs::mixed::SplitMaster<hs::bf16, float, hs::bf16>{});
  (void)split.step(halfstep_tests::GivenGradients<hs::bf16>(half, std::vector<hs::bf16>(3)), 0.1F);
  MasterWeights<Own, hs::bf16, hs::mixed::Kahan<>> own(half);
#elif CASE == 0
  hs::Parameters<hs::fp16> other(runtime);
  MasterWeights split(other, AdamWOptions{}, hs::mixed::SplitMaster<>{});
#elif CASE == 1
  hs::Parameters<float> full(runtime);
  MasterWeights split(full, AdamWOptions{}, hs::mixed::SplitMaster<>{});
#elif CASE == 2
  MasterWeights split(half, AdamWOptions{}, hs::mixed::SplitMaster<double>{});
#elif CASE == 3
  MasterWeights split(half, AdamWOptions{}, hs::mixed::SplitMaster<>{});
  (void)split.step(halfstep_tests::GivenGradients<hs::bf16>(half, std::vector<hs::bf16>(3)), 0.1F);
#elif CASE == 4
  MasterWeights<Own, hs::bf16, hs::mixed::Kahan<hs::bf16>> own(half);
#elif CASE == 5
  MasterWeights split(half, AdamWOptions{}, hs::mixed::SplitMaster<float, float, double>{});
#elif CASE == 6
  MasterWeights<Own, hs::bf16, hs::mixed::Kahan<float, float, hs::bf16>> own(half);
#endif
}
