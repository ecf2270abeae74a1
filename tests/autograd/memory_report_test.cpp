// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/memory_report.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>

namespace hs = halfstep;
using testing::HasSubstr;

namespace {

struct Model {
  hs::Parameter<float> gain, up, down;
  explicit Model(hs::Scope<float> s)
      : gain(s.add("gain", {16}, hs::Role::gain, hs::Init::constant(1.0F))),
        up(s.add("up", {64, 16}, hs::Role::weight, hs::Init::normal(0.1F))),
        down(s.add("down", {16, 64}, hs::Role::weight, hs::Init::normal(0.1F))) {}
  hs::Variable<float> block(hs::Variable<float> x) const {
    return x + linear(gelu(linear(layer_norm(x, gain), up)), down);
  }
};

std::int64_t sum(const hs::MemoryReport& report) {
  std::int64_t bytes = 0;
  for (const auto& tensor : report.tensors)
    bytes += tensor.bytes;
  return bytes;
}

}  // namespace

TEST(MemoryReport, ListsWhatIsKeptWithSizesAndReasons) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Model model(parameters);
  const std::vector<float> data(32 * 16, 0.5F);
  const auto pass = [&](hs::Tape& tape) {
    return squared_error(model.block(hs::constant<float>(tape, {32, 16}, data)), data);
  };
  const auto report = hs::report_kept(runtime, {}, pass, hs::keep_values);
  EXPECT_EQ(sum(report), report.bytes);
  EXPECT_EQ(runtime.ledger().peak(), 0);
  const auto find = [&](const std::string& what) {
    for (const auto& tensor : report.tensors) {
      if (tensor.what == what) return tensor;
    }
    ADD_FAILURE() << what << " is not listed";
    return hs::autograd::LiveTensor{};
  };
  EXPECT_EQ(find("output of 'gelu' [32, 64] F32").bytes, 32 * 64 * 4);
  EXPECT_EQ(find("output of 'gelu' [32, 64] F32").why, "read by the backward of 'linear'");
  EXPECT_EQ(find("output of 'layer_norm' [32, 16] F32").why, "read by the backward of 'linear'");
  EXPECT_EQ(find("output of 'constant' [32, 16] F32").why, "read by the backward of 'layer_norm'");
  EXPECT_EQ(find("saved by 'layer_norm'").bytes, 32 * 4);
  EXPECT_THAT(report.text(2), HasSubstr("smaller ones"));
  // By default neither is there: both are made again when they are read.
  const auto less = hs::report_kept(runtime, {}, pass);
  EXPECT_EQ(sum(less), less.bytes);
  EXPECT_EQ(report.bytes - less.bytes, 32 * (64 + 16) * 4);
}

TEST(MemoryReport, ListsTheTensorsThatMakeThePeakAndWhatWasRunning) {
  hs::Runtime runtime({.threads = 1});
  hs::Parameters<float> parameters(runtime);
  const Model model(parameters);
  const std::vector<float> data(32 * 16, 0.5F);
  hs::Tape tape(runtime);
  hs::Gradients<float> gradients(parameters, tape);
  const auto before = runtime.ledger().live();
  for (const bool segment : {false, true}) {
    const auto pass = [&](hs::Tape& t) {
      auto x = hs::constant<float>(t, {32, 16}, data);
      const auto block =
          hs::owns_its_captures([&](hs::Variable<float> v) { return model.block(v); });
      for (int i = 0; i < 3; ++i)
        x = segment ? hs::checkpoint(block, x) : block(x);
      return squared_error(x, data);
    };
    const auto report = hs::report_peak(runtime, {}, pass);
    EXPECT_EQ(sum(report), report.bytes) << "every byte has a line";
    runtime.ledger().restart_peaks();
    tape.begin();
    tape.backward(pass(tape));
    EXPECT_EQ(runtime.ledger().peak() - before, report.bytes)
        << "and it is the peak of the real pass";
    EXPECT_EQ(runtime.ledger().peak_event().op, report.event.op);
    EXPECT_EQ(runtime.ledger().peak_event().phase, hs::core::Event::Phase::backward);
    EXPECT_THAT(report.text(), HasSubstr("bytes, backward of '" + std::string(report.event.op)));
    const bool recompute =
        std::any_of(report.tensors.begin(), report.tensors.end(),
                    [](const auto& t) { return t.category == hs::core::Category::recompute; });
    EXPECT_TRUE(recompute) << "a GELU made again, or a segment";
    EXPECT_EQ(report.text().find("input of a segment") != std::string::npos, segment);
    EXPECT_THAT(report.text(), HasSubstr("gradient of parameter"))
        << "the blocks share their weights";
  }
}
