// SPDX-License-Identifier: MIT
// What must not compile; each case is one macro away from a program that does.
// CASE 0: Pass a layer, a lambda without captures, or owns_its_captures(lambda)
// CASE 1: Pass a layer, a lambda without captures, or owns_its_captures(lambda)
// CASE 2: the callable returns a Variable, or a pair, tuple or array of Variables
#include <functional>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/cast.hpp>

namespace hs = halfstep;

hs::Variable<float> f(hs::Variable<float> x) {
#if !defined(CASE)
  hs::Variable<float> other = x;
  x = hs::checkpoint([](hs::Variable<float> v) { return v + v; }, x);
  return hs::checkpoint(hs::owns_its_captures([&](hs::Variable<float> v) { return v + other; }), x);
#elif CASE == 0
  hs::Variable<float> other = x;
  return hs::checkpoint([&](hs::Variable<float> v) { return v + other; }, x);
#elif CASE == 1
  std::function<hs::Variable<float>(hs::Variable<float>)> g;
  return hs::checkpoint(g, x);
#elif CASE == 2
  (void)hs::checkpoint([](hs::Variable<float> v) { return v.value()[0]; }, x);
  return x;
#endif
}

int main() {}
