// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <set>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <halfstep/core/file.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/transport/launch.hpp>

namespace capstone {

namespace core = halfstep::core;
using halfstep::FileError;
using halfstep::OptionError;
using Json = nlohmann::ordered_json;

std::span<const Field<Options>> train_fields() {
  using O = Options;
  static const std::array fields{
      Field<O>{"data",
               "a text file; files of tokens, with commas between; or 'grammar': a language that "
               "the program generates",
               &O::data},
      Field<O>{"out", "directory for weights, tokenizer, metrics, summary; made if missing",
               &O::out},
      Field<O>{"preset", "nanogpt-cpu, hash or bible", &O::preset},
      Field<O>{"format", "of weights and activations: float, bf16 or fp16", &O::format},
      Field<O>{"tokenizer",
               "char (the text's characters) or byte; of files of tokens llmc, uint16 or uint32, "
               "as they lie in them",
               &O::tokenizer},
      Field<O>{"vocabulary", "of files of tokens: every token is below it; 0: the largest, and one",
               &O::vocabulary},
      Field<O>{"layers", "transformer blocks", &O::layers},
      Field<O>{"heads", "attention heads of a block", &O::heads},
      Field<O>{"width", "of the residual stream; a multiple of heads", &O::width},
      Field<O>{"context", "tokens of a row", &O::context},
      Field<O>{"bias", "true or false: biases in linear layers and norms", &O::bias},
      Field<O>{"dropout", "share set to zero in training, in [0, 1)", &O::dropout},
      Field<O>{"batch", "rows of a micro-batch", &O::batch},
      Field<O>{"accumulate", "micro-batches of an update, those of all ranks together",
               &O::accumulate},
      Field<O>{"steps", "iterations, skipped updates included", &O::steps},
      Field<O>{"lr", "learning rate after the warm-up", &O::lr},
      Field<O>{"min-lr", "learning rate at the end", &O::min_lr},
      Field<O>{"warmup", "updates until lr is reached", &O::warmup},
      Field<O>{"weight-decay", "of weights and tables", &O::weight_decay},
      Field<O>{"beta1", "of AdamW, in [0, 1)", &O::beta1},
      Field<O>{"beta2", "of AdamW, in [0, 1)", &O::beta2},
      Field<O>{"eps", "of AdamW, added to the root of the second moment", &O::eps},
      Field<O>{"clip", "limit of the gradient's norm; 0: none", &O::clip},
      Field<O>{"loss-scale",
               "auto, a number, dynamic, or as another library does: pytorch, apex, megatron, "
               "deepspeed, fairseq, jmp, each with :FIRST or :FIRST:LEAST if wanted; auto: dynamic "
               "for fp16, else 1",
               &O::loss_scale},
      Field<O>{
          "recompute",
          "none, segments:K to run K segments of blocks again, or budget:BYTES of memory in all",
          &O::recompute},
      Field<O>{"held-out", "share of the text, at its end, that training never sees", &O::held_out},
      Field<O>{"order", "random: crops anywhere; epochs: each piece of the text once an epoch",
               &O::order},
      Field<O>{
          "ema",
          "share of the average of the weights that stays at an update, in [0, 1); 0: no average",
          &O::ema},
      Field<O>{"eval-every", "iterations between evaluations; 0: only at the end", &O::eval_every},
      Field<O>{"eval-stride",
               "tokens from one window of an evaluation to the next; 0: the context, no overlap",
               &O::eval_stride},
      Field<O>{"patience", "evaluations without a better one that end the run; 0: none do",
               &O::patience},
      Field<O>{"plateau-patience",
               "evaluations without a better one after which the rate falls; 0: it does not",
               &O::plateau_patience},
      Field<O>{"plateau-factor", "what the rate is multiplied by then, in (0, 1)",
               &O::plateau_factor},
      Field<O>{"checkpoint-every",
               "iterations between checkpoints; 0: one only where SIGINT or SIGTERM stops the run",
               &O::checkpoint_every},
      Field<O>{"keep", "newest checkpoints that stay, besides the best", &O::keep},
      Field<O>{"seed", "of weights, crops, dropout and samples", &O::seed},
      Field<O>{"threads",
               "of each rank; 0: as many as the process may use, divided among the ranks",
               &O::threads},
      Field<O>{"ranks", "processes that share the micro-batches of an update: a power of two",
               &O::ranks},
      Field<O>{"zero",
               "0: every rank keeps all; 1, 2, 3: optimizer state, gradients as well, weights as "
               "well are divided among the ranks; where they share memory, 1 and 3 keep one copy "
               "of the weights",
               &O::zero},
      Field<O>{"transport", "of ranks: shm, pipe (nothing is shared) or threads (of one process)",
               &O::transport},
      Field<O>{"algorithm", "of --zero 0: best, push, direct or ring", &O::algorithm},
      Field<O>{
          "bucket",
          "bytes of the gradient that ranks reduce at a time; unused by --zero 1 in shared memory",
          &O::bucket},
      Field<O>{"telemetry",
               "true or false: measure gradients, updates and a step in double at evaluations",
               &O::telemetry},
  };
  return fields;
}

std::span<const Field<ReadOptions>> eval_fields() {
  using O = ReadOptions;
  static const std::array fields{
      Field<O>{"out", "directory of a finished run", &O::out},
      Field<O>{"data", "another text to evaluate, whole; else the run's held-out part", &O::data},
      Field<O>{"average", "true or false: the averaged weights of a run with --ema", &O::average},
      Field<O>{"batch", "rows at a time; the result does not depend on it", &O::batch},
      Field<O>{"eval-stride", "tokens from one window to the next; 0: as the run has it",
               &O::eval_stride},
      Field<O>{"threads", "0: as many as the process may use", &O::threads},
  };
  return fields;
}

std::span<const Field<ReadOptions>> sample_fields() {
  using O = ReadOptions;
  static const std::array fields{
      Field<O>{"out", "directory of a finished run", &O::out},
      Field<O>{"prompt", "text to continue", &O::prompt},
      Field<O>{"tokens", "to write", &O::tokens},
      Field<O>{"temperature", "0: always the likeliest token", &O::temperature},
      Field<O>{"top-k", "draw from the k likeliest tokens alone; 0: from all", &O::top_k},
      Field<O>{"top-p", "and of those from the likeliest with this share together, in (0, 1]",
               &O::top_p},
      Field<O>{"average", "true or false: the averaged weights of a run with --ema", &O::average},
      Field<O>{"seed", "of the draws", &O::seed},
      Field<O>{"threads", "0: as many as the process may use", &O::threads},
  };
  return fields;
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates) {
  const auto distance = [&](std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    for (std::size_t j = 0; j <= other.size(); ++j)
      row[j] = j;
    for (std::size_t i = 1; i <= name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= other.size(); ++j) {
        const std::size_t above = row[j];
        row[j] = std::min(
            {above + 1, row[j - 1] + 1, diagonal + (name[i - 1] == other[j - 1] ? 0U : 1U)});
        diagonal = above;
      }
    }
    return row[other.size()];
  };
  std::string_view best;
  std::size_t least = static_cast<std::size_t>(-1);
  for (const std::string_view candidate : candidates) {
    const std::size_t d = distance(candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

namespace {

template <class Target>
const Field<Target>& find(std::string_view name, std::span<const Field<Target>> fields,
                          std::string_view kind, std::string_view dashes) {
  std::vector<std::string_view> names;
  for (const auto& field : fields) {
    if (field.name == name) return field;
    names.push_back(field.name);
  }
  core::fail<OptionError>("unknown ", kind, " ", dashes, name, ". Did you mean ", dashes,
                          nearest(name, names), "?");
}

template <class V>
void parse(V& value, std::string_view text, const std::string& name) {
  if constexpr (std::is_same_v<V, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<V, bool>) {
    if (text != "true" && text != "false") {
      core::fail<OptionError>(name, " is '", text, "'; wanted true or false");
    }
    value = text == "true";
  } else {
    V parsed{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (error == std::errc::result_out_of_range) {
      core::fail<OptionError>(name, " is '", text, "', which is out of range");
    }
    if (error != std::errc{} || end != text.data() + text.size()) {
      core::fail<OptionError>(name, " is '", text, "'; wanted ",
                              std::is_floating_point_v<V> ? "a number" : "a whole number",
                              std::is_unsigned_v<V> ? " of at least 0" : "");
    }
    value = parsed;
  }
}

template <class Target>
void set(Target& target, const Field<Target>& field, std::string_view text,
         const std::string& name) {
  std::visit([&](auto member) { parse(target.*member, text, name); }, field.member);
}

void apply_preset(Options& o, std::string_view name) {
  if (name == "nanogpt-cpu") {
    // nanoGPT's published CPU run of shakespeare_char: README of that project, "I only have a
    // macbook".
    o.layers = 4, o.heads = 4, o.width = 128, o.context = 64, o.bias = false, o.dropout = 0.0F;
    o.batch = 12, o.accumulate = 1, o.steps = 2000;
    o.lr = 1e-3F, o.min_lr = 1e-4F, o.warmup = 100;
    o.weight_decay = 0.1, o.beta1 = 0.9, o.beta2 = 0.99, o.clip = 1.0F;
    o.tokenizer = "char", o.held_out = 0.1;
  } else if (name == "hash") {
    // About a second: sizes that are multiples of nothing, every part of the step in it.
    o.layers = 2, o.heads = 3, o.width = 48, o.context = 33, o.bias = true;
    o.batch = 4, o.accumulate = 2, o.steps = 20;
    o.lr = 3e-3F, o.min_lr = 3e-4F, o.warmup = 5;
    o.weight_decay = 0.1, o.beta1 = 0.9, o.beta2 = 0.99, o.clip = 1.0F;
    o.tokenizer = "char", o.held_out = 0.1;
  } else if (name == "bible") {
    o.format = "bf16";
    // Many small steps of a small model: 1.1140 nats a byte, where the 4-gram has 1.1743 (1.1347
    // after 6000 steps) and 1000 steps of twice the tokens at width 192 did not come near it.
    o.layers = 4, o.heads = 4, o.width = 128, o.context = 128, o.bias = false;
    o.batch = 8, o.accumulate = 1, o.steps = 7000, o.eval_stride = 96;
    o.lr = 4e-3F, o.min_lr = 1e-4F, o.warmup = 100;
    o.weight_decay = 0.1, o.beta1 = 0.9, o.beta2 = 0.99, o.clip = 1.0F;
    o.tokenizer = "char", o.held_out = 0.1;
  } else {
    core::fail<OptionError>("unknown preset ", name, ". Did you mean ",
                            nearest(name, preset_names()), "?");
  }
}

Json parse_object(std::string_view text, std::string_view source) {
  Json json;
  // A parser keeps the last of equal keys and says nothing of the others.
  std::set<std::string> seen;
  const auto once = [&](int depth, Json::parse_event_t event, const Json& key) {
    if (depth == 1 && event == Json::parse_event_t::key &&
        !seen.insert(key.get<std::string>()).second) {
      core::fail<OptionError>("'", key.get<std::string>(), "' is twice in '", source,
                              "'. Leave one of them out.");
    }
    return true;
  };
  try {
    json = Json::parse(text, once);
  } catch (const Json::exception& error) {
    core::fail<FileError>("'", source, "' is not JSON: ", error.what());
  }
  if (!json.is_object()) {
    core::fail<FileError>("'", source,
                          "' is no JSON object; wanted one whose keys are long flags, "
                          "such as {\"layers\": 4}");
  }
  return json;
}

void apply_json(Options& options, const Json& json, std::string_view source) {
  for (const auto& [key, value] : json.items()) {
    const auto& field =
        find<Options>(key, train_fields(), core::text("key in '", source, "':"), "");
    const std::string name = core::text("'", key, "' in '", source, "'");
    // Numbers go through the text that is in the file, so that a flag and a key mean the same.
    const bool wants_text = std::holds_alternative<std::string Options::*>(field.member);
    if (value.is_string() && !wants_text) {
      core::fail<OptionError>(
          name, " is the text ", value.dump(), "; wanted ",
          std::holds_alternative<bool Options::*>(field.member) ? "true or false" : "a number");
    }
    if (!value.is_string() && !value.is_number() && !value.is_boolean()) {
      core::fail<OptionError>(name, " is ", value.dump(), "; wanted one value");
    }
    // A fixed loss scale is a number, and may be written as one.
    if (wants_text && !value.is_string() && !(key == "loss-scale" && value.is_number())) {
      core::fail<OptionError>(name, " is ", value.dump(), "; wanted a text, in quotes");
    }
    if (key == "preset") continue;  // applied before
    set(options, field, value.is_string() ? value.get<std::string>() : value.dump(), name);
  }
}

void require(bool good, std::string_view name, const auto& value, std::string_view wanted) {
  if (!good) core::fail<OptionError>("--", name, " is ", value, "; wanted ", wanted);
}

void check_threads(int threads) {
  require(threads >= 0 && threads <= core::ThreadPool::max_threads, "threads", threads,
          core::text("0 to ", core::ThreadPool::max_threads));
}

/// What several ranks need, and what of the rest they cannot do.
void check_ranks(const Options& o) {
  namespace dist = halfstep::dist;
  require(o.ranks >= 1 && o.ranks <= dist::max_ranks &&
              std::has_single_bit(static_cast<unsigned>(o.ranks)),
          "ranks", o.ranks,
          core::text("a power of two from 1 to ", dist::max_ranks,
                     ": others would not give the bits of one process"));
  require(o.zero >= 0 && o.zero <= 3, "zero", o.zero, "0, 1, 2 or 3");
  require(o.bucket >= 4, "bucket", o.bucket, "at least the 4 bytes of one gradient");
  check_threads(o.threads);
  const auto transport = dist::transport_kind(o.transport);
  const auto algorithm = dist::algorithm(o.algorithm);
  if (o.accumulate % o.ranks != 0) {
    core::fail<OptionError>("--accumulate ", o.accumulate,
                            " micro-batches cannot be shared by --ranks ", o.ranks,
                            ". They are those of all ranks together: choose a multiple, such as ",
                            core::divide_up(o.accumulate, o.ranks) * o.ranks, ".");
  }
  if (algorithm != dist::Algorithm::best && o.zero > 0) {
    core::fail<OptionError>(
        "--algorithm ", o.algorithm, " is one of all-reduce, which --zero ", o.zero,
        " has no use for: it sends each gradient to its owner. Leave one of them out.");
  }
  if (algorithm == dist::Algorithm::push && transport == dist::TransportKind::pipe) {
    core::fail<OptionError>(
        "--algorithm push needs memory that ranks share, which --transport pipe has not. "
        "Choose direct or ring.");
  }
  if (algorithm == dist::Algorithm::ring && o.ranks > 2) {
    core::fail<OptionError>(
        "--algorithm ring sums in another order for each slice beyond two ranks, so that --ranks ",
        o.ranks, " would not give the bits of one process. Choose best, push or direct.");
  }
  if (o.zero > 0 && o.telemetry) {
    core::fail<OptionError>("--telemetry reads whole gradients and weights, of which with --zero ",
                            o.zero, " each rank has a part. Leave one of them out.");
  }
  if (o.zero > 0 && o.ema > 0.0) {
    core::fail<OptionError>("--ema averages whole weights, of whose full precision with --zero ",
                            o.zero, " each rank has a part. Leave one of them out.");
  }
  if (o.zero > 0 && budget_of(o)) {
    core::fail<OptionError>("--recompute ", o.recompute,
                            " is planned for a rank that keeps the whole state, not for --zero ",
                            o.zero, ". Choose segments:K, or --zero 0.");
  }
}

void check(const Options& o) {
  require(o.layers >= 1, "layers", o.layers, "at least 1");
  require(o.heads >= 1, "heads", o.heads, "at least 1");
  require(o.width >= 1, "width", o.width, "at least 1");
  require(o.context >= 1, "context", o.context, "at least 1");
  require(o.batch >= 1, "batch", o.batch, "at least 1");
  require(o.accumulate >= 1, "accumulate", o.accumulate, "at least 1");
  require(o.steps >= 1, "steps", o.steps, "at least 1");
  require(o.warmup >= 0, "warmup", o.warmup, "0 or more");
  require(o.eval_every >= 0, "eval-every", o.eval_every, "0 or more");
  require(o.eval_stride >= 0 && o.eval_stride <= o.context, "eval-stride", o.eval_stride,
          "0 to the context");
  require(o.checkpoint_every >= 0, "checkpoint-every", o.checkpoint_every, "0 or more");
  require(o.keep >= 1, "keep", o.keep, "at least 1");
  require(o.patience >= 0, "patience", o.patience, "0 or more");
  require(o.plateau_patience >= 0, "plateau-patience", o.plateau_patience, "0 or more");
  require(o.plateau_factor > 0.0 && o.plateau_factor < 1.0, "plateau-factor", o.plateau_factor,
          "a number between 0 and 1");
  require(o.lr >= 0.0F && o.lr < 1e38F, "lr", o.lr, "a finite number of 0 or more");
  require(o.min_lr >= 0.0F && o.min_lr < 1e38F, "min-lr", o.min_lr, "a finite number of 0 or more");
  require(o.weight_decay >= 0.0 && o.weight_decay < 1e38, "weight-decay", o.weight_decay,
          "a finite number of 0 or more");
  require(o.beta1 >= 0.0 && o.beta1 < 1.0, "beta1", o.beta1, "a number in [0, 1)");
  require(o.beta2 >= 0.0 && o.beta2 < 1.0, "beta2", o.beta2, "a number in [0, 1)");
  // Normal in float, in which the update is computed.
  require(o.eps >= 1e-37 && o.eps <= 1e37, "eps", o.eps, "a number from 1e-37 to 1e37");
  require(o.clip >= 0.0F && o.clip < 1e38F, "clip", o.clip,
          "a finite limit above 0, or 0 for none");
  require(o.dropout >= 0.0F && o.dropout < 1.0F, "dropout", o.dropout, "a share in [0, 1)");
  require(o.held_out > 0.0 && o.held_out < 1.0, "held-out", o.held_out, "a share between 0 and 1");
  require(o.tokenizer == "char" || o.tokenizer == "byte" || reads_shards(o), "tokenizer",
          o.tokenizer, "char or byte, or, where --data is files of tokens, llmc, uint16 or uint32");
  require(o.vocabulary == 0 || (o.vocabulary > 0 && reads_shards(o)), "vocabulary", o.vocabulary,
          "0, or, where --data is files of tokens, what is above them all");
  const std::vector<std::string> files = shard_files(o);
  require(!reads_shards(o) || o.data.empty() ||
              std::find(files.begin(), files.end(), "") == files.end(),
          "data", core::text("'", o.data, "'"), "a name before and behind each comma");
  require(o.order == "random" || o.order == "epochs", "order", o.order, "random or epochs");
  require(o.ema >= 0.0 && o.ema < 1.0, "ema", o.ema, "a share in [0, 1)");
  require(o.format == "float" || o.format == "bf16" || o.format == "fp16", "format", o.format,
          o.format.starts_with("fp8") ? "float, bf16 or fp16; fp8 is for storage and telemetry in "
                                        "this release"
                                      : "float, bf16 or fp16");
  static_cast<void>(segments_of(o));
  check_ranks(o);
  const double tokens = static_cast<double>(o.batch) * o.context * o.accumulate;
  if (tokens >= 0x1p31) {
    core::fail<OptionError>("--batch ", o.batch, " x --context ", o.context, " x --accumulate ",
                            o.accumulate, " are ", tokens,
                            " tokens an update; wanted less than 2^31. Lower one of them.");
  }
  const double weights =
      12.0 * o.layers * o.width * o.width + static_cast<double>(o.context) * o.width;
  if (weights >= 0x1p40) {
    core::fail<OptionError>("--layers ", o.layers, " of --width ", o.width, " are ", weights,
                            " parameters; wanted less than 2^40. Lower one of them.");
  }
  if (o.width % o.heads != 0) {
    const std::int64_t below = o.width / o.heads;
    core::fail<OptionError>(
        "--width ", o.width, " does not divide into --heads ", o.heads,
        ". Choose a multiple of the heads as width: ", std::max<std::int64_t>(1, below) * o.heads,
        " or ", std::max<std::int64_t>(2, below + 1) * o.heads, " for instance.");
  }
}

}  // namespace

bool reads_shards(const Options& options) {
  return options.tokenizer == "llmc" || options.tokenizer == "uint16" ||
         options.tokenizer == "uint32";
}

std::vector<std::string> shard_files(const Options& options) {
  std::vector<std::string> files(1);
  for (const char c : options.data) {
    if (c == ',') {
      files.emplace_back();
    } else {
      files.back() += c;
    }
  }
  return files;
}

std::optional<std::int64_t> budget_of(const Options& options) {
  constexpr std::string_view prefix = "budget:";
  const std::string_view text = options.recompute;
  if (!text.starts_with(prefix)) return std::nullopt;
  std::int64_t bytes = 0;
  parse(bytes, text.substr(prefix.size()), "--recompute budget:BYTES");
  if (bytes < 1)
    core::fail<OptionError>("--recompute is '", text, "'; wanted a number of bytes of at least 1");
  return bytes;
}

int segments_of(const Options& options) {
  constexpr std::string_view prefix = "segments:";
  const std::string_view text = options.recompute;
  if (text == "none" || budget_of(options)) return 1;
  int segments = 0;
  if (text.starts_with(prefix))
    parse(segments, text.substr(prefix.size()), "--recompute segments:K");
  if (segments < 1 || segments > options.layers) {
    core::fail<OptionError>("--recompute is '", text,
                            "'; wanted none, segments:K with K from 1 to the ", options.layers,
                            " layers, or budget:BYTES");
  }
  return segments;
}

std::span<const std::string_view> preset_names() {
  static constexpr std::array<std::string_view, 3> names{"nanogpt-cpu", "hash", "bible"};
  return names;
}

namespace {

/// What may differ between a run so far and the rest of it.
constexpr std::array<std::string_view, 13> free_to_change{
    "data",      "out",   "threads", "checkpoint-every", "keep",      "preset", "telemetry",
    "recompute", "ranks", "zero",    "transport",        "algorithm", "bucket"};

bool may_change(std::string_view name) {
  return std::find(free_to_change.begin(), free_to_change.end(), name) != free_to_change.end();
}

Options resumed(const std::string& directory, std::span<const Given> flags) {
  const std::string path = directory + "/checkpoints/run.json";
  std::string text;
  try {
    text = core::read_whole_file(path);
  } catch (const FileError& error) {
    core::fail<FileError>("--resume '", directory,
                          "' is no run that can be resumed: ", error.what(),
                          " A run that has ended without --checkpoint-every keeps no checkpoints.");
  }
  const Options before = from_json(text, path);
  Options options = before;
  options.out = directory;
  for (const Given& flag : flags) {
    if (flag.name == "resume") continue;
    if (flag.name == "config" || flag.name == "preset") {
      core::fail<OptionError>("--resume takes the options of the run; --", flag.name,
                              " has no place beside it");
    }
    const auto& field = find<Options>(flag.name, train_fields(), "option", "--");
    set(options, field, flag.text, core::text("--", flag.name));
    std::visit(
        [&](auto member) {
          if (may_change(flag.name) || options.*member == before.*member) return;
          core::fail<OptionError>("--", flag.name, " is ", options.*member, ", but the run in '",
                                  directory, "' was started with ", before.*member,
                                  ". Leave it out, or start another run with --out.");
        },
        field.member);
    if (flag.name == "out" && flag.text != directory) {
      core::fail<OptionError>("--out is '", flag.text, "', but --resume '", directory,
                              "' goes on in that directory. Leave --out out.");
    }
  }
  check(options);
  return options;
}

}  // namespace

Options resolve(std::span<const Given> flags) {
  std::optional<std::string> config, preset;
  for (const Given& flag : flags) {
    if (flag.name == "resume") return resumed(flag.text, flags);
    if (flag.name == "config") config = flag.text;
    if (flag.name == "preset") preset = flag.text;
  }
  Json json = Json::object();
  if (config) {
    json = parse_object(core::read_whole_file(*config), *config);
    if (!preset && json.contains("preset") && json["preset"].is_string()) {
      preset = json["preset"].get<std::string>();
    }
  }
  Options options;
  if (preset && !preset->empty()) apply_preset(options, *preset);
  if (config) apply_json(options, json, *config);
  for (const Given& flag : flags) {
    if (flag.name == "config") continue;
    set(options, find<Options>(flag.name, train_fields(), "option", "--"), flag.text,
        core::text("--", flag.name));
  }
  if (preset) options.preset = *preset;
  // A preset's stride is for its own context.
  if (!json.contains("eval-stride") && std::ranges::none_of(flags, [](const Given& flag) {
        return flag.name == "eval-stride";
      })) {
    options.eval_stride = std::min(options.eval_stride, options.context);
  }
  check(options);
  if (options.data.empty()) {
    core::fail<OptionError>(
        "no text to train on: give --data FILE, or --data grammar for a language "
        "that the program generates");
  }
  if (options.out.empty()) {
    core::fail<OptionError>("no place for the results: give --out DIR");
  }
  return options;
}

ReadOptions resolve_read(std::span<const Given> flags, std::span<const Field<ReadOptions>> fields) {
  ReadOptions options;
  for (const Given& flag : flags) {
    set(options, find<ReadOptions>(flag.name, fields, "option", "--"), flag.text,
        core::text("--", flag.name));
  }
  require(options.batch >= 1, "batch", options.batch, "at least 1");
  require(options.tokens >= 0, "tokens", options.tokens, "0 or more");
  require(options.eval_stride >= 0, "eval-stride", options.eval_stride, "0 to the run's context");
  require(options.top_k >= 0, "top-k", options.top_k, "0 or more");
  require(options.top_p > 0.0 && options.top_p <= 1.0, "top-p", options.top_p, "a share in (0, 1]");
  require(options.temperature >= 0.0F && options.temperature < 1e30F, "temperature",
          options.temperature, "0 or more, and less than 1e30");
  check_threads(options.threads);
  if (options.out.empty()) {
    core::fail<OptionError>("which run? Give --out DIR, the directory that train wrote");
  }
  return options;
}

std::string to_json(const Options& options) {
  Json json = Json::object();
  for (const auto& field : train_fields()) {
    std::visit(
        [&](auto member) {
          const auto& value = options.*member;
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, float>) {
            // The shortest text that reads back, not the double's.
            json[std::string(field.name)] = Json::parse(core::text(value));
          } else {
            json[std::string(field.name)] = value;
          }
        },
        field.member);
  }
  try {
    return json.dump(2) + "\n";
  } catch (const Json::type_error&) {
    core::fail<OptionError>(
        "--data '", options.data, "' or --out '", options.out,
        "' is not UTF-8, so config.json cannot hold it. Rename it, or link to it.");
  }
}

std::string identity_json(const Options& options) {
  Json json = Json::parse(to_json(options));
  for (const std::string_view name : free_to_change)
    json.erase(std::string(name));
  return json.dump();
}

Options from_json(std::string_view text, std::string_view source) {
  Options options;
  const Json json = parse_object(text, source);
  apply_json(options, json, source);
  check(options);
  return options;
}

}  // namespace capstone
