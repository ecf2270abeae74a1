// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/numeric/format.hpp>
#include <halfstep/train/progress.hpp>

#include "commands.hpp"
#include "dataset.hpp"
#include "model.hpp"
#include "summary.hpp"

namespace capstone {

namespace core = halfstep::core;
namespace data = halfstep::data;

namespace {

struct Run {
  Options options;
  data::Tokenizer tokenizer;
  std::string weights;
};

Run open_run(const std::string& directory, bool average) {
  const std::string config = directory + "/config.json";
  Options options = from_json(core::read_whole_file(config), config);
  if (average && options.ema == 0.0) {
    core::fail<halfstep::OptionError>("--average is true, but the run in '", directory,
                                      "' kept no average. Train one with --ema 0.999.");
  }
  return {std::move(options), data::Tokenizer::load(directory + "/tokenizer.txt"),
          directory + (average ? "/average.safetensors" : "/weights.safetensors")};
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

void evaluate(const ReadOptions& read) {
  const Run run = open_run(read.out, read.average);
  if (read.eval_stride > run.options.context) {
    core::fail<halfstep::OptionError>("--eval-stride is ", read.eval_stride,
                                      ", but the context of the run in '", read.out, "' is ",
                                      run.options.context, "; wanted no more.");
  }
  halfstep::Runtime runtime({.threads = read.threads, .seed = run.options.seed});
  std::vector<std::int32_t> tokens;
  std::string what;
  if (read.data.empty()) {
    const Dataset dataset = load_dataset(run.options, run.tokenizer);
    const std::string summary = read.out + "/summary.json";
    const std::string trained_on = data_hash_of(core::read_whole_file(summary), summary);
    if (!trained_on.empty() && trained_on != hash_text(dataset.text.hash())) {
      core::fail<halfstep::DataError>(
          "'", run.options.data,
          "' is not the text that the run was trained on: its "
          "hash is ",
          hash_text(dataset.text.hash()), ", that in summary.json ", trained_on,
          ". Restore the text, or evaluate another one with --data FILE.");
    }
    tokens.assign(dataset.text.held_out().begin(), dataset.text.held_out().end());
    what = core::text("the held-out part of '", run.options.data, "'");
  } else {
    if (reads_shards(run.options)) {
      Options other = run.options;
      other.data = read.data;
      other.vocabulary = run.tokenizer.vocabulary();
      const data::Shards shards = open_shards(other);
      tokens.resize(shards.size());
      shards.read(0, tokens);
    } else {
      tokens = run.tokenizer.encode(core::read_whole_file(read.data));
    }
    what = core::text("'", read.data, "'");
  }
  const auto e = halfstep::with_format(run.options.format, [&]<class T> {
    return evaluate_model<T>(run.options, runtime, run.tokenizer, tokens, read, run.weights);
  });
  if (!std::isfinite(e.nats_per_token())) {
    core::fail<halfstep::NumericError>(
        "the loss on ", what, " is ", e.nats_per_token(), ": '", run.weights,
        "' holds weights that are not finite, or overflow. Train again.");
  }
  print(core::text(what, ": ", e.count, " tokens\nval_loss ", core::text(e.nats_per_token()),
                   "\nval_standard_error ", e.standard_error, "\nval_perplexity ", e.perplexity(),
                   e.bytes > 0 ? core::text("\nval_bits_per_byte ", e.bits_per_byte()) : "",
                   "\nval_accuracy ", e.accuracy(), "\n"));
}

void sample(const ReadOptions& read) {
  const Run run = open_run(read.out, read.average);
  halfstep::Runtime runtime({.threads = read.threads, .seed = run.options.seed});
  bool begun = false;  // a prompt that is refused is not written
  static_cast<void>(halfstep::with_format(run.options.format, [&]<class T> {
    return sample_model<T>(run.options, runtime, run.tokenizer, read, run.weights,
                           [&](std::string_view piece) {
                             if (!std::exchange(begun, true)) print(read.prompt);
                             std::fwrite(piece.data(), 1, piece.size(), stdout);
                             std::fflush(stdout);
                           });
  }));
  print("\n");
}

}  // namespace capstone
