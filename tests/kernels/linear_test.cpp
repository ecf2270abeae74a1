// SPDX-License-Identifier: MIT
#include <halfstep/kernels/linear.hpp>

#include <cmath>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::ShapeError;
using halfstep::core::row_major;
using halfstep::kernels::Write;

struct Sizes {
  std::int64_t rows, in, out;
};
constexpr Sizes sizes[] = {{1, 1, 1}, {7, 5, 3}, {33, 17, 65}, {13, 70, 31}, {50, 64, 96}};

template <class E>
struct Layer {
  explicit Layer(const Sizes& s)
      : x(values<E>(s.rows * s.in, 1)),
        w(values<E>(s.out * s.in, 2)),
        bias(values<E>(s.out, 3)),
        dy(values<E>(s.rows * s.out, 4)) {}
  Guarded<E> x, w, bias, dy;
};

template <class E>
class Linear : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Linear, Elements);

// Against exact sums in double (long double for double): the shapes and transposes are right, and
// the error is that of a chain of that length. Bits are gemm_test's and the next test's.
TYPED_TEST(Linear, EveryProductIsCloseToAPlainSum) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const Sizes& s : sizes) {
    Layer<E> layer(s);
    const Compute compute = widest();
    Guarded<std::byte> workspace(
        std::max(halfstep::kernels::linear_forward_workspace<E>(compute, s.rows, s.in, s.out),
                 halfstep::kernels::linear_backward_workspace<E>(compute, s.rows, s.in, s.out)));
    const auto x = row_major<const E>(layer.x.data(), s.rows, s.in);
    const auto w = row_major<const E>(layer.w.data(), s.out, s.in);
    const auto dy = row_major<const E>(layer.dy.data(), s.rows, s.out);
    std::vector<A> y(static_cast<std::size_t>(s.rows * s.out)),
        dx(static_cast<std::size_t>(s.rows * s.in)), dw(static_cast<std::size_t>(s.out * s.in)),
        db(static_cast<std::size_t>(s.out));
    halfstep::kernels::linear_forward<E, A>(compute, x, w, layer.bias.data(),
                                            row_major(y.data(), s.rows, s.out), workspace);
    halfstep::kernels::linear_backward_input<E>(compute, dy, w, row_major(dx.data(), s.rows, s.in),
                                                Write::overwrite, workspace);
    halfstep::kernels::linear_backward_weight<E>(compute, dy, x, row_major(dw.data(), s.out, s.in),
                                                 Write::overwrite, workspace);
    halfstep::kernels::linear_backward_bias<E>(compute, dy, db, Write::overwrite);
    const auto near = [](A got, long double want, std::int64_t terms, const char* what) {
      const long double unit = sizeof(A) == 4 ? 6e-8L : 1.2e-16L;
      EXPECT_NEAR(static_cast<double>(got), static_cast<double>(want),
                  static_cast<double>(unit * static_cast<long double>(terms + 2) * 2))
          << what;
    };
    const auto wide = [](E e) { return static_cast<long double>(static_cast<double>(e)); };
    for (std::int64_t r = 0; r < s.rows; ++r) {
      for (std::int64_t o = 0; o < s.out; ++o) {
        long double sum = wide(layer.bias[o]);
        for (std::int64_t i = 0; i < s.in; ++i)
          sum += wide(x(r, i)) * wide(w(o, i));
        near(y[static_cast<std::size_t>(r * s.out + o)], sum, s.in, "y");
      }
      for (std::int64_t i = 0; i < s.in; ++i) {
        long double sum = 0;
        for (std::int64_t o = 0; o < s.out; ++o)
          sum += wide(dy(r, o)) * wide(w(o, i));
        near(dx[static_cast<std::size_t>(r * s.in + i)], sum, s.out, "dx");
      }
    }
    for (std::int64_t o = 0; o < s.out; ++o) {
      long double sum = 0;
      for (std::int64_t r = 0; r < s.rows; ++r)
        sum += wide(dy(r, o));
      near(db[static_cast<std::size_t>(o)], sum, s.rows, "db");
      for (std::int64_t i = 0; i < s.in; ++i) {
        sum = 0;
        for (std::int64_t r = 0; r < s.rows; ++r)
          sum += wide(dy(r, o)) * wide(x(r, i));
        near(dw[static_cast<std::size_t>(o * s.in + i)], sum, s.rows, "dw");
      }
    }
  }
}

TYPED_TEST(Linear, EveryPathAndThreadCountGivesThePortableBits) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const Sizes& s : sizes) {
    Layer<E> layer(s);
    const auto run = [&](const Compute& compute, Write write) {
      Guarded<std::byte> workspace(
          std::max(halfstep::kernels::linear_forward_workspace<E>(compute, s.rows, s.in, s.out),
                   halfstep::kernels::linear_backward_workspace<E>(compute, s.rows, s.in, s.out)));
      const auto x = row_major<const E>(layer.x.data(), s.rows, s.in);
      const auto w = row_major<const E>(layer.w.data(), s.out, s.in);
      const auto dy = row_major<const E>(layer.dy.data(), s.rows, s.out);
      Guarded<E> y(s.rows * s.out), dx(values<E>(s.rows * s.in, 5));
      Guarded<A> dw(values<A>(s.out * s.in, 6)), db(values<A>(s.out, 7));
      halfstep::kernels::linear_forward<E, E>(compute, x, w, layer.bias.data(),
                                              row_major(y.data(), s.rows, s.out), workspace);
      halfstep::kernels::linear_backward_input<E>(
          compute, dy, w, row_major(dx.data(), s.rows, s.in), write, workspace);
      halfstep::kernels::linear_backward_weight<E>(
          compute, dy, x, row_major(dw.data(), s.out, s.in), write, workspace);
      halfstep::kernels::linear_backward_bias<E>(compute, dy, db, write);
      return std::tuple{y.copy(), dx.copy(), dw.copy(), db.copy()};
    };
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const auto expected = run(portable(), write);
      every_compute([&](const Compute& compute, const std::string& name) {
        const auto got = run(compute, write);
        EXPECT_SAME_BITS(std::get<0>(got), std::get<0>(expected)) << name;
        EXPECT_SAME_BITS(std::get<1>(got), std::get<1>(expected)) << name;
        EXPECT_SAME_BITS(std::get<2>(got), std::get<2>(expected)) << name;
        EXPECT_SAME_BITS(std::get<3>(got), std::get<3>(expected)) << name;
      });
    }
    EXPECT_FALSE(difference(std::get<2>(run(portable(), Write::overwrite)),
                            std::get<2>(run(portable(), Write::accumulate)))
                     .empty());
  }
}

TYPED_TEST(Linear, TheBiasGradientIsOneChainOverTheRowsPerColumn) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  for (const std::int64_t columns : {1, 15, 16, 17, 63, 64, 100, 200}) {
    for (const std::int64_t rows : {0, 1, 5, 300}) {
      Guarded<E> dy(values<E>(rows * columns, 1));
      const auto start = values<A>(columns, 2);
      std::vector<A> fresh(start), added(start);
      for (std::int64_t j = 0; j < columns; ++j) {
        A sum{0};
        for (std::int64_t r = 0; r < rows; ++r)
          sum = sum + static_cast<A>(dy[r * columns + j]);
        fresh[static_cast<std::size_t>(j)] = sum;
        added[static_cast<std::size_t>(j)] += sum;
      }
      every_compute([&](const Compute& compute, const std::string& name) {
        const auto view = row_major<const E>(dy.data(), rows, columns);
        Guarded<A> db(start);
        halfstep::kernels::linear_backward_bias<E>(compute, view, db, Write::accumulate);
        EXPECT_SAME_BITS(db.copy(), added) << name;
        halfstep::kernels::linear_backward_bias<E>(compute, view, db, Write::overwrite);
        EXPECT_SAME_BITS(db.copy(), fresh) << name;
      });
    }
  }
}

TEST(LinearErrors, NameTheShapes) {
  std::vector<float> x(100);
  std::vector<std::byte> workspace(1 << 16);
  const auto at = [&](std::int64_t r, std::int64_t c) {
    return row_major<const float>(x.data(), r, c);
  };
  const auto to = [&](std::int64_t r, std::int64_t c) { return row_major(x.data(), r, c); };
  const auto compute = portable();
  EXPECT_EQ(message_of<ShapeError>([&] {
              halfstep::kernels::linear_forward<float, float>(compute, at(2, 3), at(4, 5), nullptr,
                                                              to(2, 4), workspace);
            }),
            "linear_forward: x, w, y are 2 x 3, 4 x 5 and 2 x 4. Do the layer's widths fit its "
            "neighbours'?");
  EXPECT_EQ(
      message_of<ShapeError>([&] {
        halfstep::kernels::linear_backward_input<float>(compute, at(2, 4), at(4, 5), to(2, 4),
                                                        Write::overwrite, workspace);
      }),
      "linear_backward_input: dy, w, dx are 2 x 4, 4 x 5 and 2 x 4. Do the layer's widths fit "
      "its neighbours'?");
  EXPECT_EQ(
      message_of<ShapeError>([&] {
        halfstep::kernels::linear_backward_weight<float>(compute, at(2, 4), at(3, 5), to(4, 5),
                                                         Write::overwrite, workspace);
      }),
      "linear_backward_weight: dy, x, dw are 2 x 4, 3 x 5 and 4 x 5. Do the layer's widths fit "
      "its neighbours'?");
  EXPECT_EQ(message_of<ShapeError>([&] {
              halfstep::kernels::linear_backward_bias<float>(
                  compute, at(2, 4), std::span(x).first(3), Write::overwrite);
            }),
            "linear_backward_bias: dy is 2 x 4 with elements of a row 1 apart, db has 3 elements. "
            "Wanted one for each column, and rows without gaps.");
}

}  // namespace
