// SPDX-License-Identifier: MIT
// Does my model train to the same bits on several ranks? Runs some steps of it as one process, data
// parallel, in each stage of ZeRO and as one host, with ranks as threads, and names the first
// tensor that differs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/autograd/tape.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/one_host.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/dist/transport/threads.hpp>
#include <halfstep/dist/transport/transport.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/optim/adamw.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/store.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

struct VerifyOptions {
  int ranks = 2;
  int steps = 3;
  mixed::StepShape shape{.micro_batches = 4, .rows = 8, .targets_per_row = 128};
  std::uint64_t seed = 1;
  float lr = 1e-3F;
  float clip = 1.0F;  ///< limit of the gradient's norm
  optim::AdamWOptions adamw{};
};

/// One way of running the model, and where it parts from one process: "" nowhere.
struct VerifiedLayout {
  std::string name;              ///< "data parallel", "ZeRO 1", …
  std::string first_difference;  ///< the first parameter, in order of registration, that differs
};
struct Verified {
  std::vector<VerifiedLayout> layouts;

  /// Whether all are equal to one process, bit for bit.
  explicit operator bool() const {
    return std::all_of(layouts.begin(), layouts.end(),
                       [](const auto& one) { return one.first_difference.empty(); });
  }
  /// A line for each.
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const VerifiedLayout& one : layouts) {
      out += one.name;
      out += one.first_difference.empty()
                 ? ": identical\n"
                 : core::text(": first difference in '", one.first_difference, "'\n");
    }
    return out;
  }
};

namespace detail {

/// What a run came to: the weights of every parameter, and the hash of those in full precision.
template <class T>
struct EndOfRun {
  std::vector<std::vector<T>> weights;
  std::uint64_t hash = 0;
};

/// The first parameter in which two runs differ; the masters have no parameter of their own here.
template <class T>
[[nodiscard]] std::string first_difference(const EndOfRun<T>& one, const EndOfRun<T>& other,
                                           const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& a = one.weights[i];
    const auto& b = other.weights[i];
    if (std::memcmp(static_cast<const void*>(a.data()), static_cast<const void*>(b.data()),
                    a.size() * sizeof(T)) != 0) {
      return names[i];
    }
  }
  return one.hash == other.hash ? "" : "weights in full precision";
}

}  // namespace detail

/// verify_parallel<bf16>([](Parameters<bf16>& p) { return nn::Gpt<bf16>(p, …); },
///                       [&](const auto& model, Tape& tape, const MicroBatch& micro) {
///                         const auto batch = text.batch(micro, length);
///                         return cross_entropy(model(tape, batch.inputs), batch.targets);
///                       });
///
///   build  makes the model in a store; called once for each rank, on its thread
///   loss   the loss of one micro-batch; the tape has begun it. Called on several threads at a
///   time.
///
/// Every rank trains with AdamW, on float masters if T has 16 bits. Memory: that of all ranks'
/// models.
/// @throws OptionError if the ranks do not divide the micro-batches, and what build and loss throw.
template <class T, class Build, class Loss>
[[nodiscard]] Verified verify_parallel(Build build, Loss loss, const VerifyOptions& options = {}) {
  using Optimizer = mixed::MasterWeights<optim::AdamW, T>;
  using Accumulator = mixed::GradientAccumulator<T>;
  std::vector<std::string> names;
  std::int64_t elements = 0;
  const auto train = [&](Runtime& runtime, Parameters<T>& parameters, const auto& model,
                         auto& optimizer, Accumulator& accumulator) {
    Tape tape(runtime);
    for (int step = 0; step < options.steps; ++step) {
      auto window = accumulator.begin(tape, step, options.shape);
      for (const MicroBatch micro : window) {
        tape.begin(micro);
        window.backward(tape, loss(model, tape, micro));
      }
      optimizer.step(std::move(window).unscale().clip_norm(options.clip), options.lr);
    }
    detail::EndOfRun<T> end;
    for (std::uint32_t i = 0; i < parameters.size(); ++i) {
      const tensor::Acquired<T> values(parameters.store(), {i});
      end.weights.emplace_back(values.data(), values.data() + parameters.infos()[i].elements);
    }
    end.hash = optimizer.weights_hash();
    return end;
  };

  detail::EndOfRun<T> alone;
  {
    Runtime runtime({.threads = 1, .seed = options.seed});
    Parameters<T> parameters(runtime);
    const auto model = build(parameters);
    Optimizer optimizer(parameters, options.adamw);
    Accumulator accumulator(parameters);
    alone = train(runtime, parameters, model, optimizer, accumulator);
    for (const auto& info : parameters.infos())
      names.push_back(info.name);
    elements = parameters.count();
  }
  Verified verified;
  const auto compare = [&](std::string_view name, auto run, std::int64_t common_bytes = 0) {
    std::mutex lock;
    VerifiedLayout& layout = verified.layouts.emplace_back(VerifiedLayout{std::string(name), ""});
    // No common memory but for OneHost: Zero3 would gather nothing in it, and not be verified.
    const ThreadsOptions threads{.ranks = options.ranks,
                                 .arena_bytes = OneHost<Optimizer>::arena_bytes(elements),
                                 .common_bytes = common_bytes,
                                 .wait = {.crowded = true}};
    run_threads(threads, [&](Transport& transport) {
      Runtime runtime({.threads = 1, .seed = options.seed});
      Group group(transport, runtime);
      Parameters<T> parameters(runtime);
      const auto model = build(parameters);
      const detail::EndOfRun<T> end = run(group, runtime, parameters, model);
      const std::lock_guard guard(lock);
      if (layout.first_difference.empty())
        layout.first_difference = detail::first_difference(alone, end, names);
    });
  };
  compare("data parallel",
          [&](Group& group, Runtime& runtime, Parameters<T>& parameters, const auto& model) {
            DataParallel<T> ranks(group, parameters);
            Optimizer optimizer(parameters, options.adamw);
            Accumulator accumulator(parameters, nullptr, ranks);
            return train(runtime, parameters, model, optimizer, accumulator);
          });
  const auto stage = [&](auto& optimizer, Runtime& runtime, Parameters<T>& parameters,
                         const auto& model) {
    Accumulator accumulator(parameters, nullptr, optimizer.ranks());
    return train(runtime, parameters, model, optimizer, accumulator);
  };
  compare("ZeRO 1",
          [&](Group& group, Runtime& runtime, Parameters<T>& parameters, const auto& model) {
            Zero1<Optimizer> optimizer(group, parameters, options.adamw);
            return stage(optimizer, runtime, parameters, model);
          });
  compare("ZeRO 2",
          [&](Group& group, Runtime& runtime, Parameters<T>& parameters, const auto& model) {
            Zero2<Optimizer> optimizer(group, parameters, options.adamw);
            return stage(optimizer, runtime, parameters, model);
          });
  compare("ZeRO 3",
          [&](Group& group, Runtime& runtime, Parameters<T>& parameters, const auto& model) {
            Zero3<Optimizer> optimizer(group, parameters, options.adamw);
            return stage(optimizer, runtime, parameters, model);
          });
  compare(
      "one host",
      [&](Group& group, Runtime& runtime, Parameters<T>& parameters, const auto& model) {
        OneHost<Optimizer> optimizer(group, parameters, options.adamw);
        return stage(optimizer, runtime, parameters, model);
      },
      OneHost<Optimizer>::common_bytes(elements));
  return verified;
}

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
