// SPDX-License-Identifier: MIT
#include <halfstep/kernels/embedding.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using halfstep::DataError;
using halfstep::ShapeError;
namespace kernels = halfstep::kernels;

std::vector<std::int32_t> some_tokens(std::int64_t rows, std::int64_t vocabulary,
                                      std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  // Squared, so that some rows of the table are hot and some are never used.
  for (std::int64_t r = 0; r < rows; ++r) {
    const double u = (value_at(seed, r) + 1) / 2;
    tokens.push_back(static_cast<std::int32_t>(u * u * static_cast<double>(vocabulary)));
  }
  return tokens;
}

template <class E>
class Embedding : public testing::Test {};
using Elements = testing::Types<float, bf16, fp16, double>;
TYPED_TEST_SUITE(Embedding, Elements);

TYPED_TEST(Embedding, EveryPathAndThreadCountGivesTheBitsOfThePlainLoop) {
  using E = TypeParam;
  using A = accumulator_t<E>;
  every_compute([](const Compute& compute, const std::string& name) {
    for (const std::int64_t d : {1, 5, 16, 17, 63, 64, 100, 131}) {
      for (const std::int64_t period : {1, 7}) {
        const std::int64_t rows = 7 * 9, vocabulary = 23;
        SCOPED_TRACE(name + ", width " + std::to_string(d) + ", period " + std::to_string(period));
        const auto tokens = some_tokens(rows, vocabulary, 1);
        const auto table = values<E>(vocabulary * d, 2), position = values<E>(period * d, 3);
        const auto dout = values<E>(rows * d, 4);
        const auto told = values<A>(vocabulary * d, 5), pold = values<A>(period * d, 6);
        for (const bool accumulate : {false, true}) {
          std::vector<E> y(dout.size());
          std::vector<A> dt(table.size()), dp(position.size());
          std::vector<bool> used(vocabulary);
          for (std::int64_t r = 0; r < rows; ++r) {
            const auto t = tokens[static_cast<std::size_t>(r)];
            used[static_cast<std::size_t>(t)] = true;
            for (std::int64_t j = 0; j < d; ++j) {
              const auto i = static_cast<std::size_t>(r * d + j);
              const auto in_table = static_cast<std::size_t>(t * d + j);
              const auto in_position = static_cast<std::size_t>(r % period * d + j);
              y[i] = static_cast<E>(static_cast<A>(table[in_table]) +
                                    static_cast<A>(position[in_position]));
              dt[in_table] += static_cast<A>(dout[i]);
              dp[in_position] += static_cast<A>(dout[i]);
            }
          }
          for (std::size_t i = 0; accumulate && i < dt.size(); ++i) {
            dt[i] = used[i / static_cast<std::size_t>(d)] ? told[i] + dt[i] : told[i];
          }
          for (std::size_t i = 0; accumulate && i < dp.size(); ++i)
            dp[i] = pold[i] + dp[i];

          Guarded<std::int32_t> gtokens(tokens);
          Guarded<E> gtable(table), gposition(position), out(rows * d), gdout(dout);
          Guarded<A> dtable(told), dposition(pold);
          Guarded<std::byte> workspace(kernels::embedding_workspace(rows, vocabulary));
          kernels::embedding<E>(compute, gtokens, gtable, gposition, out, d);
          kernels::embedding_backward<E>(compute, gtokens, gdout, dtable, dposition, d, workspace,
                                         accumulate);
          ASSERT_SAME_BITS(out.copy(), y);
          ASSERT_SAME_BITS(dtable.copy(), dt);
          ASSERT_SAME_BITS(dposition.copy(), dp);
          for (std::size_t v = 0; v < used.size(); ++v) {
            if (accumulate || used[v]) continue;
            ASSERT_EQ(dtable[static_cast<std::int64_t>(v) * d], A{0});
          }
        }
      }
    }
  });
}

TYPED_TEST(Embedding, WithoutPositionsTheTablesBitsAreCopied) {
  using E = TypeParam;
  const auto table = values<E>(5 * 19, 1);
  std::vector<E> out(3 * 19);
  kernels::embedding<E>(widest(), std::vector<std::int32_t>{4, 0, 4}, table, {}, out, 19);
  for (std::size_t j = 0; j < 19; ++j) {
    EXPECT_EQ(out[j], table[4 * 19 + j]);
    EXPECT_EQ(out[19 + j], table[j]);
    EXPECT_EQ(out[38 + j], table[4 * 19 + j]);
  }
}

TEST(EmbeddingKernel, TheOrderOfRowsShowsInTheSum) {
  // 1e8, 1, -1e8 in this order is 0 or 1: the promise is the ascending one.
  std::vector<float> dtable(1), dposition;
  std::vector<std::byte> workspace(64);
  const std::vector<std::int32_t> tokens{0, 0, 0};
  kernels::embedding_backward<float>(widest(), tokens, std::vector<float>{1e8F, 1, -1e8F}, dtable,
                                     {}, 1, workspace);
  EXPECT_EQ(dtable[0], 0.0F);
  kernels::embedding_backward<float>(widest(), tokens, std::vector<float>{1e8F, -1e8F, 1}, dtable,
                                     {}, 1, workspace);
  EXPECT_EQ(dtable[0], 1.0F);
}

TEST(EmbeddingKernel, EachTableCanBeLeftOut) {
  const std::vector<std::int32_t> tokens{1, 0};
  const std::vector<float> dout{1, 2, 3, 4};
  std::vector<float> dtable(4), dposition(2);
  std::vector<std::byte> workspace(20);
  kernels::embedding_backward<float>(widest(), tokens, dout, dtable, {}, 2, workspace);
  EXPECT_EQ(dtable, (std::vector<float>{3, 4, 1, 2}));
  kernels::embedding_backward<float>(widest(), tokens, dout, {}, dposition, 2, {});
  EXPECT_EQ(dposition, (std::vector<float>{4, 6}));
}

TEST(EmbeddingKernel, ATokenOutOfRangeIsNamedBeforeAnythingIsWritten) {
  const std::vector<float> table(6, 1.0F);
  std::vector<float> out(6, 9.0F);
  EXPECT_EQ(
      message_of<DataError>([&] {
        kernels::embedding<float>(widest(), std::vector<std::int32_t>{0, 1, 3}, table, {}, out, 2);
      }),
      "embedding: token 3 at row 2 is not in [0, 3). Was the text encoded by another tokenizer "
      "than the "
      "model's?");
  EXPECT_EQ(out, std::vector<float>(6, 9.0F));
  std::vector<std::byte> workspace(64);
  EXPECT_NE(message_of<DataError>([&] {
              kernels::embedding_backward<float>(widest(), std::vector<std::int32_t>{0, -1, 2},
                                                 table, out, {}, 2, workspace);
            }).find("embedding_backward: token -1 at row 1 is not in [0, 3)"),
            std::string::npos);
  EXPECT_EQ(out, std::vector<float>(6, 9.0F));
}

TEST(EmbeddingKernel, ErrorsNameTheSizes) {
  const std::vector<float> table(6);
  std::vector<float> out(5);
  EXPECT_EQ(
      message_of<ShapeError>([&] {
        kernels::embedding<float>(widest(), std::vector<std::int32_t>{0, 1, 1}, table, {}, out, 2);
      }),
      "embedding: width 2, 3 tokens, 5 elements of output, 6 of the table and 0 of positions; the "
      "output "
      "wants tokens x width, tables whole rows of width. Was the model's width changed in one "
      "place only?");
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::embedding<float>(widest(), std::vector<std::int32_t>{0}, table, {}, out, 0);
            }).find("width 0"),
            std::string::npos);
  std::vector<float> dtable(6);
  std::vector<std::byte> small(16);
  EXPECT_NE(message_of<ShapeError>([&] {
              kernels::embedding_backward<float>(widest(), std::vector<std::int32_t>{0, 1, 1},
                                                 table, dtable, {}, 2, small);
            }).find("embedding_backward: workspace has 16 bytes; 28 are wanted"),
            std::string::npos);
}

TEST(EmbeddingKernel, ThreadsShareTheTokensNotTheRowsOfTheTable) {
  // All tokens in the upper half of the table: both workers must have some.
  std::vector<std::int32_t> starts{0, 0, 0, 0, 0, 10, 20, 30, 40};
  using kernels::detail::row_of_item;
  EXPECT_EQ(row_of_item(starts.data(), 8, 0), 0);
  EXPECT_EQ(row_of_item(starts.data(), 8, 24), 6);
  EXPECT_EQ(row_of_item(starts.data(), 8, 48), 8);
}

}  // namespace
