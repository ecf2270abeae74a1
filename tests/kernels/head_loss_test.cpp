// SPDX-License-Identifier: MIT
#include <halfstep/kernels/head_loss.hpp>

#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/linear.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::DataError;
using halfstep::ShapeError;
using halfstep::core::row_major;
namespace kernels = halfstep::kernels;

template <class E>
struct Problem {
  std::int64_t rows, width, classes;
  std::vector<E> x, w;
  std::vector<std::int32_t> targets;

  Problem(std::int64_t rows_, std::int64_t width_, std::int64_t classes_)
      : rows(rows_),
        width(width_),
        classes(classes_),
        x(values<E>(rows * width, 1, 2.0)),
        w(values<E>(classes * width, 2, 2.0)) {
    for (std::int64_t r = 0; r < rows; ++r)
      targets.push_back(r % 5 == 3 ? -1 : static_cast<std::int32_t>((r * 7) % classes));
  }
};

template <class E>
struct Answer {
  kernels::CrossEntropySum sum;
  std::vector<E> dx;
  std::vector<accumulator_t<E>> dw;
};

template <class E>
Answer<E> fused(const Compute& compute, const Problem<E>& p, accumulator_t<E> seed,
                std::int64_t chunk) {
  using A = accumulator_t<E>;
  Guarded<E> x(p.x), w(p.w), dx(p.rows * p.width);
  Guarded<A> dw(p.classes * p.width, A{99});
  const kernels::HeadLossOptions options{.chunk = chunk};
  Guarded<std::byte> workspace(
      kernels::head_loss_workspace<E>(compute, p.rows, p.width, p.classes, options));
  const auto sum = kernels::head_loss<E>(compute, row_major<const E>(x.data(), p.rows, p.width),
                                         row_major<const E>(w.data(), p.classes, p.width),
                                         p.targets, seed, dx.data(), dw.data(), workspace, options);
  return {sum, dx.copy(), dw.copy()};
}

/// The kernels that it fuses, each over all rows.
template <class E>
Answer<E> composed(const Compute& compute, const Problem<E>& p, accumulator_t<E> seed) {
  using A = accumulator_t<E>;
  const auto n = static_cast<std::size_t>(p.rows * p.classes);
  std::vector<A> logits(n), slopes(n), losses(p.targets.size()), lse(p.targets.size());
  std::vector<E> rounded(n);
  std::vector<std::byte> workspace(static_cast<std::size_t>(
      std::max(kernels::linear_forward_workspace<E>(compute, p.rows, p.width, p.classes),
               kernels::linear_backward_workspace<E>(compute, p.rows, p.width, p.classes))));
  Answer<E> a{{}, std::vector<E>(p.x.size()), std::vector<A>(p.w.size())};
  const auto x = row_major(p.x.data(), p.rows, p.width),
             w = row_major(p.w.data(), p.classes, p.width);
  kernels::linear_forward<E, A>(compute, x, w, nullptr, row_major(logits.data(), p.rows, p.classes),
                                workspace);
  a.sum = kernels::cross_entropy<A>(compute, logits, p.targets, losses, lse);
  kernels::cross_entropy_backward<A, A>(compute, logits, p.targets, lse, seed, slopes);
  kernels::cast<A, E>(compute, slopes, rounded);
  const auto dy = row_major<const E>(rounded.data(), p.rows, p.classes);
  kernels::linear_backward_input<E, E>(compute, dy, w, row_major(a.dx.data(), p.rows, p.width),
                                       kernels::Write::overwrite, workspace);
  kernels::linear_backward_weight<E>(compute, dy, x, row_major(a.dw.data(), p.classes, p.width),
                                     kernels::Write::overwrite, workspace);
  return a;
}

template <class E>
class HeadLoss : public testing::Test {};
using Elements = testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(HeadLoss, Elements);

TYPED_TEST(HeadLoss, HasTheBitsOfItsPartsOnEveryPathForEveryChunk) {
  using E = TypeParam;
  const auto seed = static_cast<accumulator_t<E>>(0.25);
  for (const auto& p :
       {Problem<E>(1, 1, 1), Problem<E>(5, 3, 2), Problem<E>(37, 19, 33), Problem<E>(70, 33, 65)}) {
    const Answer<E> expected = composed(portable(), p, seed);
    every_compute([&](const Compute& compute, const std::string& name) {
      for (const std::int64_t chunk : {0, 2, 10, 36, 1000}) {
        SCOPED_TRACE(name + ", rows " + std::to_string(p.rows) + ", chunk " +
                     std::to_string(chunk));
        const Answer<E> found = fused(compute, p, seed, chunk);
        EXPECT_EQ(found.sum.sum, expected.sum.sum);
        EXPECT_EQ(found.sum.count, expected.sum.count);
        EXPECT_EQ(found.sum.correct, expected.sum.correct);
        ASSERT_SAME_BITS(found.dx, expected.dx);
        ASSERT_SAME_BITS(found.dw, expected.dw);
      }
    });
    if (p.classes == 1) continue;  // the only class has probability 1: all gradients are zero
    EXPECT_NE(difference(fused(portable(), p, seed / 2, 0).dx, expected.dx), "")
        << "the seed is ignored";
  }
}

TYPED_TEST(HeadLoss, ComputesOnlyWhatItIsAskedFor) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  const Problem<E> p(37, 19, 33);
  std::vector<E> dx(p.x.size());
  std::vector<A> dw(p.w.size());
  std::vector<std::byte> workspace(static_cast<std::size_t>(
      kernels::head_loss_workspace<E>(portable(), p.rows, p.width, p.classes)));
  const auto products = [&](E* to_x, A* to_w) {
    halfstep::core::Counters counters;
    Compute compute = portable();
    compute.counters = &counters;
    const auto sum = kernels::head_loss<E>(compute, row_major(p.x.data(), p.rows, p.width),
                                           row_major(p.w.data(), p.classes, p.width), p.targets,
                                           A{1}, to_x, to_w, workspace);
    EXPECT_EQ(sum.sum, composed(portable(), p, A{1}).sum.sum);
    EXPECT_GT(counters.ticks[static_cast<std::size_t>(halfstep::core::Phase::head)], 0U);
    EXPECT_EQ(counters.ticks[static_cast<std::size_t>(halfstep::core::Phase::products)], 0U);
    return counters.flops / (2 * 37 * 19 * 33);
  };
  EXPECT_EQ(products(nullptr, nullptr), 1U);
  EXPECT_EQ(products(dx.data(), nullptr), 2U);
  EXPECT_EQ(products(nullptr, dw.data()), 2U);
  EXPECT_EQ(products(dx.data(), dw.data()), 3U);
}

TEST(HeadLossMemory, GrowsWithTheChunkAndNotWithTheRows) {
  const auto bytes = [](std::int64_t rows) {
    return kernels::head_loss_workspace<bf16>(portable(), rows, 384, 50257);
  };
  // Logits in float and their gradient in bf16 of some 300 rows, beside the workspace of a product.
  EXPECT_LT(bytes(1024), std::int64_t{320} * 50257 * 6 + (std::int64_t{32} << 20));
  EXPECT_LT(bytes(16384), bytes(1024) + (std::int64_t{32} << 20));
}

TEST(HeadLossErrors, NameTheSizesAndTheRow) {
  Problem<float> p(37, 19, 33);
  std::vector<std::byte> workspace(static_cast<std::size_t>(
      kernels::head_loss_workspace<float>(portable(), p.rows, p.width, p.classes)));
  const auto call = [&](std::int64_t width, std::size_t bytes, std::int64_t chunk) {
    return kernels::head_loss<float>(
        portable(), row_major<const float>(p.x.data(), p.rows, p.width),
        row_major<const float>(p.w.data(), p.classes, width), p.targets, 1.0F, nullptr, nullptr,
        std::span(workspace).first(bytes), {.chunk = chunk});
  };
  EXPECT_EQ(message_of<ShapeError>([&] { call(18, workspace.size(), 0); }),
            "head_loss: x is 37 x 19, w 33 x 18, with 37 targets and chunks of 0. Wanted one "
            "width, no gaps, a target for "
            "each row, an even chunk.");
  EXPECT_NE(message_of<ShapeError>([&] { call(19, workspace.size(), 3); }).find("chunks of 3"),
            std::string::npos);
  EXPECT_NE(
      message_of<ShapeError>([&] { call(19, workspace.size() - 1, 0); }).find("bytes; wanted"),
      std::string::npos);
  p.targets[30] = 33;
  EXPECT_NE(message_of<DataError>([&] {
              call(19, workspace.size(), 0);
            }).find("head_loss: target 33 of row 30"),
            std::string::npos);
}

}  // namespace
