// SPDX-License-Identifier: MIT
#include <halfstep/numeric/element.hpp>

#include <type_traits>

#include <gtest/gtest.h>

using halfstep::bf16;
using halfstep::dual;
using halfstep::fp16;
namespace numeric = halfstep::numeric;

namespace {

TEST(Element, AccumulatesSixteenBitsInFloatAndDualsInDuals) {
  static_assert(std::is_same_v<numeric::accumulator_t<bf16>, float> &&
                std::is_same_v<numeric::accumulator_t<fp16>, float>);
  static_assert(std::is_same_v<numeric::accumulator_t<float>, float> &&
                std::is_same_v<numeric::accumulator_t<double>, double>);
  static_assert(std::is_same_v<numeric::accumulator_t<dual<double>>, dual<double>>);
  static_assert(std::is_same_v<numeric::plane_accumulator_t<dual<float>>, float>);
  static_assert(std::is_same_v<numeric::plane_t<dual<double>>, double> &&
                std::is_same_v<numeric::plane_t<bf16>, bf16>);
}

TEST(Element, DualsHaveTwoPlanesAndOthersOne) {
  static_assert(numeric::planes<float> == 1 && numeric::planes<bf16> == 1 &&
                numeric::planes<dual<float>> == 2);
  static_assert(numeric::is_16bit<bf16> && numeric::is_16bit<fp16> && !numeric::is_16bit<float> &&
                !numeric::is_16bit<dual<float>>);
  static_assert(numeric::element_type<double> && !numeric::element_type<int> &&
                !numeric::element_type<long double>);
  static_assert(numeric::real_element<bf16> && !numeric::real_element<dual<double>>);
}

}  // namespace
