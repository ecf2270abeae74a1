// SPDX-License-Identifier: MIT
#include <halfstep/dist/parallel/whole_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/mixed/any_optimizer.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/optim/adamw.hpp>

#include "dist/ranks.hpp"
#include "mixed/given_tape.hpp"

namespace {
namespace hs = halfstep;
namespace dist = halfstep::dist;
using hs::bf16;
using Masters = hs::mixed::MasterWeights<hs::optim::AdamW, bf16>;
using Any = hs::mixed::AnyOptimizer<bf16>;

/// What a file would hold.
struct File {
  std::map<std::string, std::pair<hs::Shape, std::vector<std::byte>>> tensors;
  std::map<std::string, double> scalars;
  friend bool operator==(const File&, const File&) = default;
};
struct Save {
  File& file;
  void tensor(const hs::tensor::StateTensor& one) {
    ASSERT_TRUE(one.whole()) << one.name;
    file.tensors[std::string(one.name)] = {one.shape, {one.bytes.begin(), one.bytes.end()}};
  }
  void scalar(std::string_view name, auto& value) {
    file.scalars[std::string(name)] = static_cast<double>(value);
  }
};
struct Load {
  const File& file;
  void tensor(const hs::tensor::StateTensor& one) {
    const auto& bytes = file.tensors.at(std::string(one.name)).second;
    ASSERT_EQ(bytes.size(), one.bytes.size()) << one.name;
    std::copy(bytes.begin(), bytes.end(), one.bytes.begin());
  }
  void scalar(std::string_view name, auto& value) {
    value = static_cast<std::remove_cvref_t<decltype(value)>>(file.scalars.at(std::string(name)));
  }
};

/// One rank of a run in a stage of ZeRO; 0: data parallel.
struct Run {
  Run(dist::Group& group, int stage) : parameters(runtime) {
    for (const int elements : {3000, 5, 2000, 1, 1024}) {
      parameters.scope().add("p" + std::to_string(elements), {elements}, hs::Role::weight,
                             hs::Init::normal(1.0F));
    }
    const auto use = [&]<class Zero>(std::unique_ptr<hs::mixed::OptimizerOf<Zero>> made) {
      processes = &made->get().ranks();
      optimizer = std::move(made);
    };
    if (stage == 0) {
      data_parallel = std::make_unique<dist::DataParallel<bf16>>(group, parameters);
      processes = data_parallel.get();
      optimizer = std::make_unique<hs::mixed::OptimizerOf<Masters>>(parameters);
    }
    if (stage == 1)
      use(std::make_unique<hs::mixed::OptimizerOf<dist::Zero1<Masters>>>(group, parameters));
    if (stage == 2)
      use(std::make_unique<hs::mixed::OptimizerOf<dist::Zero2<Masters>>>(group, parameters));
    if (stage == 3)
      use(std::make_unique<hs::mixed::OptimizerOf<dist::Zero3<Masters>>>(group, parameters));
  }
  void step(int number) {
    hs::mixed::GradientAccumulator<bf16> accumulator(parameters, nullptr, *processes);
    halfstep_tests::GivenTape tape;
    auto window =
        accumulator.begin(tape, number, {.micro_batches = 4, .rows = 1, .targets_per_row = 1});
    for (const auto micro : window) {
      tape.begin(micro);
      halfstep_tests::GivenLoss<float> loss{.sum = 1.0, .leaves = {}};
      for (auto i = static_cast<std::uint32_t>(parameters.size()); i-- > 0;) {
        std::vector<float> leaf;
        for (std::int64_t e = 0; e < parameters.infos()[i].elements; ++e)
          leaf.push_back(0.1F * static_cast<float>((e * 7 + micro.number * 3 + number) % 13) -
                         0.5F);
        loss.leaves.push_back({{i}, leaf});
      }
      window.backward(tape, loss);
    }
    EXPECT_TRUE(optimizer->step(std::move(window).unscale(), 0.01F).applied);
  }
  hs::Runtime runtime{{.threads = 1}};
  hs::Parameters<bf16> parameters;
  std::unique_ptr<dist::DataParallel<bf16>> data_parallel;
  std::unique_ptr<Any> optimizer;
  hs::mixed::Processes<float>* processes = nullptr;
};

/// What `n` ranks have saved after two steps, and the hash of their weights after a third.
std::pair<File, std::uint64_t> saved(int n, int stage, ranks::Over over) {
  File file;
  std::uint64_t hash = 0;
  ranks::run(n, over, [&](dist::Group& group) {
    Run run(group, stage);
    run.step(0);
    run.step(1);
    dist::WholeState weights(group, run.parameters);
    dist::WholeState state(group, *run.optimizer);
    weights.gather();
    state.gather();
    if (group.rank() == 0) {
      Save save{file};
      weights.visit_state(save);
      state.visit_state(save);
      EXPECT_EQ(state.steps(), 2);
      EXPECT_EQ(&weights.runtime(), &run.runtime);
    }
    run.step(2);
    const std::uint64_t own = run.optimizer->weights_hash();
    if (group.rank() == 0) hash = own;
  });
  return {file, hash};
}
/// The hash after the third step of ranks that began with what others saved after two.
std::uint64_t continued(int n, int stage, ranks::Over over, const File& file) {
  std::uint64_t hash = 0;
  ranks::run(n, over, [&](dist::Group& group) {
    Run run(group, stage);
    dist::WholeState weights(group, run.parameters);
    dist::WholeState state(group, *run.optimizer);
    weights.gather();
    state.gather();
    if (group.rank() == 0) {
      Load load{file};
      weights.visit_state(load);
      state.visit_state(load);
    }
    weights.scatter();
    state.scatter();
    EXPECT_EQ(run.optimizer->steps(), 2) << group.rank();
    run.step(2);
    const std::uint64_t own = run.optimizer->weights_hash();
    if (group.rank() == 0) hash = own;
  });
  return hash;
}

class WholeState : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stage, WholeState, testing::Values(0, 1, 2, 3));

TEST_P(WholeState, IsWhatOneProcessSavesAndGoesOnInAnyLayout) {
  const auto [file, hash] = saved(1, 0, ranks::Over::heap);
  EXPECT_EQ(file.tensors.size(), 5U + 3 * 5);
  for (const int n : {1, 2, 4}) {
    const auto [theirs, after] = saved(n, GetParam(), ranks::Over::sockets);
    EXPECT_TRUE(theirs == file) << n;
    EXPECT_EQ(after, hash) << n;
    EXPECT_EQ(continued(n, GetParam(), ranks::Over::heap, file), hash) << n;
  }
  File other = file;
  other.tensors.begin()->second.second.back() ^= std::byte{0x40};
  EXPECT_NE(continued(2, GetParam(), ranks::Over::heap, other), hash);
}

/// The hash of rank 0 after a step with weights that were loaded after another, and no state.
std::uint64_t stepped_with_loaded_weights(int n, int stage, const File& file) {
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(n));
  ranks::run(n, ranks::Over::heap, [&](dist::Group& group) {
    Run run(group, stage);
    run.step(0);
    dist::WholeState weights(group, run.parameters);
    weights.gather();
    if (group.rank() == 0) {
      Load load{file};
      weights.visit_state(load);
    }
    weights.scatter();
    run.step(1);
    hashes[static_cast<std::size_t>(group.rank())] = run.optimizer->weights_hash();
  });
  for (const std::uint64_t hash : hashes)
    EXPECT_EQ(hash, hashes.front()) << n << " ranks, stage " << stage;
  return hashes.front();
}
TEST_P(WholeState, GivesEveryRankANewVersionOfWeightsThatWereLoadedAlone) {
  const File file = saved(1, 0, ranks::Over::heap).first;
  const std::uint64_t wanted = stepped_with_loaded_weights(1, 0, file);
  for (const int n : {2, 4})
    EXPECT_EQ(stepped_with_loaded_weights(n, GetParam(), file), wanted) << n;
}

/// Two floats, of which each rank shows what the test says, and a scalar.
struct Shown {
  hs::Shape shape{2};
  std::int64_t first = 0;
  std::size_t bytes = 0;
  std::vector<float> values = std::vector<float>(2);
  std::int64_t scalar = 0;
  void visit_state(auto& visitor) {
    const auto shown = std::as_writable_bytes(std::span(values)).first(bytes);
    visitor.tensor(
        hs::tensor::StateTensor{"half", hs::numeric::dtype_of<float>, shape, first, shown});
    visitor.scalar("scalar", scalar);
  }
};
std::string refused(const Shown& rank_0, const Shown& rank_1) {
  std::vector<std::string> errors(2);
  ranks::run(2, ranks::Over::heap, [&](dist::Group& group) {
    Shown part = group.rank() == 0 ? rank_0 : rank_1;
    dist::WholeState whole(group, part);
    try {
      whole.gather();
    } catch (const hs::StateError& error) {
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0];
}
TEST(WholeStateOf, RanksThatDoNotHoldEachElementOnceNamesTheTensor) {
  EXPECT_EQ(refused({.bytes = 4}, {.first = 1, .bytes = 4}), "");
  EXPECT_EQ(refused({.bytes = 8}, {.bytes = 8}), "");
  EXPECT_EQ(refused({.bytes = 4}, {.first = 1, .bytes = 0}),
            "WholeState: of 'half' the ranks hold 4 of 8 bytes. Do all of them visit the same "
            "state?");
  const std::string order =
      "WholeState: of 'half' the ranks hold 8 of 8 bytes, not one part after the other. Do all of "
      "them visit the same state?";
  EXPECT_EQ(refused({.bytes = 4}, {.bytes = 4}), order);
  EXPECT_EQ(refused({.first = 1, .bytes = 4}, {.bytes = 4}), order);
  EXPECT_EQ(refused({.bytes = 4}, {.shape = {1, 2}, .first = 1, .bytes = 4}),
            "WholeState: 'half' is F32 [1, 2] on rank 1, but F32 [2] before. Do all ranks have the "
            "same model?");
}
TEST(WholeStateOf, RanksIsThereBetweenGatherAndDropOnRankZero) {
  ranks::run(2, ranks::Over::heap, [&](dist::Group& group) {
    Shown part{.first = group.rank(), .bytes = 4};
    dist::WholeState whole(group, part);
    File file;
    Save save{file};
    EXPECT_THROW(whole.scatter(), hs::StateError);
    EXPECT_THROW(whole.visit_state(save), hs::StateError);
    whole.gather();
    if (group.rank() == 0) {
      whole.visit_state(save);
      EXPECT_EQ(file.scalars.size(), 1U);
    } else {
      EXPECT_THROW(whole.visit_state(save), hs::StateError);
    }
    whole.scatter();
    whole.drop();
    EXPECT_THROW(whole.scatter(), hs::StateError);
    EXPECT_THROW(whole.visit_state(save), hs::StateError);
  });
}

}  // namespace
