// SPDX-License-Identifier: MIT
#include <halfstep/numeric/dtype.hpp>

#include <string>

#include <gtest/gtest.h>

#include <halfstep/numeric/dual.hpp>

using halfstep::numeric::DType;
namespace numeric = halfstep::numeric;

namespace {

TEST(DType, EveryOneHasItsSafetensorsNameAndReadsBack) {
  const struct {
    DType dtype;
    const char* name;
    std::size_t bytes;
  } rows[] = {{DType::f32, "F32", 4},         {DType::bf16, "BF16", 2},      {DType::f16, "F16", 2},
              {DType::f64, "F64", 8},         {DType::i8, "I8", 1},          {DType::i16, "I16", 2},
              {DType::i32, "I32", 4},         {DType::i64, "I64", 8},        {DType::u8, "U8", 1},
              {DType::u16, "U16", 2},         {DType::u32, "U32", 4},        {DType::u64, "U64", 8},
              {DType::f8_e4m3, "F8_E4M3", 1}, {DType::f8_e5m2, "F8_E5M2", 1}};
  for (const auto& row : rows) {
    EXPECT_EQ(numeric::to_string(row.dtype), row.name);
    EXPECT_EQ(numeric::size_of(row.dtype), row.bytes);
    EXPECT_EQ(numeric::parse_dtype(row.name), row.dtype);
  }
}

TEST(DType, TypesKnowTheirs) {
  static_assert(numeric::dtype_of<float> == DType::f32 &&
                numeric::dtype_of<halfstep::bf16> == DType::bf16);
  static_assert(numeric::dtype_of<halfstep::fp16> == DType::f16 &&
                numeric::dtype_of<double> == DType::f64);
  static_assert(numeric::dtype_of<std::int64_t> == DType::i64 &&
                numeric::dtype_of<std::uint8_t> == DType::u8);
  static_assert(numeric::dtype_of<halfstep::fp8_e4m3> == DType::f8_e4m3 &&
                numeric::dtype_of<halfstep::fp8_e5m2> == DType::f8_e5m2);
  static_assert(numeric::size_of(numeric::dtype_of<halfstep::bf16>) == sizeof(halfstep::bf16));
  static_assert(!numeric::stored<halfstep::dual<float>>);
}

TEST(DType, AnUnknownNameListsTheKnownOnes) {
  EXPECT_FALSE(numeric::find_dtype("f32").has_value());
  try {
    static_cast<void>(numeric::parse_dtype("F8_E8M0"));
    FAIL();
  } catch (const halfstep::DataError& error) {
    EXPECT_STREQ(error.what(),
                 "parse_dtype: \"F8_E8M0\" is not a format known here (F32, BF16, F16, F64, I8, "
                 "I16, I32, I64, U8, U16, U32, U64, F8_E4M3, F8_E5M2). Was the file written by a "
                 "newer version?");
  }
}

}  // namespace
