// SPDX-License-Identifier: MIT
#include <halfstep/numeric/eigen.hpp>

#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <numeric/formats.hpp>

using halfstep::bf16;
using halfstep::dual;
using halfstep::fp16;
namespace numeric = halfstep::numeric;

namespace {

template <class T>
constexpr bool traits_are_those_of_limits() {
  using N = Eigen::NumTraits<T>;
  using L = std::numeric_limits<T>;
  return !N::IsComplex && !N::IsInteger && N::IsSigned == L::is_signed &&
         !N::RequireInitialization && std::is_same_v<typename N::Real, T> &&
         N::epsilon().bits() == L::epsilon().bits() && N::highest().bits() == L::max().bits() &&
         N::lowest().bits() == L::lowest().bits() && N::infinity().bits() == L::infinity().bits() &&
         N::quiet_NaN().bits() == L::quiet_NaN().bits() && N::digits10() == L::digits10 &&
         N::dummy_precision() > L::epsilon();
}
template <class... T>
constexpr bool all_traits_are_those_of_limits(halfstep_tests::Formats<T...>) {
  return (traits_are_those_of_limits<T>() && ...);
}
TEST(EigenTraits, AreThoseOfNumericLimits) {
  static_assert(all_traits_are_those_of_limits(halfstep_tests::AllFormats{}));
  // As literals: Eigen 3.4's own half and bfloat16 have these wrong.
  static_assert(Eigen::NumTraits<fp16>::epsilon().bits() == 0x1400 &&
                Eigen::NumTraits<bf16>::epsilon().bits() == 0x3C00);
  EXPECT_EQ(Eigen::NumTraits<dual<double>>::epsilon(), std::numeric_limits<double>::epsilon());
}

TEST(EigenMap, SeesARowMajorSpanAndWritesThroughIt) {
  std::vector<bf16> values{bf16{1}, bf16{2}, bf16{3}, bf16{4}, bf16{5}, bf16{6}};
  auto matrix = numeric::map(std::span(values), 2, 3);
  EXPECT_EQ(matrix(1, 0), bf16{4});
  matrix(0, 2) = bf16{9};
  EXPECT_EQ(values[2], bf16{9});
  const auto read = numeric::map(std::span<const bf16>(values), 3, 2);
  EXPECT_EQ(static_cast<float>(read(2, 1)), 6.0F);
  const numeric::EigenMatrix<float> wide = matrix.cast<float>();
  EXPECT_EQ(wide(1, 2), 6.0F);
}

TEST(EigenMap, RefusesAShapeThatDoesNotFit) {
  std::vector<float> values(5);
  try {
    static_cast<void>(numeric::map(std::span(values), 2, 3));
    FAIL();
  } catch (const halfstep::ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "map: 5 elements cannot be a matrix of 2 rows and 3 columns. Are rows and columns "
                 "of another tensor?");
  }
}

TEST(EigenExpressions, SixteenBitsWithFloatGiveFloat) {
  Eigen::Array<fp16, 2, 1> a(fp16{2}, fp16{3});
  Eigen::Array<float, 2, 1> b(0.1F, 0.2F);
  const Eigen::Array<float, 2, 1> product = a * b, sum = b + a, difference = a - b,
                                  quotient = b / a;
  EXPECT_EQ(product(1), 3.0F * 0.2F);
  EXPECT_EQ(sum(0), 0.1F + 2.0F);
  EXPECT_EQ(difference(0), 2.0F - 0.1F);
  EXPECT_EQ(quotient(1), 0.2F / 3.0F);
}

TEST(EigenExpressions, DualsMultiplyAsMatrices) {
  Eigen::Matrix<dual<double>, 2, 2> m;
  m << dual<double>(1, 1), dual<double>(2, 0), dual<double>(3, 0), dual<double>(4, 0);
  const Eigen::Matrix<dual<double>, 2, 2> square = m * m;
  EXPECT_EQ(square(0, 0).value, 7.0);
  EXPECT_EQ(square(0, 0).tangent, 2.0);
  EXPECT_EQ(square(1, 0).tangent, 3.0);
}

}  // namespace
