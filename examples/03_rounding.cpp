// SPDX-License-Identifier: MIT
// What rounding does to a sum: a total that is kept in 16 bits stops growing long before it is
// done, because from some size on the next addend is less than half the distance to the next
// number. The cure is a total in float that is rounded once, which is how the library's products
// add.
#include <array>
#include <cstdio>
#include <vector>

#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/numeric/bf16.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/numeric/fp16.hpp>

namespace hs = halfstep;

namespace {

constexpr int addends = 4096;

struct Row {
  double addend = 0.0;   // what 0.01 is in the format
  double exact = 0.0;    // 4096 times that
  double sum = 0.0;      // with the total kept in the format
  double once = 0.0;     // with the total kept in float, rounded to the format at the end
  double product = 0.0;  // a linear layer of the library: ones times a row of 0.01
  double count = 0.0;    // where counting by one stops
};

// The same sum as a matrix product: x = 4096 ones, W = one row of 0.01.
template <class T>
double as_product(hs::Runtime& runtime) {
  hs::Parameters<T> parameters(runtime);
  const auto w =
      parameters.scope().add("w", {1, addends}, hs::Role::weight, hs::Init::constant(0.01F));
  parameters.lay_out();
  hs::Tape tape(runtime);
  tape.begin({}, hs::Record::nothing);
  const std::vector<float> ones(addends, 1.0F);
  const auto y = hs::linear(hs::constant<T>(tape, {1, addends}, ones), w);
  return static_cast<double>(static_cast<float>(y.value()[0]));
}

template <class T>
Row measure(hs::Runtime& runtime) {
  const T addend(0.01F), one(1.0F);
  Row row{.addend = static_cast<double>(static_cast<float>(addend))};
  row.exact = addends * row.addend;
  T sum(0.0F);
  float wide = 0.0F;
  for (int i = 0; i < addends; ++i) {
    sum = sum + addend;  // one addition, rounded to T
    wide += static_cast<float>(addend);
  }
  row.sum = static_cast<double>(static_cast<float>(sum));
  row.once = static_cast<double>(static_cast<float>(T(wide)));
  row.product = as_product<T>(runtime);
  T count(0.0F);
  while (count + one != count)
    count = count + one;
  row.count = static_cast<double>(static_cast<float>(count));
  return row;
}

void print(const char* format, const Row& row) {
  std::printf("%-6s  %-20.15g %-10g %-10g %-12g %-10g %.0f\n", format, row.addend, row.exact,
              row.sum, row.once, row.product, row.count);
}

}  // namespace

int main() {
  hs::Runtime runtime;
  const Row wide = measure<float>(runtime), half = measure<hs::fp16>(runtime),
            brain = measure<hs::bf16>(runtime);

  std::printf("4096 times 0.01, added one after the other\n\n");
  std::printf("format  %-20s %-10s %-10s %-12s %-10s %s\n", "0.01 is", "exact", "total in",
              "rounded", "product", "1 + 1 + ...");
  std::printf("%-39s %-10s %-12s %-10s %s\n", "", "format", "at the end", "", "stops at");
  print("float", wide);
  print("fp16", half);
  print("bf16", brain);
  std::printf(
      "\nbf16 has 8 significant bits: between 4 and 8 its numbers are 2^-5 apart, and 0.01 is "
      "less\n"
      "than half of that, so 4 + 0.01 is 4 for ever. fp16 has 11 bits and stops at 32. A total in\n"
      "float, rounded once, is right to the last bit of either; the library's products are so.\n");

  const bool sticks = brain.sum == 4.0 && half.sum == 32.0;
  const bool counts = brain.count == 256.0 && half.count == 2048.0 && wide.count == 16777216.0;
  // 41 is a bf16 number, and 40.96875 = 1311 / 32 one of fp16: nothing is lost at the end either.
  const bool cured = brain.exact == 41.0 && brain.once == 41.0 && brain.product == 41.0 &&
                     half.once == half.exact && half.product == half.exact;
  return sticks && counts && cured ? 0 : 1;
}
